"""Reads a complete partition as a consumer does, with either isolation level."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.wire.batch import batches
from ottla.wire.errors import ErrorCode
from ottla.wire.legacy import read_message_set
from ottla.wire.messages import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from tests.simulation.model import ACKED, LIVE, identity
from tests.simulation.producers import AGAIN
from tests.simulation.session import Session
from tests.simulation.world import Violation

if TYPE_CHECKING:
    import random

    from tests.simulation.model import PartitionModel

EARLIEST, LATEST, LARGEST = -2, -1, -3
NEAR = 60
"""An aborted transaction that a fetch lists may begin at most this many offsets after the fetch's
last record: the offsets of a few batches."""


@dataclass(slots=True)
class Read:
    """One record as it was read. `control` is true for markers, which a consumer does not
    return."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    control: bool
    epoch: int


@dataclass
class Content:
    """A partition as one reader sees it."""

    start: int
    end: int
    records: list[Read] = field(default_factory=list)

    @property
    def data(self) -> list[Read]:
        return [read for read in self.records if not read.control]


class Missing(Exception):
    """The broker answers that the partition does not exist."""


async def ask_offset(
    session: Session, partition: PartitionModel, timestamp: int, isolation: int
) -> Any:
    """Send ListOffsets for one partition until the answer is final; returns the partition's part of
    the answer. Raises Missing."""
    made = ListOffsetsRequest.Topic
    while True:
        answer = await session.call(ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation,
            topics=[made(name=partition.topic.name, partitions=[
                made.Partition(partition_index=partition.index, timestamp=timestamp)
            ])],
        ), 8)
        part = answer.topics[0].partitions[0]
        code = ErrorCode(part.error_code)
        if code in AGAIN:
            await asyncio.sleep(0.1)
            continue
        if code != ErrorCode.NONE:
            raise Missing(code.name)
        return part


async def ask_epoch_end(session: Session, partition: PartitionModel, epoch: int) -> Any:
    """Send OffsetForLeaderEpoch for one partition; returns the partition's part of the answer."""
    made = OffsetForLeaderEpochRequest.Topic
    answer = await session.call(OffsetForLeaderEpochRequest(topics=[
        made(topic=partition.topic.name, partitions=[
            made.Partition(partition=partition.index, leader_epoch=epoch)
        ])
    ]), 4)
    return answer.topics[0].partitions[0]


async def fetch(
    session: Session, partition: PartitionModel, offset: int, isolation: int,
    chance: random.Random,
) -> Any:
    """Send one fetch; returns the partition's part of the answer. Raises Missing."""
    version = chance.choice((4, 9, 11, 12, 13, 16))
    topic, made = partition.topic, FetchRequest.Topic
    named = {"topic_id": topic.topic_id} if version >= 13 else {"topic": topic.name}
    answer = await session.call(FetchRequest(
        replica_id=-1, max_wait_ms=chance.choice((0, 10)), min_bytes=1, max_bytes=1 << 20,
        isolation_level=isolation,
        topics=[made(**named, partitions=[made.Partition(
            partition=partition.index, fetch_offset=offset,
            partition_max_bytes=chance.choice((1, 500, 5000, 1 << 20)),
        )])],
    ), version)
    if not answer.responses:
        raise Missing(ErrorCode(answer.error_code).name)
    return answer.responses[0].partitions[0]


async def read_as_of_old(
    session: Session, partition: PartitionModel, chance: random.Random
) -> None:
    """Fetch as clients older than Kafka 0.11 do. Check that the answer has only records that some
    client sent, at rising offsets."""
    version, made = chance.choice((0, 1, 2, 3)), FetchRequest.Topic
    known = [batch.base_offset for batch in partition.batches if batch.base_offset >= 0]
    offset = chance.choice([0, *known])
    answer = await session.call(FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20,
        topics=[made(topic=partition.topic.name, partitions=[made.Partition(
            partition=partition.index, fetch_offset=offset,
            partition_max_bytes=chance.choice((500, 1 << 20)),
        )])],
    ), version)
    last = -1
    for record in read_message_set(answer.responses[0].partitions[0].records or b""):
        if record.offset <= last:
            raise Violation(
                f"partition {partition!r}: an old client gets offset {record.offset} after offset"
                f" {last}"
            )
        last = record.offset
        if record.value is None or partition.topic.state != LIVE:
            continue
        found = partition.known(record.value)
        if found is None:
            raise Violation(
                f"partition {partition!r}: an old client gets a record that no client sent:"
                f" {record}"
            )
        batch, at = found
        if batch.fate == ACKED and batch.base_offset not in (-1, record.offset - at) and (
                batch.partition is partition):
            raise Violation(
                f"partition {partition!r}: an old client gets {record}, which was acknowledged at"
                f" offset {batch.base_offset + at}"
            )


