"""Coordinators that take long to load: for up to two seconds, requests of clients, transaction
markers and deletions reach a shard that is not loaded yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from ottla.broker.coordination.log_coordinator import LogCoordinator
from ottla.replication.partition import Partition

SECONDS = (0.0, 0.01, 0.1, 1.0)


def slow_down(seed: int, put: Callable[[Any, str, Any], None]) -> None:
    """Have each load pause before and after it reads the log."""
    chance = Random(f"slow loads {seed}")
    read_log, committed = LogCoordinator.read_log, LogCoordinator.until_committed

    async def read_late(self: Any, partition: Partition, shard: Any) -> None:
        await asyncio.sleep(chance.choice(SECONDS))
        await read_log(self, partition, shard)

    async def commit_late(self: Any, partition: Partition) -> None:
        await asyncio.sleep(chance.choice(SECONDS))
        await committed(self, partition)

    put(LogCoordinator, "read_log", read_late)
    put(LogCoordinator, "until_committed", commit_late)
