"""Checkpoints of a broker that serves: gathered in slices on the loop, written by a thread."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.slices import InThread, in_slices
from ottla.log.checkpoints import Partition as PartitionKey
from ottla.log.storage import CheckpointTask, Storage


async def write_checkpoint(
    storage: Storage,
    in_thread: InThread,
    high_watermarks: Iterable[tuple[PartitionKey, int]] = (),
) -> None:
    """Write the checkpoint files of every directory. Raises StorageFailed, as `end_checkpoint`."""
    task = CheckpointTask(storage.disk)
    await in_slices(storage.checkpoint_steps(task, high_watermarks))
    await in_thread(task.run)
    storage.end_checkpoint(task)
