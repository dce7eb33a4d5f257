"""A log directory as a stopped Apache Kafka with KRaft leaves it, for the tests of the import."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ottla.log.files.names import partition_metadata
from ottla.tools.kraft_records import kraft_classes
from ottla.wire.messages import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.wire.records import Record, build_batch
from ottla.wire.structs import Message
from tests.tools.logs import NOW_MS, open_log, some

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
NODE = 3
TOPICS = {"t": b"t" * 16, "table": b"c" * 16}


def frame(record: Message) -> Record:
    """Frames a metadata record. Its type and version are varints, of one byte each here."""
    version = type(record).VERSIONS[0]
    (kind,) = (number for number, each in kraft_classes().items() if each is type(record))
    return Record(timestamp=NOW_MS, value=bytes([1, kind, version]) + record.encode(version))


def partition(topic: bytes, index: int, leader_epoch: int = 4) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index, topic_id=topic, replicas=[NODE], isr=[NODE], leader=NODE,
        leader_epoch=leader_epoch,
    )  # fmt: skip


def usual_records() -> list[Message]:
    """Topic `t` with two partitions, compacted topic `table`, a deleted topic, and a topic of an
    aborted metadata transaction."""
    gone = b"g" * 16
    return [
        TopicRecord(name="t", topic_id=TOPICS["t"]),
        partition(TOPICS["t"], 0),
        partition(TOPICS["t"], 1),
        ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="-1"),
        ConfigRecord(resource_type=2, resource_name="t", name="of.no.use", value="x"),
        ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value="5"),
        TopicRecord(name="gone", topic_id=gone),
        partition(gone, 0),
        ConfigRecord(resource_type=2, resource_name="gone", name="retention.ms", value="7"),
        RemoveTopicRecord(topic_id=gone),
        BeginTransactionRecord(),
        TopicRecord(name="never", topic_id=b"n" * 16),
        AbortTransactionRecord(),
        BeginTransactionRecord(),
        TopicRecord(name="table", topic_id=TOPICS["table"]),
        partition(TOPICS["table"], 0),
        EndTransactionRecord(),
        ConfigRecord(resource_type=2, resource_name="table", name="cleanup.policy",
                     value="compact"),
        PartitionChangeRecord(topic_id=TOPICS["t"], partition_id=1, leader=NODE),
        ProducerIdsRecord(next_producer_id=5000),
    ]  # fmt: skip


def write_metadata(path: Path, records: Sequence[Message]) -> None:
    """Write the controller's log, with one record in each batch."""
    log = open_log(path, "__cluster_metadata-0")
    for record in records:
        log.append_bytes(build_batch([frame(record)]), 1)
    log.close()


def write_kafka(path: Path, clean: bool = True) -> Path:
    """Write the directory. Each partition has two segments; the first record of t-0 was deleted."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "meta.properties").write_text(
        f"#\nversion=1\ncluster.id={CLUSTER}\nnode.id={NODE}\ndirectory.id=x\n"
    )
    (path / ".lock").touch()
    write_metadata(path, usual_records())
    for name, index, topic_id in (
        ("t", 0, TOPICS["t"]), ("t", 1, TOPICS["t"]), ("table", 0, TOPICS["table"]),
        ("gone", 0, b"g" * 16),
    ):  # fmt: skip
        log = open_log(path, f"{name}-{index}")
        log.append_bytes(some(b"one", producer_id=7, epoch=0, sequence=0), 3)
        log.append_bytes(some(b"two", producer_id=7, epoch=0, sequence=1), 4)
        log.roll()
        log.append_bytes(some(b"three", producer_id=7, epoch=0, sequence=2), 4)
        log.close()
        (path / f"{name}-{index}" / "partition.metadata").write_bytes(partition_metadata(topic_id))
    offsets = "0\n3\nt 0 3\nt 1 3\ntable 0 3\n"
    (path / "recovery-point-offset-checkpoint").write_text(offsets if clean else "0\n0\n")
    (path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 1\n")
    (path / "cleaner-offset-checkpoint").write_text("0\n1\ntable 0 2\n")
    if clean:
        (path / ".kafka_cleanshutdown").touch()
    return path


def content(path: Path) -> dict[str, bytes]:
    """Returns the contents of every file below a directory, by path."""
    return {
        str(each.relative_to(path)): each.read_bytes()
        for each in sorted(path.rglob("*")) if each.is_file()
    }  # fmt: skip
