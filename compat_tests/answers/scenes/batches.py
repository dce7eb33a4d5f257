"""Produce: topics and partitions, invalid batches, and sequences of idempotent producers."""

from __future__ import annotations

import struct
from typing import Any

from compat_tests.answers.conversation import Talk, batch
from compat_tests.answers.variants import Body
from compat_tests.answers.versions import COMMON_VERSIONS
from ottla.wire.apis import ApiKey
from ottla.wire.checksum import crc32c_of
from ottla.wire.records import Record, build_batch, build_marker

VERSIONS = COMMON_VERSIONS[ApiKey.PRODUCE]
BEFORE_IDS = range(VERSIONS.start, 13)


def produce_places(talk: Talk) -> None:
    """Existing, missing and repeated topics and partitions, with all sorts of acks."""
    topic = talk.topic("t", 3)

    def make() -> Body:
        data = {"index": 0, "records": batch("a", "b")}
        other = {"index": 1, "records": batch("c")}
        return {
            "transactional_id": None, "acks": 1, "timeout_ms": 1000,
            "topic_data": [
                {"name": topic, "topic_id": talk.ids[topic], "partition_data": [data, other]}
            ],
        }  # fmt: skip

    talk.explore("Produce", make, skip=("acks", "records", "timeout_ms"), stride=2)
    for acks in (-1, 1, 2, -2, 77, 32767, -32768):
        for version in VERSIONS:
            talk.ask("Produce", version, make() | {"acks": acks})
    for version in (3, 7, 9, 13):
        talk.send_only("Produce", version, make() | {"acks": 0})
        broken = make() | {"acks": 0}
        broken["topic_data"][0]["partition_data"][0]["index"] = 9
        talk.send_only("Produce", version, broken)
    read_all(talk, topic, 3)


def read_all(talk: Talk, topic: str, partitions: int = 1) -> None:
    """Record all records of a topic."""
    for index in range(partitions):
        body = {
            "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "isolation_level": 0,
            "topics": [{
                "topic": topic,
                "partitions": [{"partition": index, "fetch_offset": 0,
                                "partition_max_bytes": 1 << 20}],
            }],
        }  # fmt: skip
        talk.ask("Fetch", 11, body)


def with_bytes(data: bytes, at: int, form: str, value: int, mend: bool = True) -> bytes:
    """A batch with one changed field in its header. `mend` makes its checksum correct again."""
    changed = bytearray(data)
    struct.pack_into(form, changed, at, value)
    if mend and len(changed) >= 61:
        struct.pack_into(">I", changed, 17, crc32c_of(bytes(changed[21:])))
    return bytes(changed)


