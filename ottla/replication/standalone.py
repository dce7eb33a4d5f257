"""The metadata log of a standalone broker: an ordinary partition log of its own.

Each append is one record batch, so that after a crash the log has either all records of a decision
or none of them. When the log has several times as many records as the image needs, the image is
written as one batch. This batch begins with a snapshot mark. Then the log before it is deleted.

On a full disk, a decision that frees space may use the reserve of `log/storage/reserve`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ottla.log.partition.config import LogConfig
from ottla.log.partition.retention import remove_below_start
from ottla.log.storage.reserve import RESERVE_SIZE, Reserve, is_full
from ottla.replication.metadata import (
    BrokerGone,
    BrokerLeaving,
    BrokerRegistered,
    ConfigSet,
    ControllerElected,
    Decision,
    EpochsRaised,
    FeatureSet,
    MetadataImage,
    MetadataRecord,
    ProducerIdsTaken,
    RecentlyGone,
    TopicCreated,
    TopicDeleted,
)
from ottla.replication.principals import QuotaSet, RuleSet, ScramSet, TokenSet
from ottla.replication.records import UnreadableMetadata, decode_record, encode_record
from ottla.replication.store import Encoded
from ottla.wire.batch import batches
from ottla.wire.errors import ProtocolError, StorageFailed
from ottla.wire.records import Record, build_batch

if TYPE_CHECKING:
    from ottla.log.files.clock import Clock
    from ottla.log.files.disk import Disk
    from ottla.log.files.flush import FlushTask
    from ottla.log.partition.partition_log import PartitionLog
    from ottla.log.storage.log_directory import LogDirectory
    from ottla.log.storage.storage import Storage

log = logging.getLogger("ottla.metadata")

TOPIC = "__ottla_metadata"
KEPT_FOR_EVER = LogConfig(retention_ms=-1, retention_bytes=-1)
SNAPSHOT = b'["Snapshot",'
"""The first bytes of a snapshot. The offset of the image and `]` follow: the offset is the number
of records that led to the image, and counting continues from it."""
SNAPSHOT_AFTER_RECORDS = 20_000
"""No snapshot is written before this many records follow the last snapshot."""
READ_SIZE = 1 << 20
RESERVE_FLOORS = {
    TopicDeleted: 0,
    # A ConfigSet can free space too, by a shorter retention. A starting broker has to write
    # BrokerRegistered, EpochsRaised and FeatureSet before it serves clients. These four kinds may
    # use half of the reserve; the rest is kept for deletions.
    ConfigSet: RESERVE_SIZE // 2,
    BrokerRegistered: RESERVE_SIZE // 2,
    EpochsRaised: RESERVE_SIZE // 2,
    FeatureSet: RESERVE_SIZE // 2,
}
"""On a full disk: how many bytes of the reserve must remain after a record of this kind is written.
Kinds that are not listed must not use the reserve."""
METADATA_SIZE_MAX = 1 << 30


def raise_leader_epochs(image: MetadataImage) -> Decision[None]:
    """Begin a new leader epoch of every partition, as Kafka's controller does for a broker that
    returns. Unflushed records may be lost; clients notice that by the new epoch (KIP-320)."""
    return Decision([EpochsRaised()] if image.topics else (), None)


@dataclass(slots=True, eq=False, repr=False)
class StandaloneWrite:
    """One append that is being made durable."""

    store: StandaloneStore
    task: FlushTask | None
    base: int
    snapshot: int | None = None
    """The offset of a snapshot; the records before it are deleted once it is durable."""

    def run(self) -> None:
        """Sync the append. This makes only system calls, so it may run in any thread."""
        if self.task is not None:
            self.task.run()

    def give_up(self, error: Exception) -> None:
        """The records may or may not be on disk: the log accepts no further records."""
        if self.task is not None:
            self.task.error = self.task.error or OSError(f"the flush thread failed: {error!r}")
            with suppress(StorageFailed):
                self.store.log.end_flush(self.task)

    def finish(self) -> None:
        """Move the recovery point. Raises StorageFailed if the sync failed."""
        if self.task is not None:
            self.store.log.end_flush(self.task)
        if self.snapshot is not None:
            try:
                self.store.forget_before(self.snapshot)
            except (OSError, StorageFailed) as error:
                # The write has succeeded nevertheless. The next snapshot removes the old records.
                log.error("old records of the metadata log could not be removed (%s); the next"
                          " snapshot removes them", error)


class StandaloneStore:
    """MetadataStore on one PartitionLog."""

    def __init__(
        self, log: PartitionLog, disk: Disk, clock: Clock, cluster_id: str, reserve: Reserve
    ) -> None:
        self.log, self.disk, self.clock, self.cluster_id = log, disk, clock, cluster_id
        self.reserve = reserve
        self.behind_snapshot = 0
        """Records since the last snapshot, or since the last attempt to write one."""

    @classmethod
    def open(cls, storage: Storage, clock: Clock) -> StandaloneStore:
        """The store, in the log directory that has the metadata log, or in the one that `storage`
        chooses for a new log. Raises StorageFailed."""
        log = storage.get_or_create(TOPIC, 0, None, KEPT_FOR_EVER)
        reserve = storage.keep_reserve(storage.homes[TOPIC, 0])
        return cls(log, storage.disk, clock, storage.cluster_id, reserve)

    def load(self) -> MetadataImage:
        """Build the image from the log, beginning with its last snapshot."""
        try:
            # Unflushed records of a crashed broker take effect now. They must survive a power cut.
            self.log.flush()
        except StorageFailed as error:
            log.error("the metadata log could not be flushed: %s", error)
        image, self.behind_snapshot = image_of(self._batches(), self.cluster_id)
        return image

    def _batches(self) -> Iterator[list[bytes]]:
        """The values of each batch, in the order of the log."""
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            data = self.log.read_bytes(offset, READ_SIZE)
            for batch in batches(data):
                offset = batch.next_offset
                yield [record.value or b"" for record in batch.records(METADATA_SIZE_MAX)]

    def snapshot(self, records: int, image: MetadataImage) -> Iterator[MetadataRecord] | None:
        """The records of a snapshot of `image`, to be written instead of `records` new records;
        None if no snapshot is due."""
        needed = 2 * len(image.topics) + len(image.configs)
        needed += len(image.credentials) + len(image.quotas) + len(image.rules) + len(image.tokens)
        if self.behind_snapshot + records > SNAPSHOT_AFTER_RECORDS + 4 * needed:
            return snapshot_records(image)
        return None

    def begin(
        self,
        records: Sequence[MetadataRecord],
        image: MetadataImage,
        encoded: Encoded | None = None,
    ) -> StandaloneWrite:
        """Append one batch, which the returned write syncs. Now and then, a snapshot that includes
        the records is appended instead."""
        if encoded is None:
            snapshot = self.snapshot(len(records), image)
            encoded = Encoded(
                [encode_record(record) for record in records],
                None if snapshot is None else [encode_record(record) for record in snapshot],
            )
        self.behind_snapshot += len(records)
        if encoded.snapshot is not None:
            self.behind_snapshot = 0
            try:
                return self._begin_snapshot(image, encoded.snapshot)
            except StorageFailed as error:
                if not is_full(error):
                    raise
                log.error("the disk is full, so no snapshot of the metadata was written: %s", error)
        floor = min(RESERVE_FLOORS.get(type(record), RESERVE_SIZE) for record in records)
        return self._begin(encoded.records, floor)

    def _begin_snapshot(self, image: MetadataImage, encoded: list[bytes]) -> StandaloneWrite:
        # The snapshot has a segment of its own: once it is synced, earlier segments are not needed.
        self.log.roll()
        mark = b"%b%d]" % (SNAPSHOT, image.offset)
        write = self._begin([mark, *encoded], RESERVE_SIZE)
        write.snapshot = write.base
        return write

    def _begin(self, values: list[bytes], floor: int) -> StandaloneWrite:
        """Append one batch; on a full disk, use the reserve except for its last `floor` bytes."""
        while True:
            try:
                base = self._append(values)
                break
            except StorageFailed as error:
                if not (is_full(error) and self.reserve.give(floor)):
                    raise
        try:
            return StandaloneWrite(self, self.log.begin_flush(), base)
        except StorageFailed:
            # The caller gets an error, so the records must not take effect later. If they cannot be
            # cut off, the log fails, so that nothing follows them.
            with suppress(StorageFailed):
                self.log.truncate_to(base)
            raise

    def append(self, records: Sequence[MetadataRecord], image: MetadataImage) -> None:
        """Write and sync `records` at once, for callers who may block."""
        write = self.begin(records, image)
        write.run()
        write.finish()

    def _append(self, values: list[bytes]) -> int:
        now = self.clock.now_ms()
        batch = build_batch(
            [Record(offset=n, timestamp=now, key=None, value=v) for n, v in enumerate(values)]
        )
        return self.log.append_bytes(batch, 0)

    def forget_before(self, base: int) -> None:
        """Delete the log before `base`, where a durable snapshot begins."""
        assert base < self.log.recovery_point, "the snapshot at `base` is not durable"
        self.log.delete_before(base)
        for path in remove_below_start(self.log):
            self.disk.unlink(path)

    def close(self) -> None:
        """Nothing is held open: the storage closes the log."""


def image_of(log: Iterable[list[bytes]], cluster_id: str) -> tuple[MetadataImage, int]:
    """The image after all batches of the log, and how many records follow its last snapshot."""
    # Records before the snapshot are not checked. While their segments are being removed, the log
    # may begin anywhere, so that a record may refer to a record that is gone.
    last: list[list[bytes]] = []
    for batch in log:
        if batch[0].startswith(SNAPSHOT):
            last.clear()
        last.append(batch)
    image, behind = MetadataImage.empty(cluster_id), 0
    for batch in last:
        if batch[0].startswith(SNAPSHOT):
            image = image.apply([decode_record(value) for value in batch[1:]])
            image = replace(image, offset=int(batch[0].removeprefix(SNAPSHOT)[:-1]))
        else:
            image = image.apply([decode_record(value) for value in batch])
            behind += len(batch)
    return image, behind


def read_stopped(directory: LogDirectory) -> MetadataImage:
    """The image of a broker that was stopped cleanly, from the directory that has its metadata.

    This changes nothing on disk. Raises UnreadableMetadata if the log does not end where the clean
    stop ended it, or is damaged; raises OSError if it cannot be read.
    """
    path = directory.file(f"{TOPIC}-0")
    expected = directory.recovery_points.get((TOPIC, 0))
    names = sorted(name for name in directory.disk.listdir(path) if name.endswith(".log"))

    def values() -> Iterator[list[bytes]]:
        at = None
        for name in names:
            for batch in batches(directory.disk.read_bytes(f"{path}/{name}")):
                if at is not None and batch.base_offset != at:
                    raise UnreadableMetadata(f"{path}: record {at} is missing")
                at = batch.next_offset
                yield [record.value or b"" for record in batch.records(METADATA_SIZE_MAX)]
        if at is None or at != expected:
            raise UnreadableMetadata(
                f"{path} ends at record {at}, expected {expected}"
            )

    try:
        image, _ = image_of(values(), directory.known_ids()["cluster.id"])
    except ProtocolError as error:
        raise UnreadableMetadata(f"{path} is damaged: {error}") from error
    return image


def snapshot_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Records that build `image`."""
    if image.controller_epoch:
        yield ControllerElected(image.controller_id, image.controller_epoch)
    for broker in image.former.values():
        yield BrokerRegistered(broker)
        yield BrokerGone(broker.node_id, image.company.get(broker.node_id, ()))
    for broker in image.brokers.values():
        yield BrokerRegistered(broker)
    if image.recently_gone != {*image.former}:
        yield RecentlyGone(tuple(sorted(image.recently_gone)))
    for node_id in sorted(image.leaving):
        yield BrokerLeaving(node_id)
    raised = 0
    for topic in image.topics.values():
        # Topics are in the order of their creation, so `raised_at` never decreases.
        if topic.raised_at > raised:
            yield EpochsRaised(topic.raised_at - raised)
            raised = topic.raised_at
        yield TopicCreated(topic.name, topic.topic_id, topic.partitions)
    if image.raised > raised:
        yield EpochsRaised(image.raised - raised)
    for (resource_type, resource_name), settings in image.configs.items():
        for name, value in settings.items():
            yield ConfigSet(resource_type, resource_name, name, value)
    for feature, level in image.features.items():
        yield FeatureSet(feature, level)
    for (user, mechanism), credential in image.credentials.items():
        yield ScramSet(user, mechanism, credential)
    for entity, limits in image.quotas.items():
        for key, limit in limits.items():
            yield QuotaSet(entity, key, limit)
    for rule in image.rules:
        yield RuleSet(rule, True)
    for token_id, token in image.tokens.items():
        yield TokenSet(token_id, token)
    yield ProducerIdsTaken(image.next_producer_id)
    if image.adopting is not None:
        yield image.adopting
