"""Compares what clients read with what the broker promised, and checks the broker's objects and its
disk. Each check raises a Violation if a promise is broken."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.wire.marks import reached
from ottla.wire.messages import DescribeConfigsRequest, ListGroupsRequest, ListTransactionsRequest
from tests.log.invariants import check_log
from tests.simulation.applied import applied, check_applied
from tests.simulation.guarded import NAMES
from tests.simulation.logs import check_log_transactions
from tests.simulation.model import (
    ABORTED,
    ACKED,
    COMMITTED,
    RETENTION_MS,
    TOMBSTONE,
    UNKNOWN,
    Batch,
    PartitionModel,
    TopicModel,
)
from tests.simulation.options import SHAKEN
from tests.simulation.reading import (
    EARLIEST,
    LARGEST,
    Content,
    Read,
    ask_epoch_end,
    ask_offset,
    content,
)
from tests.simulation.replay import check_image, check_producers
from tests.simulation.session import Session
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from ottla.replication.partition import Partition
    from tests.simulation.story import Story


SET_OF_TOPIC = 1
"""The source that DescribeConfigs names for a setting that was set on the topic itself."""
DEAR_SHARE = 0.02
"""The share of the checks of live objects that also compare the objects with logs. It is small,
because reading logs takes long."""
ABORTED_TRIES = 25
"""How many times to check, every 0.2 s, whether all transactions have been aborted."""


async def check_partition(story: Story, session: Session, partition: PartitionModel) -> None:
    """Check everything about one partition, while no client writes."""
    everything = await content(session, partition, 0, story.random)
    committed = await content(session, partition, 1, story.random)
    while partition.topic.compacted:
        # If the log was compacted between the two readings, only `committed` lacks old records.
        again = await content(session, partition, 0, story.random)
        if again.records == everything.records:
            break
        everything, committed = again, await content(session, partition, 1, story.random)
    check_soundness(partition, everything)
    check_nothing_is_lost(story, partition, everything)
    check_isolation(partition, everything, committed)
    await check_times(story, session, partition, everything)
    await check_epochs(session, partition, everything)
    if not story.options.thorough:
        return
    again, before = await content(session, partition, 0, story.random), everything.records
    if partition.topic.compacted:
        # The log may be compacted between these two readings, too.
        left = {read.offset for read in again.records}
        before = [read for read in before if read.offset in left]
    if again.start == everything.start and again.records != before:
        raise Violation(
            f"a second reading of partition {partition!r} gives other records than the first"
        )


async def check_settings(session: Session, topic: TopicModel) -> None:
    """Check that a topic has the settings that were set on it, and none that were set on an earlier
    topic of the same name."""
    made = DescribeConfigsRequest
    answer = await session.call(made(resources=[
        made.Resource(resource_type=2, resource_name=topic.name, configuration_keys=None)
    ]), 4)
    told = {
        each.name: each.value if each.config_source == SET_OF_TOPIC else "default"
        for each in answer.results[0].configs
    }
    for name, value in told.items():
        possible = topic.settings.get(name, {"default"})
        if value not in possible:
            raise Violation(
                f"setting {name} of topic {topic.name}({topic.number}) is {value}, must be one of"
                f" {sorted(possible)}"
            )


async def check_groups(session: Session) -> None:
    """Check that no group has members, now that the sessions of all members have ended."""
    answer = await session.call(ListGroupsRequest(), 5)
    for group in answer.groups:
        if group.group_state not in ("Empty", "Dead"):
            raise Violation(
                f"group {group.group_id} is {group.group_state}, though the sessions of all its"
                " members have ended"
            )


async def check_transactions(session: Session) -> None:
    """Check that no coordinator has an open transaction. The abort of a transaction that has just
    timed out may take a few seconds."""
    states = ["Ongoing", "PrepareCommit", "PrepareAbort"]
    for _ in range(ABORTED_TRIES):
        answer = await session.call(ListTransactionsRequest(state_filters=states), 1)
        left = answer.transaction_states
        if not left:
            return
        if any(each.transaction_state != "PrepareAbort" for each in left):
            break
        await asyncio.sleep(0.2)
    raise Violation(f"transactions have not ended: {left}")


def check_soundness(partition: PartitionModel, read: Content) -> None:
    """Check that a partition has only records that clients sent, each of them once, in order, at
    the acknowledged offset, and with the right key and timestamp."""
    last = -1
    places: dict[Batch, int] = {}
    newest: dict[str, tuple[int, int]] = {}
    seen: set[bytes | None] = set()
    for record in read.records:
        if record.offset <= last:
            raise Violation(
                f"partition {partition!r}: a reader gets offset {record.offset} after offset {last}"
            )
        last = record.offset
        if record.control:
            continue
        before_it = partition.places.setdefault((record.epoch, record.offset), record.value or b"")
        if before_it != record.value:
            raise Violation(
                f"partition {partition!r} had record {before_it!r:.12} at offset {record.offset} of"
                f" epoch {record.epoch}, and has {record.value!r:.12} there now: no reader can"
                " notice this"
            )
        known = partition.known(record.value)
        if known is None:
            raise Violation(
                f"partition {partition!r} has a record at offset {record.offset} that no client"
                f" sent: {record}"
            )
        batch, at = known
        if record.value in seen:
            raise Violation(
                f"partition {partition!r} has record {record.value!r} a second time, at offset"
                f" {record.offset}"
            )
        seen.add(record.value)
        if batch.partition is not partition:
            continue
        base = places.setdefault(batch, record.offset - at)
        if base != record.offset - at:
            raise Violation(
                f"partition {partition!r}: record {at} of the batch at offset {base} is at offset"
                f" {record.offset}"
            )
        if batch.fate == ACKED and batch.base_offset not in (-1, base):
            raise Violation(
                f"partition {partition!r}: record {record.value!r:.12} was acknowledged at offset"
                f" {batch.base_offset + at}, but is at offset {record.offset}"
            )
        if record.key != batch.keys[at] or not is_timely(batch, at, record.timestamp):
            raise Violation(
                f"partition {partition!r}: the record at offset {record.offset} has a wrong key or"
                " a wrong timestamp"
            )
        if batch.idempotent:
            before = newest.get(batch.producer, (-1, -1))
            if (batch.number, at) <= before:
                raise Violation(
                    f"partition {partition!r}: the record of producer {batch.producer!r} at offset"
                    f" {last} is out of order"
                )
            newest[batch.producer] = batch.number, at


def is_timely(batch: Batch, at: int, timestamp: int) -> bool:
    """Whether a record may have this timestamp: the producer's, or the time of the append."""
    if timestamp == batch.timestamps[at]:
        return True
    return batch.partition.topic.append_time and batch.appended_ms in (-1, timestamp)