def wrong_batches() -> dict[str, bytes]:
    """Unusual record data, by description."""
    good, two = batch("a", "b", "c"), batch("x") + batch("y", "z")
    made = {
        "good": good,
        "empty": b"",
        "three bytes": b"\0\0\0",
        "header only": good[:61],
        "cut": good[:-1],
        "cut in header": good[:40],
        "trailing bytes": good + b"\1\2\3",
        "trailing zeros": good + bytes(20),
        "trailing header": good + good[:30],
        "two batches": two,
        "wrong checksum": with_bytes(good, 17, ">I", 1, mend=False),
        "garbage": bytes(range(200)),
        "zeros": bytes(100),
        "length 0": with_bytes(good, 8, ">i", 0, mend=False),
        "length negative": with_bytes(good, 8, ">i", -1, mend=False),
        "length too short": with_bytes(good, 8, ">i", 13, mend=False),
        "length too long": with_bytes(good, 8, ">i", 1 << 20, mend=False),
        "base offset 7": with_bytes(good, 0, ">q", 7),
        "base offset -1": with_bytes(good, 0, ">q", -1),
        "leader epoch 5": with_bytes(good, 12, ">i", 5),
        "count 0": with_bytes(good, 57, ">i", 0),
        "count 2": with_bytes(good, 57, ">i", 2),
        "count 4": with_bytes(good, 57, ">i", 4),
        "count negative": with_bytes(good, 57, ">i", -1),
        "count huge": with_bytes(good, 57, ">i", 2147483647),
        "last delta 0": with_bytes(good, 23, ">i", 0),
        "last delta 9": with_bytes(good, 23, ">i", 9),
        "last delta negative": with_bytes(good, 23, ">i", -1),
        "max timestamp 0": with_bytes(good, 35, ">q", 0),
        "base timestamp -1": with_bytes(good, 27, ">q", -1),
        "sequence without producer": with_bytes(good, 53, ">i", 0),
        "epoch without producer": with_bytes(good, 51, ">h", 0),
        "producer without sequence": with_bytes(good, 43, ">q", 77),
        "marker": build_marker(1, producer_id=77, producer_epoch=0, coordinator_epoch=0,
                               timestamp=1_600_000_000_000),
        "null values": build_batch([Record(0, 1, b"k", None)]),
        "no key": build_batch([Record(0, 1, None, None)]),
        "headers": build_batch([Record(0, 1, b"k", b"v", [("h", b"1"), ("h", None), ("", b"")])]),
        "log append time": build_batch([Record(0, 1, b"k", b"v")], timestamp_type=1),
        "no timestamp": build_batch([Record(0, -1, b"k", b"v")]),
        "far future": batch("a", timestamp=4_000_000_000_000),
        "year 1970": batch("a", timestamp=0),
        "unknown attribute": with_bytes(good, 21, ">h", 0x80),
        "high attributes": with_bytes(good, 21, ">h", 0x4000),
        "transactional": with_bytes(good, 21, ">h", 0x10),
        "control": with_bytes(good, 21, ">h", 0x20),
    }
    for magic in (0, 1, 3, 127):
        made[f"magic {magic}"] = with_bytes(good, 16, ">b", magic)
    for codec in (1, 2, 3, 4):
        packed = batch("a" * 100, "b" * 100, codec=codec)
        made[f"codec {codec}"] = packed
        made[f"codec {codec} two"] = packed + packed
        made[f"codec {codec} damaged"] = with_bytes(packed, len(packed) - 4, ">i", 12345)
        made[f"codec {codec} empty"] = with_bytes(with_bytes(packed, 57, ">i", 0), 23, ">i", 0)
        made[f"codec {codec} trailing"] = packed + b"\1\2\3"
    for codec in (1, 4, 5, 6, 7):
        made[f"codec {codec} in name only"] = with_bytes(good, 21, ">h", codec)
    return made


def departures() -> list[bytes]:
    """Record data that Apache Kafka stores and Ottla refuses; see ARCHITECTURE.md."""
    return [
        with_bytes(batch("a", "b"), 27, ">q", -2),
        build_batch([Record(0, 1, b"k", b"v"), Record(5, 1, b"k", b"v")]),
        with_bytes(batch("a"), 21, ">h", 0x40),         # with a delete horizon
    ]


def produce_departures(talk: Talk) -> None:
    """Data that Kafka stores and Ottla refuses, each in a topic of its own."""
    for records in departures():
        for version in (3, 7, 9, 13):
            talk.produce(talk.topic("t"), records, version)


def produce_batches(talk: Talk) -> None:
    """Unusual record data, each in several versions, and what is stored."""
    for settings in ({}, {"cleanup_policy": "compact"}, {"message_timestamp_type": "LogAppendTime"},
                     {"compression_type": "gzip"}):
        topic = talk.topic("t", 1, **settings)
        for records in wrong_batches().values():
            for version in (3, 7, 9, 13) if not settings else (7, 12):
                talk.produce(topic, records, version)
        read_all(talk, topic)
    for settings in (
        {"max_message_bytes": "120"}, {"message_timestamp_before_max_ms": "1000"},
        {"message_timestamp_after_max_ms": "1000"}, {"retention_ms": "1000"},
    ):
        topic = talk.topic("t", 1, **settings)
        for version in VERSIONS:
            talk.produce(topic, batch("a", "b" * 100), version)
            talk.produce(topic, batch("a", timestamp=4_000_000_000_000), version)
            talk.produce(topic, batch("a"), version)


def produce_internal(talk: Talk) -> None:
    """Produce to internal topics, missing topics and invalid names."""
    talk.topic("t")
    names = ("__consumer_offsets", "__transaction_state", "__cluster_metadata",
             "__ottla_metadata", "nobody", "", "not legal/")
    for name in names:
        for version in (3, 8, 12):
            data = {"index": 9 if name.startswith("__") else 0, "records": batch("a")}
            topic = {"name": name, "partition_data": [data]}
            talk.ask("Produce", version, {"acks": 1, "timeout_ms": 1000, "topic_data": [topic]})


