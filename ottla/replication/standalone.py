"""The metadata log of a broker without a cluster: an ordinary partition log of its own.

Each append is one record batch, so that a crash leaves all of a decision or nothing of it. When
the log has grown to several times what the image needs, the image is written as one batch that
begins with a snapshot mark, and what lies before it is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ottla.log.clock import Clock
from ottla.log.config import LogConfig
from ottla.log.disk import Disk
from ottla.log.partition_log import PartitionLog
from ottla.log.storage import Storage
from ottla.replication.metadata import (
    BrokerRegistered,
    ConfigSet,
    FeatureSet,
    MetadataImage,
    MetadataRecord,
    ProducerIdsTaken,
    TopicCreated,
)
from ottla.replication.records import decode_record, encode_record
from ottla.wire.batch import batches
from ottla.wire.records import Record, build_batch

TOPIC = "__ottla_metadata"
KEPT_FOR_EVER = LogConfig(retention_ms=-1, retention_bytes=-1)
SNAPSHOT = b'["Snapshot",'
"""How the mark of a snapshot begins; the image's offset follows, which never goes back."""
SNAPSHOT_AFTER_RECORDS = 20_000
"""Records behind the last snapshot that are always tolerated."""
READ_SIZE = 1 << 20
METADATA_SIZE_MAX = 1 << 30


class StandaloneStore:
    """MetadataStore on one PartitionLog."""

    def __init__(self, log: PartitionLog, disk: Disk, clock: Clock, cluster_id: str) -> None:
        self.log, self.disk, self.clock, self.cluster_id = log, disk, clock, cluster_id
        self.behind_snapshot = 0

    @classmethod
    def open(cls, storage: Storage, clock: Clock) -> StandaloneStore:
        """The store in the first log directory that is online. Raises StorageFailed."""
        log = storage.get_or_create(TOPIC, 0, None, KEPT_FOR_EVER)
        return cls(log, storage.disk, clock, storage.cluster_id)

    def load(self) -> MetadataImage:
        """Fold the log, from its last snapshot on."""
        image = MetadataImage.empty(self.cluster_id)
        self.behind_snapshot = 0
        for batch in self._batches():
            if batch[0].startswith(SNAPSHOT):
                image = MetadataImage.empty(self.cluster_id)
                image = image.apply([decode_record(value) for value in batch[1:]])
                image = replace(image, offset=int(batch[0].removeprefix(SNAPSHOT)[:-1]))
                self.behind_snapshot = 0
            else:
                image = image.apply([decode_record(value) for value in batch])
                self.behind_snapshot += len(batch)
        return image

    def _batches(self) -> Iterator[list[bytes]]:
        """The values of each batch, in the order of the log."""
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            data = self.log.read_bytes(offset, READ_SIZE)
            for batch in batches(data):
                offset = batch.next_offset
                yield [record.value or b"" for record in batch.records(METADATA_SIZE_MAX)]

    def append(self, records: Sequence[MetadataRecord], image: MetadataImage) -> None:
        """Write one batch and sync it; now and then a snapshot takes its place."""
        self.behind_snapshot += len(records)
        needed = 2 * len(image.topics) + len(image.configs)
        if self.behind_snapshot > SNAPSHOT_AFTER_RECORDS + 4 * needed:
            self._write_snapshot(image)
        else:
            self._write([encode_record(record) for record in records])

    def _write_snapshot(self, image: MetadataImage) -> None:
        """Begin a segment with the image; those before it are of no use once it is synced."""
        self.log.roll()
        mark = b"%b%d]" % (SNAPSHOT, image.offset)
        base = self._write([mark, *(encode_record(r) for r in snapshot_records(image))])
        self.behind_snapshot = 0
        self.log.delete_before(base)
        for path in self.log.remove_below_start():
            self.disk.unlink(path)

    def _write(self, values: list[bytes]) -> int:
        now = self.clock.now_ms()
        batch = build_batch(
            [Record(offset=n, timestamp=now, key=None, value=v) for n, v in enumerate(values)]
        )
        base: int = self.log.append_bytes(batch, 0)
        self.log.flush()
        return base

    def close(self) -> None:
        """Nothing is held open: the storage closes the log."""


def snapshot_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Records whose fold is `image`."""
    for broker in image.brokers.values():
        yield BrokerRegistered(broker)
    for topic in image.topics.values():
        yield TopicCreated(topic.name, topic.topic_id, topic.partitions)
    for (resource_type, resource_name), settings in image.configs.items():
        for name, value in settings.items():
            yield ConfigSet(resource_type, resource_name, name, value)
    for feature, level in image.features.items():
        yield FeatureSet(feature, level)
    yield ProducerIdsTaken(image.next_producer_id)
