"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeLogDirs, DescribeProducers."""

from __future__ import annotations

from compat_tests.answers.conversation import Talk, batch
from compat_tests.answers.scenes.fetching import filled
from compat_tests.answers.variants import Body
from compat_tests.answers.versions import COMMON_VERSIONS
from ottla.wire.apis import ApiKey


def list_offsets(talk: Talk) -> None:
    """ListOffsets with every special timestamp, other timestamps, and both isolation levels."""
    topic = filled(talk, 2)

    def make() -> Body:
        partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1,
                     "max_num_offsets": 1}
        return {
            "replica_id": -1, "isolation_level": 0, "timeout_ms": 1000,
            "topics": [{"name": topic, "partitions": [partition, partition
                                                      | {"partition_index": 1}]}],
        }  # fmt: skip

    talk.explore("ListOffsets", make, skip=("timeout_ms",), stride=2)
    for version in COMMON_VERSIONS[ApiKey.LIST_OFFSETS]:
        for timestamp in (*range(-9, 1), 1_599_999_999_999, 1_600_000_000_000, 1_600_000_000_001,
                          1_600_000_000_002, 1 << 62):
            for level in (0, 1):
                body = make() | {"isolation_level": level}
                body["topics"][0]["partitions"][0]["timestamp"] = timestamp
                talk.ask("ListOffsets", version, body)
    talk.topic("empty")


def leader_epochs(talk: Talk) -> None:
    """OffsetForLeaderEpoch, with each field wrong in turn."""
    topic = filled(talk, 2)

    def make() -> Body:
        partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
        other = partition | {"partition": 1}
        return {"replica_id": -1, "topics": [{"topic": topic, "partitions": [partition, other]}]}

    talk.explore("OffsetForLeaderEpoch", make, stride=1)


def delete_records(talk: Talk) -> None:
    """Moves the start of logs, also of logs whose records must not be deleted."""
    topic = filled(talk, 3)
    compacted = talk.topic("compacted", 1, cleanup_policy="compact")
    both = talk.topic("both", 1, cleanup_policy="compact,delete")
    names = (topic, compacted, both, "__consumer_offsets", "nobody")

    def make() -> Body:
        partitions = [{"partition_index": index, "offset": 1} for index in (0, 1)]
        return {"topics": [{"name": topic, "partitions": partitions}], "timeout_ms": 5000}

    talk.explore("DeleteRecords", make, skip=("timeout_ms",), stride=1)
    for version in COMMON_VERSIONS[ApiKey.DELETE_RECORDS]:
        for offset in (-2, -1, 0, 3, 8, 9):
            for name in names:
                partitions = [{"partition_index": 2 if name == topic else 0, "offset": offset}]
                talk.ask("DeleteRecords", version, {
                    "topics": [{"name": name, "partitions": partitions}], "timeout_ms": 5000,
                })  # fmt: skip


def describe_producers(talk: Talk) -> None:
    """DescribeProducers, with each field wrong in turn."""
    topic = talk.topic("t", 2)
    producer_id, epoch = talk.producer()
    talk.produce(topic, batch("a", "b", producer_id=producer_id, producer_epoch=epoch,
                              base_sequence=0))
    talk.explore("DescribeProducers", lambda: {
        "topics": [{"name": topic, "partition_indexes": [0, 1]}],
    })  # fmt: skip


def log_directories(talk: Talk) -> None:
    """DescribeLogDirs, and AlterReplicaLogDirs to a missing directory."""
    topic = filled(talk, 2)
    talk.explore("DescribeLogDirs", lambda: {
        "topics": [{"topic": topic, "partitions": [0, 1]}],
    }, skip=("topics",))  # fmt: skip
    for version in COMMON_VERSIONS[ApiKey.DESCRIBE_LOG_DIRS]:
        for topics in (
            [], [{"topic": topic, "partitions": []}], [{"topic": topic, "partitions": [0, 0]}],
            [{"topic": "nobody", "partitions": [0]}], [{"topic": topic, "partitions": [0, 9]}],
            [{"topic": topic, "partitions": [0]}, {"topic": topic, "partitions": [1]}],
        ):
            talk.ask("DescribeLogDirs", version, {"topics": topics})
    talk.explore("AlterReplicaLogDirs", lambda: {
        "dirs": [{"path": "/no/such/directory", "topics": [{"name": topic, "partitions": [0, 1]}]}],
    }, stride=1)  # fmt: skip


SCENES = (list_offsets, leader_epochs, delete_records, describe_producers, log_directories)
