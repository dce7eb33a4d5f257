"""Runs the background scrub: reads in a thread, checks the bytes on the loop.

A slice is a megabyte, which takes the loop a fraction of a millisecond; between two of them it
waits as `ottla.log.scrub.bytes.per.second` requires.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla.broker.threads.slices import InThread
from ottla.log.checkpoints import Partition as PartitionKey
from ottla.log.recovery.rebuild import Damage
from ottla.log.storage import Storage

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext

log = logging.getLogger("ottla.scrub")

START_SECONDS = 30.0
"""The scrub starts this long after the broker."""


async def scrub_for_ever(
    broker: BrokerContext,
    storage: Storage,
    in_thread: InThread,
    start_seconds: float = START_SECONDS,
) -> None:
    """Scrub round after round until cancelled."""
    await asyncio.sleep(start_seconds)
    from ottla.log.scrub.round import Scrub

    def damaged(key: PartitionKey, damage: Damage) -> None:
        log.error("%s", damage)
        partition = broker.replicas.partition(*key)
        if partition is not None:
            partition.give_up()

    scrub = Scrub(
        storage,
        broker.clock,
        broker.config.ottla_log_scrub_bytes_per_second,
        broker.config.ottla_log_scrub_interval_ms,
        damaged,
    )
    steps = scrub.steps()
    step = next(steps)
    while True:
        failure = None
        if isinstance(step, float):
            await asyncio.sleep(step)
        else:
            try:
                await in_thread(step.run)
            except OSError as error:
                log.error("the scrub leaves a segment to its next round: %s", error)
                failure = error
        step = next(steps) if failure is None else steps.throw(failure)