def aged(batch: Batch, at: int, now_ms: int) -> bool:
    """Whether retention by time may have removed a record."""
    topic = batch.partition.topic
    stamp = batch.timestamps[at]
    if topic.append_time:
        stamp = min(stamp, batch.appended_ms)
    return stamp + topic.retention_ms_least <= now_ms


def check_nothing_is_lost(story: Story, partition: PartitionModel, read: Content) -> None:
    """Check that acknowledged records are there, unless DeleteRecords, retention or compaction may
    have removed them."""
    topic, now_ms = partition.topic, story.model.wall_ms_most
    if read.start < partition.delete_acked:
        raise Violation(
            f"partition {partition!r} begins at offset {read.start}, but DeleteRecords was answered"
            f" with log start {partition.delete_acked}"
        )
    there = {record.offset: record for record in read.records}
    if topic.compacted:
        check_tombstones(partition, read, there)
    newest_by_key = {record.key: record.offset for record in read.data}
    for batch in partition.batches:
        if batch.fate != ACKED or batch.base_offset < 0 or batch.lost_ok:
            continue
        for at, value in enumerate(batch.values):
            offset = batch.base_offset + at
            found = there.get(offset)
            if found is not None and found.value == value:
                continue
            if found is not None:
                raise Violation(
                    f"partition {partition!r} has record {found.value!r:.12} at offset {offset}"
                    f" instead of {value!r:.12}, which producer {batch.producer!r} wrote with"
                    f" acks={batch.acks}"
                )
            if offset < partition.deleted_below:
                continue
            by_size = topic.retention_bytes_least >= 0
            if offset < read.start and (by_size or aged(batch, at, now_ms)):
                continue
            if topic.compacted:
                if newest_by_key.get(batch.keys[at], -1) > offset or hidden(batch):
                    continue
                if value.startswith(TOMBSTONE) and topic.tombstones_go:
                    continue
                if newer_was_dropped(partition, batch.keys[at], offset):
                    continue
                if newer_has_aged(partition, batch.keys[at], offset, read.start, now_ms):
                    continue
            raise Violation(
                f"partition {partition!r}: acknowledged record {value[:12]!r} is missing at offset"
                f" {offset}; acks={batch.acks}, the log begins at {read.start} and ends at"
                f" {read.end}"
            )


