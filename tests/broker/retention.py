"""One round of the broker's retention."""

from __future__ import annotations

import asyncio

from ottla.broker.threads.workers import Workers
from ottla.broker.upkeep.retention import Retention
from ottla.log.storage.storage import Storage
from ottla.replication.partition import Partition


async def one_round(partitions: list[Partition], storage: Storage) -> None:
    workers = Workers(asyncio.get_running_loop())
    await Retention(partitions, storage, workers, lambda *_: None).apply()
    workers.close()