async def content(
    session: Session, partition: PartitionModel, isolation: int, chance: random.Random
) -> Content:
    """All records from the log start to the end that the log had when this function was called."""
    start = (await ask_offset(session, partition, EARLIEST, isolation)).offset
    end = (await ask_offset(session, partition, LATEST, isolation)).offset
    found, offset, stalled = Content(start, end), start, 0
    while offset < end:
        part = await fetch(session, partition, offset, isolation, chance)
        code = ErrorCode(part.error_code)
        if code in AGAIN:
            await asyncio.sleep(0.1)
            continue
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # Retention has removed the records at this offset.
            start = (await ask_offset(session, partition, EARLIEST, isolation)).offset
            if start <= offset:
                raise Violation(
                    f"partition {partition!r}: a fetch from offset {offset} is answered"
                    f" OFFSET_OUT_OF_RANGE, though the log begins at {start} and ended at {end}"
                )
            found.start = offset = start
            found.records.clear()
            continue
        if code != ErrorCode.NONE:
            raise Missing(code.name)
        before = offset
        offset = take(found, part, offset, isolation, partition)
        stalled = stalled + 1 if offset == before else 0
        if stalled > 20:
            raise Violation(
                f"partition {partition!r}: fetches from offset {offset} get nothing, though the log"
                f" begins at {start} and ends at {end}; isolation level {isolation}"
            )
    return found


def take(found: Content, part: Any, offset: int, isolation: int, partition: Any) -> int:
    """Add the records of a fetch to `found`, without those that stock consumers filter out; returns
    the next offset."""
    aborted: set[int] = set()
    waiting = sorted(
        ((entry.first_offset, entry.producer_id) for entry in part.aborted_transactions or ()),
        reverse=True,
    )
    views = list(batches(part.records or b""))
    last = max((view.last_offset for view in views), default=offset)
    # As in Kafka, the answer lists aborted transactions up to the offset index's next entry after
    # the records. If the index has an entry for each batch, that entry is close to the last record.
    if partition.topic.indexed_whole and waiting and waiting[0][0] > last + NEAR:
        raise Violation(
            f"partition {partition!r}: a fetch with records up to offset {last} lists an aborted"
            f" transaction that begins at offset {waiting[0][0]}"
        )
    expected = offset
    for view in views:
        if not view.crc_holds():
            raise Violation(
                f"partition {partition!r}: the batch at offset {view.base_offset} has a wrong"
                " checksum"
            )
        if view.base_offset > expected and not partition.topic.compacted:
            raise Violation(
                f"partition {partition!r}: a fetch from offset {offset} leaves out the offsets"
                f" {expected} to {view.base_offset - 1}"
            )
        expected = view.next_offset
        while waiting and waiting[-1][0] <= view.last_offset:
            aborted.add(waiting.pop()[1])
        read = view.records()
        if view.control:
            # The type of a marker is unknown if compaction has emptied it.
            if read and int.from_bytes((read[0].key or b"")[2:4], "big") == 0:
                aborted.discard(view.producer_id)
        elif isolation and view.transactional and view.producer_id in aborted:
            offset = max(offset, view.next_offset)
            continue
        for record in read:
            if record.offset >= offset:
                found.records.append(Read(
                    record.offset, record.timestamp, record.key, identity(record),
                    view.control, view.leader_epoch,
                ))
        if view.next_offset <= offset and view.last_offset < offset - 1 and not found.records:
            continue
        offset = max(offset, view.next_offset)
    return offset
