"""The scene of stock clients whose brokers are killed, stopped and paused."""

from __future__ import annotations

import sys
import time

from compat_tests.tool_chaos.calls import CLIENTS, USEFUL_SECONDS
from compat_tests.tool_chaos.seed import BROKERS, Event, Seed
from compat_tests.waiting import wait_until

SECONDS = 8.0
ABORTED = "rd_kafka_enq_once_del_source_return"
"""Printed if librdkafka's admin client aborts its process, as it sometimes does if a broker goes
away."""


def calls(seed: Seed) -> None:
    """Every call returns within its own time-out, and works again after the brokers are back."""
    topic, client = seed.name("calls"), seed.chance.choice(sorted(CLIENTS))
    seed.world.create(topic)
    running = seed.start([
        sys.executable, "-m", "compat_tests.tool_chaos.calls", seed.world.bootstrap, topic,
        topic, str(SECONDS), client,
    ])  # fmt: skip
    try:
        running.read_rest()
        wait_until(lambda: b"ready" in running.out or running.process.poll() is not None,
                   "the client is there")
        for _ in range(2):
            event = seed.event(BROKERS[:4])
            event = Event(event.name, 1.0 + event.seconds, 0, event.pause, event.nodes)
            seed.told.append(f"{client}: {event}")
            time.sleep(event.seconds)
            seed.happen(event, running)
        outcome = running.wait(SECONDS + 12 * USEFUL_SECONDS)
    finally:
        running.kill()
    seed.world.until_in_sync()
    if ABORTED in outcome.err:
        return
    assert outcome.status == 0 and "Traceback" not in outcome.err, (
        f"{client}: {outcome.err[-1500:]}\n{outcome.out.decode()}")