def hidden(batch: Batch) -> bool:
    """Whether read_committed readers may not see a batch, so that compaction may drop it."""
    return batch.transaction is not None and batch.transaction.fate != COMMITTED


def undecided(batch: Batch) -> bool:
    """Whether a batch belongs to a transaction of unknown outcome. If the transaction was aborted,
    compaction must keep older records of the batch's keys. If it was committed, compaction may
    remove these older records."""
    return batch.transaction is not None and batch.transaction.fate not in (COMMITTED, ABORTED)


def check_tombstones(partition: PartitionModel, read: Content, there: dict[int, Read]) -> None:
    """Check that a tombstone is removed only after the records that it deletes."""
    oldest: dict[bytes | None, int] = {}
    for record in read.data:
        if not hidden(_known(partition, record)[0]):
            oldest.setdefault(record.key, record.offset)
    for batch in partition.batches:
        if batch.fate != ACKED or batch.base_offset < 0 or batch.lost_ok or batch.transaction:
            continue
        for at, value in enumerate(batch.values):
            offset = batch.base_offset + at
            if not value.startswith(TOMBSTONE) or offset in there or offset < read.start:
                continue
            if oldest.get(batch.keys[at], offset) < offset:
                raise Violation(
                    f"partition {partition!r}: the tombstone of key {batch.keys[at]!r} at offset"
                    f" {offset} is gone, but an older record of this key is at offset"
                    f" {oldest[batch.keys[at]]}"
                )


def newer_was_dropped(partition: PartitionModel, key: bytes | None, offset: int) -> bool:
    """Whether a newer record of the key may have been removed, or may never have counted: if it was
    a tombstone; if a power cut or DeleteRecords may have removed it; or if it is unknown whether
    its transaction was committed, or whether it was written at all."""
    if partition.topic.tombstones_go and any(
        key == each and value.startswith(TOMBSTONE) and batch.base_offset + at > offset
        for batch in partition.batches if batch.base_offset >= 0
        for at, (each, value) in enumerate(zip(batch.keys, batch.values, strict=True))
    ):
        return True
    return any(
        key in batch.keys and batch.base_offset > offset
        and (batch.lost_ok or batch.base_offset < partition.deleted_below or undecided(batch))
        for batch in partition.batches
    ) or any(key in batch.keys and batch.fate == UNKNOWN for batch in partition.batches)


def newer_has_aged(
    partition: PartitionModel, key: bytes | None, offset: int, start: int, now_ms: int
) -> bool:
    """Whether retention by time may have removed a newer record of the key. With `compact,delete`
    this happens after the wall clock went back: the newer record then has the older timestamp."""
    return any(
        key == each and offset < batch.base_offset + at < start and aged(batch, at, now_ms)
        for batch in partition.batches if batch.base_offset >= 0
        for at, each in enumerate(batch.keys)
    )


