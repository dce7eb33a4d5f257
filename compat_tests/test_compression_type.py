"""Old and new stock clients write and read topics that set `compression.type` to a codec.

Whatever codec a producer uses, the broker stores the topic's codec, and every client can read it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from compat_tests import readers
from compat_tests.brokers import Broker
from compat_tests.requirements import java_client, program

TYPES = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NUMBERS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
COUNT = 60
LARGE = b"a value that a thread compresses " * 20_000
"""A batch with this value is so large that the broker compresses it in a thread with any codec."""


def java(version: str, *arguments: str) -> list[str]:
    """The lines that AnyClient prints with this Java client: partition, offset, key, value."""
    command = java_client(version, *arguments, program="AnyClient")
    return readers.output_of(command).decode().splitlines()


def kcat(broker: Broker, *arguments: str, stdin: bytes = b"") -> bytes:
    """What kcat prints."""
    command = [program("kcat"), "-q", "-b", broker.bootstrap, *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=180, check=True).stdout


def stored_codecs(broker: Broker, topic: str) -> set[int]:
    """The codecs of all batches, fetched with Fetch version 12, according to kafka-python."""
    from kafka.record import MemoryRecords

    from ottla.wire.messages import FetchRequest
    from tests.broker.running import WireClient

    host, _, port = broker.bootstrap.rpartition(":")
    found: set[int] = set()
    with WireClient((host, int(port))) as client:
        named = FetchRequest.Topic
        asked = named.Partition(partition=0, fetch_offset=0, partition_max_bytes=1 << 28)
        request = FetchRequest(
            replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 28,
            topics=[named(topic=topic, partitions=[asked])],
        )  # fmt: skip
        [partition] = client.call(request, 12).responses[0].partitions
    records = MemoryRecords(bytes(partition.records))
    while (batch := records.next_batch()) is not None:
        found.add(batch.compression_type)
    return found


def filled(broker: Broker, topic: str) -> list[str]:
    """Produce with the Java client 4.4.0 and kcat in every codec; return the lines that a reader
    must print."""
    lines = java("4.4.0", "produce", broker.bootstrap, topic, "1", "4.4.0", str(COUNT), *CODECS)
    for codec in CODECS:
        sent = b"k|%s small\nk|%s" % (codec.encode(), LARGE)
        kcat(broker, "-P", "-t", topic, "-z", codec, "-K", "|", stdin=sent)
        for value in (f"{codec} small", LARGE.decode()):
            lines.append(f"0\t{len(lines)}\tk\t{value}")
    return lines


@pytest.mark.parametrize("wanted", TYPES)
def test_stock_clients_read_a_topic_with_a_codec_of_its_own(
    broker: Broker, new_topic: Callable[..., str], wanted: str
) -> None:
    topic = new_topic(f"to-{wanted}", compression_type=wanted)
    lines = filled(broker, topic)
    assert stored_codecs(broker, topic) == {NUMBERS[wanted]}
    assert java("4.4.0", "assigned", broker.bootstrap, topic, "1", str(len(lines))) == lines
    printed = kcat(broker, "-C", "-e", "-o", "beginning", "-t", topic, "-Z",
                   "-f", r"%p\t%o\t%k\t%s\n").decode()
    assert printed.replace("\tNULL", "\tnull").splitlines() == lines
    assert read_with_kafka_python(broker.bootstrap, topic, len(lines)) == lines


def read_with_kafka_python(bootstrap: str, topic: str, count: int) -> list[str]:
    """The topic's records, read with kafka-python, as lines in AnyClient's form."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
    )  # fmt: skip
    lines = []
    for record in consumer:
        key, value = ("null" if b is None else b.decode() for b in (record.key, record.value))
        lines.append(f"{record.partition}\t{record.offset}\t{key}\t{value}")
        if len(lines) == count:
            break
    consumer.close()
    return lines


MATRIX = (
    ("0.9.0.1", "gzip", "zstd"),
    ("0.10.2.2", "lz4", "snappy"),
    ("0.11.0.3", "snappy", "zstd"),
    ("2.0.1", "lz4", "zstd"),
    ("2.8.2", "zstd", "gzip"),
)
"""Client, its codec, the topic's codec. 0.9 and 0.10 use the old message formats 0 and 1; each
client writes and reads."""


@pytest.mark.parametrize(("version", "codec", "wanted"), MATRIX)
def test_older_generations_write_and_read_it(
    request: pytest.FixtureRequest, broker: Broker, new_topic: Callable[..., str], version: str,
    codec: str, wanted: str,
) -> None:  # fmt: skip
    if request.config.getoption("--broker") == "kafka":
        pytest.xfail("Apache Kafka 4 refuses clients below 0.11, and sends zstd to those below 2.1")
    topic = new_topic(f"old-{version}-{wanted}", compression_type=wanted)
    sent = java(version, "produce", broker.bootstrap, topic, "1", version, str(COUNT), codec)
    kcat(broker, "-P", "-t", topic, "-z", "lz4", stdin=LARGE)
    assert stored_codecs(broker, topic) == {NUMBERS[wanted]}
    read = java(version, "assigned", broker.bootstrap, topic, "1", str(COUNT + 1))
    assert read == [*sent, f"0\t{COUNT}\tnull\t{LARGE.decode()}"]
