"""Chooses the replica that an import adopts, and finds records that only other replicas have.

The import adopts the leader's log. If the given directories lack this log, the import prefers an
in-sync replica, then the log with the newest leader epoch, then the longest log. If the metadata is
older than the logs, only the leader epoch and the length decide. Two logs agree up to the first
offset at which their records have different leader epochs (KIP-101).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.log.files.checkpoints import Partition
from ottla.log.files.epochs import NO_EPOCH, LeaderEpochs
from ottla.tools.batch_reader import read_batches
from ottla.tools.kraft_image import KraftPartition

LEFT_OUT = "ottla-import-left-out"
"""The target's folder for records that other replicas have and the adopted log lacks."""
SEGMENT = re.compile(r"(\d{20})\.log")


@dataclass(slots=True)
class Adopted:
    """A replica that the import may adopt. If `caches_hold`, its indexes and other files that are
    derived from the log are valid."""

    key: Partition
    path: str
    node_id: int
    start_offset: int
    end_offset: int
    size: int
    caches_hold: bool
    recovery_point: int
    log_start: int
    cleaned: int
    epochs: LeaderEpochs
    producer_id_max: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Records that a replica has and the adopted log lacks."""

    replica: Adopted
    first: int

    def __str__(self) -> str:
        return (
            f"{self.replica.path} of node {self.replica.node_id}: offsets {self.first} to"
            f" {self.replica.end_offset - 1} are not in the log that is adopted"
        )


def choose(partition: KraftPartition, replicas: Sequence[Adopted]) -> Adopted:
    """The replica to adopt."""
    # A log with a leader epoch above the metadata's shows that the metadata is out of date.
    current = all(each.epochs.latest <= partition.leader_epoch for each in replicas)

    def rank(replica: Adopted) -> tuple[bool, bool, int, int]:
        return (
            current and replica.node_id == partition.leader,
            current and replica.node_id in partition.isr,
            replica.epochs.latest,
            replica.end_offset,
        )

    return max(replicas, key=rank)


def left_out(adopted: Adopted, replicas: Sequence[Adopted]) -> list[LeftOut]:
    """The records that other replicas have and the adopted log lacks."""
    leftovers = []
    for replica in replicas:
        first = parted_at(adopted, replica)
        if replica is not adopted and first < replica.end_offset:
            leftovers.append(LeftOut(replica, first))
    return leftovers


def parted_at(adopted: Adopted, other: Adopted) -> int:
    """The first offset at which `other` has a record that the adopted log lacks: there, the adopted
    log ends, or has a record of another leader epoch. Offsets before the adopted log's start are
    ignored. If the adopted log lacks nothing, returns the end of `other`."""
    start = max(adopted.start_offset, other.start_offset)
    end = min(adopted.end_offset, other.end_offset)
    begins = {offset for _, offset in (*adopted.epochs.entries, *other.epochs.entries)}
    for offset in sorted({start, *begins}):
        if start <= offset < end:
            mine, its = adopted.epochs.of_offset(offset), other.epochs.of_offset(offset)
            if mine != its and NO_EPOCH not in (mine, its):
                return offset
    return max(end, other.start_offset)


def keep_aside(part: LeftOut, target: str) -> str:
    """Copies a replica's batches, from the first left-out offset on, to a folder of the target.
    Returns the folder's path. Raises OSError."""
    replica = part.replica
    topic, index = replica.key
    folder = f"{target}/{LEFT_OUT}/{topic}-{index}.node-{replica.node_id}"
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for name in sorted(filter(SEGMENT.fullmatch, os.listdir(replica.path))):
        source = f"{replica.path}/{name}"
        batches = read_batches(source)
        beyond = ((at, batch) for at, batch in batches if batch.last_offset >= part.first)
        position, batch = next(beyond, (0, None))
        if batch is None:
            continue
        base = batch.base_offset
        with open(source, "rb") as reading, open(f"{folder}/{base:020d}.log", "wb") as writing:
            reading.seek(position)
            shutil.copyfileobj(reading, writing, 1 << 20)
            writing.flush()
            os.fsync(writing.fileno())
    return folder
