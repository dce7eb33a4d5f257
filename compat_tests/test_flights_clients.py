"""Every client reads all flights without loss or duplicates, byte for byte."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compat_tests import readers
from compat_tests.brokers import Broker
from compat_tests.flights import CODECS, FLIGHTS, LoadedTopic
from compat_tests.requirements import JAVA_CLIENTS

pytestmark = pytest.mark.timeout(300)
Flights = Callable[[str], LoadedTopic]


def check(lines: readers.Lines, loaded: LoadedTopic) -> None:
    """The lines are exactly what was acknowledged; on a difference name the first one."""
    expected = loaded.lines()
    for partition in sorted(expected):
        got = lines.get(partition, [])
        for ours, theirs in zip(expected[partition], got, strict=False):
            assert theirs == ours
        assert len(got) == len(expected[partition]), f"records of partition {partition}"
    assert lines.keys() == expected.keys()


@pytest.mark.parametrize("codec", CODECS)
def test_every_flight_is_acknowledged(flights: Flights, codec: str) -> None:
    assert sum(len(events) for events in flights(codec).events.values()) == FLIGHTS


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka_reads_what_was_written(
    broker: Broker, flights: Flights, codec: str
) -> None:
    loaded = flights(codec)
    check(readers.read_with_confluent_kafka(broker.bootstrap, loaded.name), loaded)


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_reads_what_was_written(broker: Broker, flights: Flights, codec: str) -> None:
    loaded = flights(codec)
    check(readers.read_with_kcat(broker.bootstrap, loaded.name), loaded)


@pytest.mark.parametrize("codec", CODECS)
def test_the_java_client_reads_what_was_written(
    broker: Broker, flights: Flights, codec: str
) -> None:
    loaded = flights(codec)
    check(readers.read_with_java(JAVA_CLIENTS[0], broker.bootstrap, loaded.name), loaded)


def test_the_java_client_of_3_9_reads_what_was_written(broker: Broker, flights: Flights) -> None:
    loaded = flights("zstd")
    check(readers.read_with_java(JAVA_CLIENTS[1], broker.bootstrap, loaded.name), loaded)


def test_kafka_python_reads_what_was_written(broker: Broker, flights: Flights) -> None:
    loaded = flights("lz4")
    check(readers.read_with_kafka_python(broker.bootstrap, loaded.name), loaded)


def test_aiokafka_reads_what_was_written(broker: Broker, flights: Flights) -> None:
    loaded = flights("gzip")
    check(readers.read_with_aiokafka(broker.bootstrap, loaded.name), loaded)
