"""`ottla topic browse` on a terminal: pages, offsets, times, search, live tail."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from compat_tests.brokers import Broker
from tests.tools.browse.screens import Screen

OTTLA = str(Path(sys.executable).with_name("ottla"))
END, ENTER = "\x1b[F", "\r"
BEGUN = 1_700_000_000_000


def produce(broker: Broker, topic: str, first: int, after: int) -> None:
    lines = [json.dumps({"key": f"k{n}", "value": f"v{n}", "timestamp": BEGUN + n * 1000})
             for n in range(first, after)]  # fmt: skip
    done = subprocess.run(
        [OTTLA, "produce", topic, "-b", broker.bootstrap, "-i", "jsonl"],
        input="\n".join(lines).encode(), capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_topic_is_read_with_the_keyboard(
    broker: Broker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("browsed", partitions=1)
    produce(broker, topic, 0, 500)
    with Screen(["topic", "browse", topic], broker.bootstrap) as screen:
        screen.wait(rf"{topic}-0   offsets 0 to 499")
        screen.press(END)
        screen.wait(r"v499\b", chosen=True)
        screen.press(f"o123{ENTER}")
        screen.wait(r"v123\b", chosen=True)
        screen.press(f"t2023-11-14T22:18:20Z{ENTER}")
        screen.wait(r"v300\b", chosen=True)
        screen.press(f"/k421{ENTER}")
        screen.wait(r"k421\b", chosen=True)
        screen.press("f")
        produce(broker, topic, 500, 503)
        screen.wait(r"v502\b", chosen=True)
        screen.press("q")
        assert screen.end() == 0
