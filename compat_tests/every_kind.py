"""Writes data of every kind to a broker: codecs, headers, transactions, a compacted topic, groups.

`ottla log` must read, verify and import the log directory that `write` leaves.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BROKER = (
    "offsets.topic.num.partitions=2",
    "transaction.state.log.num.partitions=2",
    "group.initial.rebalance.delay.ms=0",
    "log.cleaner.backoff.ms=200",
)
"""Settings of a broker to be filled: few partitions, so that dumping them all is quick."""
RECORDS = 1500          # of about a kilobyte each: uncompressed, they need two segments
WAIT_SECONDS = 60
KEEP = {"retention.ms": "-1"}
"""Most records have timestamps of 2023, so time retention would remove them. On a slow machine,
retention runs for the first time while a test still reads."""
SEGMENT = {"segment.bytes": "1048576", "index.interval.bytes": "4096"}
TOPICS: dict[str, dict[str, str]] = {
    **{f"codec-{codec}": {"compression.type": "producer", **SEGMENT, **KEEP} for codec in CODECS},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "table": {
        "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", **SEGMENT,
        "segment.ms": "1000",
    },
    "transactions": KEEP,
    "cut": {"retention.bytes": "-1"},
    "empty": {},
}  # fmt: skip
Offsets = dict[tuple[str, int], int]


@dataclass
class Written:
    """What was written, and must be found later."""

    values: dict[str, list[bytes | None]] = field(default_factory=dict)
    """By topic, except the compacted one: the values that a read_committed consumer gets."""
    newest: dict[bytes, bytes] = field(default_factory=dict)
    """By key, for the compacted topic: the newest value."""
    commits: dict[str, Offsets] = field(default_factory=dict)
    """By group: the committed offsets."""


def write(bootstrap: str) -> Written:
    """Fill a broker, and return what was written."""
    written = Written()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics(
        [NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()],
        operation_timeout=WAIT_SECONDS,
    )
    for future in made.values():
        future.result(WAIT_SECONDS)
    source = random.Random(7)
    for codec in CODECS:
        write_codec(bootstrap, codec, source, written)
    write_append_time(bootstrap, written)
    write_table(bootstrap, source, written)
    write_transactions(bootstrap, written)
    write_cut(bootstrap, admin, written)
    written.values["empty"] = []
    commit(bootstrap, "classic-group", {"codec-none": 700, "codec-zstd": 1200}, "classic", written)
    commit(bootstrap, "new-group", {"codec-gzip": 41, "transactions": 3}, "consumer", written)
    return written


def producer(bootstrap: str, **settings: object) -> Producer:
    """An idempotent producer."""
    config = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
    return Producer({**config, **{k.replace("_", "."): v for k, v in settings.items()}})


def flush(of: Producer) -> None:
    """Flush a producer, and check that everything was delivered."""
    assert of.flush(WAIT_SECONDS) == 0


def write_codec(bootstrap: str, codec: str, source: random.Random, written: Written) -> None:
    """Records with keys, headers and null values."""
    topic = f"codec-{codec}"
    client = producer(bootstrap, compression_type=codec, batch_size=30_000)
    values: list[bytes | None] = []
    for number in range(RECORDS):
        value = source.randbytes(500).hex().encode() if number % 10 else None
        headers = [("trace", b"%d" % number), ("empty", None)] if number % 3 == 0 else None
        client.produce(
            topic, value, key=b"key-%d \xc3\xa9" % number, headers=headers,
            timestamp=1_700_000_000_000 + source.randrange(10**6),
        )  # fmt: skip
        values.append(value)
        if number % 200 == 0:
            client.poll(0)
    flush(client)
    written.values[topic] = values


def write_append_time(bootstrap: str, written: Written) -> None:
    """Records with LogAppendTime."""
    client = producer(bootstrap, compression_type="lz4")
    values = [b"stamped %d" % number for number in range(20)]
    for value in values:
        client.produce("append-time", value)
    flush(client)
    written.values["append-time"] = list(values)


def write_table(bootstrap: str, source: random.Random, written: Written) -> None:
    """A table that is written again and again, and a tombstone."""
    client = producer(bootstrap)
    for number in range(2600):
        key, value = b"row-%d" % source.randrange(40), source.randbytes(500).hex().encode()
        written.newest[key] = value
        client.produce("table", value, key=key)
        if number % 200 == 0:
            client.poll(0)
    client.produce("table", None, key=b"row-gone")
    flush(client)


def write_transactions(bootstrap: str, written: Written) -> None:
    """Six transactions; every second one is aborted."""
    values: list[bytes | None] = []
    client = producer(bootstrap, transactional_id="mover")
    client.init_transactions(WAIT_SECONDS)
    for number in range(6):
        client.begin_transaction()
        for part in range(3):
            value = b"transaction %d part %d" % (number, part)
            client.produce("transactions", value)
            if number % 2 == 0:
                values.append(value)
        client.flush(WAIT_SECONDS)
        if number % 2:
            client.abort_transaction(WAIT_SECONDS)
        else:
            client.commit_transaction(WAIT_SECONDS)
    written.values["transactions"] = values


def write_cut(bootstrap: str, admin: AdminClient, written: Written) -> None:
    """A log whose beginning was deleted."""
    client = producer(bootstrap)
    values: list[bytes | None] = [b"%d" % number for number in range(50)]
    for value in values:
        client.produce("cut", value)
    flush(client)
    done = admin.delete_records([TopicPartition("cut", 0, 20)])
    for future in done.values():
        future.result(WAIT_SECONDS)
    written.values["cut"] = values[20:]


def commit(
    bootstrap: str, group: str, offsets: dict[str, int], protocol: str, written: Written
) -> None:
    """Join a group, commit, leave."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol}
    client = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    client.subscribe(list(offsets))
    wait_until(lambda: bool(client.poll(0.2)) or len(client.assignment()) == len(offsets))
    wanted = [TopicPartition(topic, 0, offset) for topic, offset in offsets.items()]
    client.commit(offsets=wanted, asynchronous=False)
    client.close()
    written.commits[group] = {(topic, 0): offset for topic, offset in offsets.items()}


def committed(bootstrap: str, group: str, topics: list[str]) -> Offsets:
    """The offsets that a group has committed for partition 0 of these topics."""
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    found = client.committed([TopicPartition(topic, 0) for topic in topics], WAIT_SECONDS)
    client.close()
    return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


KeysAndValues = list[tuple[bytes | None, bytes | None]]


def read(bootstrap: str, topic: str) -> KeysAndValues:
    """Keys and values that a read_committed reader sees, up to the end."""
    return read_topics(bootstrap, [topic])[topic]


def read_topics(bootstrap: str, topics: Iterable[str]) -> dict[str, KeysAndValues]:
    """Like `read`, for several topics with one consumer."""
    client = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False,
        "isolation.level": "read_committed", "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
    })  # fmt: skip
    found: dict[str, KeysAndValues] = {topic: [] for topic in topics}
    client.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in found])
    open_ends = set(found)
    deadline = time.monotonic() + WAIT_SECONDS
    while open_ends:
        assert time.monotonic() < deadline, f"{open_ends} did not end within {WAIT_SECONDS} s"
        for message in client.consume(1000, 0.1):
            error = message.error()
            if error is None:
                found[message.topic()].append((message.key(), message.value()))
            elif error.name() == "_PARTITION_EOF":
                open_ends.discard(message.topic())
            else:
                raise KafkaException(error)
    client.close()
    return found


def wait_until(true: Callable[[], bool]) -> None:
    """Wait until `true` returns true; raise AssertionError after WAIT_SECONDS."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)
