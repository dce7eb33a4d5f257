"""kill -9 at random instants under every kind of load: no promise is broken.

`OTTLA_KILLS=100` sets the number of kills.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.broker.crashes.cycles import BrokerProcess, Cycles
from tests.broker.crashes.load import TOPIC

KILLS = int(os.environ.get("OTTLA_KILLS", "10"))


@pytest.mark.timeout(120 + 10 * KILLS)
def test_kill_9_at_random_instants_breaks_no_promise(tmp_path: Path) -> None:
    began = time.monotonic()
    broker = BrokerProcess(tmp_path / "data", log_segment_bytes=1 << 20)
    with Cycles(broker, seed=KILLS) as cycles:
        for _ in range(KILLS):
            cycles.cycle(broker.kill)
        promises = cycles.finish()
    print(f"{KILLS} kills, {promises} promises kept in {time.monotonic() - began:.0f} s")


def test_a_record_that_is_lost_after_all_is_noticed(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")

    def kill_and_lose() -> None:
        broker.kill()
        path = tmp_path / "data" / f"{TOPIC}-0" / "00000000000000000000.log"
        os.truncate(path, path.stat().st_size // 2)

    with Cycles(broker, seed=1) as cycles:
        with pytest.raises(AssertionError, match=r"\d+ acknowledged, \d+ are there"):
            cycles.cycle(kill_and_lose)