Numbered = tuple[int, int, int]
"""Sequence number, producer epoch, count of records."""

ORDERS: dict[str, list[Numbered]] = {
    "in order": [(0, 0, 1), (1, 0, 2), (3, 0, 1)],
    "duplicates": [(0, 0, 2), (0, 0, 2), (2, 0, 1), (0, 0, 2), (2, 0, 1)],
    "duplicates long ago": [*((n, 0, 1) for n in range(7)), (0, 0, 1), (1, 0, 1), (2, 0, 1)],
    "overlapping": [(0, 0, 3), (1, 0, 2), (2, 0, 2)],
    "gap": [(0, 0, 1), (5, 0, 1), (1, 0, 1)],
    "not from 0": [(4, 0, 1), (5, 0, 1), (4, 0, 1), (0, 0, 1)],
    "next epoch": [(0, 0, 2), (0, 1, 1), (1, 1, 1), (2, 0, 1)],
    "next epoch not from 0": [(0, 0, 2), (2, 1, 1), (0, 1, 1)],
    "epoch of before": [(0, 3, 1), (1, 2, 1), (0, 3, 1)],
    "wraps": [(2147483646, 0, 2), (0, 0, 1), (1, 0, 1)],
    "negative": [(-2, 0, 1), (-1, 0, 1), (0, -1, 1), (0, -2, 1)],
    "same sequence, other count": [(0, 0, 2), (0, 0, 1), (0, 0, 3)],
}


def produce_idempotent(talk: Talk) -> None:
    """Sequence numbers of producers that exist, and of ids that were never assigned."""
    topic = talk.topic("t", 2)
    for steps in ORDERS.values():
        for version in (3, 5, 8, 11, 13):
            producer_id, _ = talk.producer()
            for sequence, epoch, count in steps:
                made = batch(*("v" * count), producer_id=producer_id, producer_epoch=epoch,
                             base_sequence=sequence)
                talk.produce(topic, made, version)
    for producer_id in (77, 2, -2):
        for version in (3, 9, 13):
            for sequence in (0, 1, 0, 5):
                made = batch("v", producer_id=producer_id, producer_epoch=0,
                             base_sequence=sequence)
                talk.produce(topic, made, version)
    both = batch("v", producer_id=talk.producer()[0], producer_epoch=0, base_sequence=0)
    for version in VERSIONS:
        talk.produce(topic, both + both, version)
        talk.produce(topic, both + batch("w"), version)
    talk.ask("DescribeProducers", 0, {"topics": [{"name": topic, "partition_indexes": [0, 1, 9]}]})
    read_all(talk, topic, 2)


def produce_cleaned(talk: Talk) -> None:
    """Errors and duplicates in a log that does not begin at 0, and with LogAppendTime."""
    for settings in ({}, {"message_timestamp_type": "LogAppendTime"}):
        topic = talk.topic("t", 1, **settings)
        producer_id, epoch = talk.producer()

        def numbered(sequence: int, **more: Any) -> bytes:
            return batch("v", producer_id=producer_id, producer_epoch=epoch,  # noqa: B023
                         base_sequence=sequence, **more)

        for sequence in range(4):
            talk.produce(topic, numbered(sequence))
        partition = {"partition_index": 0, "offset": 2}
        talk.ask("DeleteRecords", 2, {"topics": [{"name": topic, "partitions": [partition]}],
                                      "timeout_ms": 5000})
        for version in VERSIONS:
            talk.produce(topic, numbered(3), version)              # a duplicate
            talk.produce(topic, numbered(9), version)              # out of order
            talk.produce(topic, numbered(0), version)              # too old
            talk.produce(topic, batch("a")[:-1], version)          # damaged
            talk.produce(topic, batch("a"), version, partition=7)  # no such partition
            talk.produce(topic, batch("a"), version, acks=7)


SCENES = (
    produce_places, produce_batches, produce_departures, produce_internal, produce_idempotent,
    produce_cleaned,
)  # fmt: skip