def check_isolation(partition: PartitionModel, every: Content, committed: Content) -> None:
    """Check that read_committed readers get all committed records and no aborted record. If the
    outcome of a transaction is unknown, they must get all of its records or none. No transaction
    may still be open."""
    if committed.end != every.end:
        raise Violation(
            f"partition {partition!r}: a transaction has not ended: the last stable offset is"
            f" {committed.end}, the log end {every.end}"
        )
    visible = {record.value for record in committed.data}
    for record in every.data:
        batch, _ = _known(partition, record)
        transaction = batch.transaction
        shown = record.value in visible
        if record.offset < committed.start:
            continue
        if transaction is None or transaction.fate == COMMITTED:
            if not shown:
                raise Violation(
                    f"partition {partition!r}: read_committed consumers do not get record"
                    f" {record.value!r} at offset {record.offset}"
                )
        elif transaction.fate != UNKNOWN and shown:
            raise Violation(
                f"partition {partition!r}: read_committed consumers get record {record.value!r} of"
                " an aborted transaction"
            )
        elif transaction.fate == UNKNOWN:
            transaction.__dict__.setdefault("shown", set()).add(shown)
            if len(transaction.__dict__["shown"]) > 1:
                raise Violation(
                    f"of transaction {transaction.name} read_committed consumers get some records,"
                    " but not all"
                )
    extra = visible - {record.value for record in every.data}
    if extra and committed.start >= every.start:
        raise Violation(
            f"partition {partition!r}: read_committed consumers get records that others do not get:"
            f" {extra}"
        )


def _known(partition: PartitionModel, record: Read) -> tuple[Batch, int]:
    found = partition.known(record.value)
    assert found is not None
    return found


async def check_times(
    story: Story, session: Session, partition: PartitionModel, read: Content
) -> None:
    """Check that ListOffsets by time finds the first record that is not older than the time. A
    difference is allowed if retention or compaction has removed records meanwhile."""
    if not read.records:
        return

    async def came_between() -> bool:
        if (await ask_offset(session, partition, EARLIEST, 0)).offset > read.start:
            return True
        if not partition.topic.compacted:
            return False
        return (await content(session, partition, 0, story.random)).records != read.records

    times = [record.timestamp for record in read.records]
    chosen = {max(times), max(times) + 1, min(times)}
    chosen |= {story.random.choice(times) + story.random.choice((0, 1)) for _ in range(3)}
    for time in sorted(chosen):
        wanted = next((record for record in read.records if record.timestamp >= time), None)
        part = await ask_offset(session, partition, time, 0)
        if part.offset != (wanted.offset if wanted else -1):
            if await came_between():
                return
            raise Violation(
                f"partition {partition!r}: ListOffsets for time {time} gives offset {part.offset},"
                f" the first record that is not older is {wanted}; the log begins at {read.start}"
                f" and ends at {read.end}"
            )
    part = await ask_offset(session, partition, LARGEST, 0)
    if part.timestamp != max(times) and not await came_between():
        raise Violation(
            f"partition {partition!r}: ListOffsets says that the largest time is {part.timestamp},"
            f" but it is {max(times)}"
        )


async def check_epochs(session: Session, partition: PartitionModel, read: Content) -> None:
    """Check the answers to OffsetForLeaderEpoch: an epoch ends after its last record, and not after
    the first record of the next epoch."""
    epochs = sorted({record.epoch for record in read.records})
    firsts = [first_of(read.records, epoch) for epoch in epochs]
    if firsts != sorted(firsts):
        raise Violation(
            f"partition {partition!r}: leader epochs are out of order: {epochs} begin at the"
            f" offsets {firsts}"
        )
    for at, epoch in enumerate(epochs):
        part = await ask_epoch_end(session, partition, epoch)
        last = [record.offset for record in read.records if record.epoch == epoch][-1]
        most = firsts[at + 1] if at + 1 < len(epochs) else read.end
        if part.leader_epoch != epoch or not last < part.end_offset <= most:
            raise Violation(
                f"partition {partition!r}: OffsetForLeaderEpoch of epoch {epoch} says that epoch"
                f" {part.leader_epoch} ends at offset {part.end_offset}; the records of epoch"
                f" {epoch} are at {firsts[at]} to {last}, so it must end at {last + 1} to {most}"
            )


