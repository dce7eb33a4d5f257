"""Java clients from eleven years use one topic: each reads what all of them produced.

Apache Kafka 3.9 was the last release that served the oldest three clients; 4.0 refuses them
(KIP-896).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, Message, Producer

from compat_tests import readers
from compat_tests.brokers import Broker
from compat_tests.requirements import JAVA_CLIENTS, OLD_JAVA_CLIENTS, java_client, program

CLIENTS = (*JAVA_CLIENTS, *OLD_JAVA_CLIENTS)
CODECS = ("none", "gzip", "snappy", "lz4")
PARTITIONS = 3
COUNT = 200


@pytest.fixture(autouse=True)
def not_for_kafka_4(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--broker") == "kafka":
        request.applymarker(pytest.mark.xfail(reason="Apache Kafka 4 refuses these clients"))


def run(version: str, *arguments: str) -> list[str]:
    """The sorted lines that AnyClient prints: partition, offset, key, value."""
    command = java_client(version, *arguments, program="AnyClient")
    return sorted(readers.output_of(command).decode().splitlines())


def produced(broker: Broker, topic: str, version: str, *codecs: str) -> list[str]:
    """Produce with this client; return the lines of the acknowledged records."""
    lines = run(
        version, "produce", broker.bootstrap, topic, str(PARTITIONS), version, str(COUNT), *codecs
    )
    assert len(lines) == COUNT * len(codecs)
    return lines


def sent_by_librdkafka(broker: Broker, topic: str) -> list[str]:
    """Produce COUNT records with librdkafka; return their lines in AnyClient's form."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "gzip"})
    lines: list[str] = []

    def delivered(error: KafkaError | None, record: Message) -> None:
        assert error is None, error
        lines.append(f"{record.partition()}\t{record.offset()}\tnull\tmore")

    for number in range(COUNT):
        producer.produce(topic, b"more", partition=number % PARTITIONS, callback=delivered)
    assert producer.flush(60) == 0 and len(lines) == COUNT
    return sorted(lines)


@pytest.fixture(scope="module")
def shared_topic(broker: Broker, new_topic: Callable[..., str]) -> tuple[str, list[str]]:
    """A topic, and its records as lines. Every client has produced to this topic, with every codec
    that all clients know."""
    topic = new_topic("generations", partitions=PARTITIONS)
    lines = [line for client in CLIENTS for line in produced(broker, topic, client, *CODECS)]
    assert len({tuple(line.split("\t")[:2]) for line in lines}) == len(lines)
    return topic, sorted(lines)


@pytest.mark.parametrize("version", CLIENTS)
def test_every_generation_reads_what_all_have_produced(
    broker: Broker, shared_topic: tuple[str, list[str]], version: str
) -> None:
    topic, lines = shared_topic
    at = (broker.bootstrap, topic, str(PARTITIONS), str(len(lines)))
    assert run(version, "assigned", *at) == lines


@pytest.mark.parametrize("version", CLIENTS)
def test_every_generation_forms_a_group_of_its_own(
    broker: Broker, shared_topic: tuple[str, list[str]], version: str
) -> None:
    topic, lines = shared_topic
    group = f"generation-{version}-{os.getpid()}"
    at = (broker.bootstrap, topic, str(PARTITIONS), str(len(lines)))
    assert run(version, "group", *at, group) == lines
    # Everything was committed: the same group gets only new records.
    more = sent_by_librdkafka(broker, topic)
    try:
        assert run(version, "group", *at[:3], str(COUNT), group) == more
    finally:
        lines[:] = sorted([*lines, *more])


@pytest.mark.parametrize("version", ["4.4.0", "2.8.2", "2.0.1", "0.11.0.3", "0.10.2.2", "0.9.0.1"])
def test_zstd_is_read_by_those_who_know_it_and_by_those_before(
    broker: Broker, new_topic: Callable[..., str], version: str
) -> None:
    """Clients up to 2.0 do not know zstd (KIP-110), and get the records compressed with gzip."""
    topic = new_topic("zstd", partitions=PARTITIONS)
    lines = produced(broker, topic, "2.8.2", "zstd")
    at = (broker.bootstrap, topic, str(PARTITIONS), str(len(lines)))
    assert run(version, "assigned", *at) == lines


KCAT_VERSIONS = ("0.8.2.2", "0.9.0.1", "0.10.0.0", "0.10.2.0")


def kcat(broker: Broker, version: str, *arguments: str, stdin: bytes = b"") -> bytes:
    """Run kcat as if the broker were of this release, without ApiVersions; return its output."""
    command = [program("kcat"), "-q", "-b", broker.bootstrap, "-X", "api.version.request=false"]
    command += ["-X", f"broker.version.fallback={version}", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=180, check=True).stdout


def test_librdkafka_reads_in_each_old_format_what_it_wrote_in_each(
    broker: Broker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("librdkafka-formats")
    lines = []
    for version in KCAT_VERSIONS:
        for codec in CODECS:
            sent = [b"%s-%s-%d" % (version.encode(), codec.encode(), i) for i in range(50)]
            kcat(broker, version, "-P", "-t", topic, "-z", codec, stdin=b"\n".join(sent))
            lines += sent
    for version in KCAT_VERSIONS:
        read = kcat(broker, version, "-C", "-e", "-o", "beginning", "-t", topic)
        assert read.splitlines() == lines
