"""The state in a KRaft controller's metadata log: topics, partitions, settings, next producer id.

The state comes from the newest snapshot (`<end offset>-<epoch>.checkpoint`), and from the log after
the snapshot's end offset. Records of a metadata transaction that was aborted, or
has not ended, are ignored (KIP-868).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ottla.tools.batch_reader import DamagedFile, read_batches
from ottla.tools.kraft_records import UnknownKraftRecord, decode_kraft_record
from ottla.wire.batch import BatchView
from ottla.wire.errors import MalformedMessage, ProtocolError

SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
SEGMENT = re.compile(r"(\d{20})\.log")
RESOURCE_TYPES = {2: "topic", 4: "broker", 16: "client-metrics", 32: "group"}
UNCHANGED = -2
"""The value of a PartitionChangeRecord's leader if the record does not change the leader."""


class UnreadableKraft(Exception):
    """The metadata log cannot be read to its end."""


@dataclass(slots=True)
class KraftPartition:
    """A partition as the controller knows it."""

    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]


@dataclass(slots=True)
class KraftTopic:
    """A topic as the controller knows it."""

    name: str
    topic_id: bytes
    partitions: dict[int, KraftPartition] = field(default_factory=dict)


@dataclass(slots=True)
class KraftImage:
    """The result of replaying a metadata log, as far as the import needs it."""

    topics: dict[bytes, KraftTopic] = field(default_factory=dict)
    configs: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    others: Counter[str] = field(default_factory=Counter)
    """The number of ignored records of each kind."""
    at: tuple[int, int] = (-1, 0)
    """The last batch that was read: its leader epoch, and the offset after it."""

    def apply(self, record: Any) -> None:
        """Applies one record."""
        kind = type(record).__name__
        apply = getattr(self, f"apply_{kind}", None)
        if apply is None:
            self.others[kind] += 1
        else:
            apply(record)

    def apply_TopicRecord(self, record: Any) -> None:
        self.topics[record.topic_id] = KraftTopic(record.name, record.topic_id)

    def apply_PartitionRecord(self, record: Any) -> None:
        self.topics[record.topic_id].partitions[record.partition_id] = KraftPartition(
            record.leader, record.leader_epoch, record.replicas, record.isr
        )

    def apply_PartitionChangeRecord(self, record: Any) -> None:
        partition = self.topics[record.topic_id].partitions[record.partition_id]
        if record.replicas is not None:
            partition.replicas = record.replicas
        if record.isr is not None:
            partition.isr = record.isr
        if record.leader != UNCHANGED:
            partition.leader = record.leader
            partition.leader_epoch += 1

    def apply_RemoveTopicRecord(self, record: Any) -> None:
        topic = self.topics.pop(record.topic_id)
        self.configs.pop(("topic", topic.name), None)

    def apply_ConfigRecord(self, record: Any) -> None:
        kind = RESOURCE_TYPES.get(record.resource_type)
        if kind is None:
            self.others["ConfigRecord"] += 1
            return
        settings = self.configs.setdefault((kind, record.resource_name), {})
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value

    def apply_ProducerIdsRecord(self, record: Any) -> None:
        self.next_producer_id = max(self.next_producer_id, record.next_producer_id)


def read_kraft_image(path: str) -> KraftImage:
    """The image of a `__cluster_metadata-0` directory. Raises UnreadableKraft, OSError."""
    names = sorted(os.listdir(path))
    image, start = KraftImage(), 0
    snapshots = [name for name in names if SNAPSHOT.fullmatch(name)]
    if snapshots:
        fold(image, f"{path}/{snapshots[-1]}", 0)
        start = int(snapshots[-1][:20])
    held: list[Any] | None = None
    for name in (name for name in names if SEGMENT.fullmatch(name)):
        held = fold(image, f"{path}/{name}", start, held)
    return image


def fold(
    image: KraftImage, path: str, start: int, held: list[Any] | None = None
) -> list[Any] | None:
    """Applies the records of one file from offset `start` on.

    `held` has the records of a transaction that an earlier file began and did not end; None without
    such a transaction. The result is passed as `held` with the next file.
    """
    try:
        for position, batch in read_batches(path):
            if not isinstance(batch, BatchView) or not batch.crc_holds():
                raise UnreadableKraft(f"{path} at byte {position}: the checksum does not match")
            image.at = max(image.at, (batch.leader_epoch, batch.next_offset))
            if batch.control or batch.next_offset <= start:
                continue
            for record in batch.records():
                if record.offset >= start:
                    held = fold_one(image, record.value or b"", held)
    except (DamagedFile, UnknownKraftRecord, MalformedMessage, ProtocolError, KeyError) as error:
        raise UnreadableKraft(f"{path}: {error}") from error
    return held


def fold_one(image: KraftImage, data: bytes, held: list[Any] | None) -> list[Any] | None:
    """Applies one record, inside or outside a transaction."""
    record, _ = decode_kraft_record(data)
    kind = type(record).__name__
    if kind == "BeginTransactionRecord":
        return []
    if kind in ("EndTransactionRecord", "AbortTransactionRecord"):
        for each in (held or []) if kind == "EndTransactionRecord" else []:
            image.apply(each)
        return None
    if held is not None:
        held.append(record)
        return held
    image.apply(record)
    return None