def first_of(records: list[Read], epoch: int) -> int:
    return next(record.offset for record in records if record.epoch == epoch)


def check_live(story: Story) -> None:
    """Check invariants of the broker's own objects."""
    server = story.world.server
    if server is None or not story.world.up:
        return
    image = applied(server)
    if image is not None and image is not story.followed and story.world.excused_end is None:
        story.followed = image
        check_applied(server, image)
    if story.dear.random() < DEAR_SHARE:
        check_image(server)
        every = [*server.replicas]
        if every:
            chosen = story.dear.choice(every)
            check_producers(chosen)
            check_log_transactions(chosen)
    for partition in server.replicas:
        log = partition.log
        if log.offline is not None:
            continue
        try:
            check_log(log)
        except AssertionError as wrong:
            raise Violation(f"partition {partition!r}: {wrong}") from wrong
        start, end, water = log.log_start_offset, log.log_end_offset, partition.high_watermark
        stable = partition.last_stable_offset()
        if not (start <= stable <= water <= end or start > water):
            raise Violation(
                f"partition {partition!r}: these offsets do not ascend: log start {start}, last"
                f" stable offset {stable}, high watermark {water}, log end {end}"
            )
        key = partition.topic_id, partition.index
        incarnation, water_before, start_before = story.waters.get(key, (0, -1, -1))
        if incarnation == story.model.incarnation:
            if water < water_before:
                raise Violation(
                    f"partition {partition!r}: the high watermark went back from {water_before} to"
                    f" {water}"
                )
            if start > start_before:
                check_size_left(story, partition)
        story.waters[key] = story.model.incarnation, water, start


def check_forgotten(story: Story) -> None:
    """Check that no group has an offset of a topic that was deleted while this process served. Runs
    with disk faults are left out: if the log refuses the removal of an offset, the broker tries
    again only after minutes."""
    if SHAKEN & {*story.options.faults}:
        return
    server, now = story.world.server, story.model.incarnation
    gone = {topic.topic_id: topic for topic in story.model.topics if topic.gone_in == now}
    if server is None or "groups" not in vars(server.coordinators):
        return
    for shard in server.coordinators.groups.runtime.shards():
        for group_id in shard.offsets.all_groups():
            for name, index in shard.offsets.indexes_of(group_id):
                for value in shard.offsets.values(group_id, name, index):
                    if value.topic_id in gone:
                        raise Violation(
                            f"group {group_id!r} has an offset of the deleted partition"
                            f" {gone[value.topic_id].partitions[0]!r}"
                        )


def check_size_left(story: Story, partition: Partition) -> None:
    """Check that retention by size has not removed too much. Partitions in which something else may
    have moved the log start are left out."""
    topic = story.model.by_id.get(partition.topic_id)
    if topic is None or topic.compacted or topic.retention_ms_least < RETENTION_MS:
        return
    if partition.log.log_start_offset <= topic.partitions[partition.index].deleted_below:
        return
    reached("retention by size alone moved a log start")
    if partition.log.size_bytes < topic.retention_bytes_least:
        raise Violation(
            f"partition {partition!r}: retention left {partition.log.size_bytes} bytes, though"
            f" retention.bytes was {topic.retention_bytes_least} or more"
        )


def check_disk(story: Story) -> None:
    """Check that the files of deleted topics and segments are gone from the disk."""
    live = {
        f"{partition.topic.name}-{partition.index}"
        for topic in story.model.live() for partition in topic.partitions
    }
    disk = story.world.disk
    for directory in story.world.options.directories:
        for name in disk.subdirectories(directory):
            if name.startswith(("__", *NAMES)) or name.endswith("-stray") or name in live:
                continue
            raise Violation(
                f"the disk has the directory {directory}/{name}, which belongs to no existing"
                " partition"
            )
    for name in disk.names:
        if name.endswith((".deleted", ".cleaned", ".swap")) and "-stray/" not in name:
            raise Violation(f"the disk has the file {name}, which the broker has never deleted")


