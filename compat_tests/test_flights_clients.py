"""Every client reads all flights without loss or duplicates, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from compat_tests import demo, readers
from compat_tests.brokers import Broker
from compat_tests.flights import CODECS, FLIGHTS, LoadedTopic, same_lines
from compat_tests.requirements import JAVA_CLIENTS

Flights = Callable[[str], LoadedTopic]


@pytest.mark.parametrize("codec", CODECS)
def test_every_flight_is_acknowledged(flights: Flights, codec: str) -> None:
    assert sum(len(events) for events in flights(codec).events.values()) == FLIGHTS


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka_reads_what_was_written(
    broker: Broker, flights: Flights, codec: str
) -> None:
    loaded = flights(codec)
    same_lines(readers.read_with_confluent_kafka(broker.bootstrap, loaded.name), loaded.lines())


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_reads_what_was_written(broker: Broker, flights: Flights, codec: str) -> None:
    loaded = flights(codec)
    same_lines(readers.read_with_kcat(broker.bootstrap, loaded.name), loaded.lines())


@pytest.mark.parametrize("codec", CODECS)
def test_the_java_client_reads_what_was_written(
    broker: Broker, flights: Flights, codec: str
) -> None:
    loaded = flights(codec)
    same_lines(
        readers.read_with_java(JAVA_CLIENTS[0], broker.bootstrap, loaded.name), loaded.lines()
    )


def test_the_java_client_of_3_9_reads_what_was_written(broker: Broker, flights: Flights) -> None:
    loaded = flights("zstd")
    same_lines(
        readers.read_with_java(JAVA_CLIENTS[1], broker.bootstrap, loaded.name), loaded.lines()
    )


def test_kafka_python_reads_what_was_written(broker: Broker, flights: Flights) -> None:
    loaded = flights("lz4")
    same_lines(readers.read_with_kafka_python(broker.bootstrap, loaded.name), loaded.lines())


def test_aiokafka_reads_what_was_written(broker: Broker, flights: Flights) -> None:
    loaded = flights("gzip")
    same_lines(readers.read_with_aiokafka(broker.bootstrap, loaded.name), loaded.lines())


def test_the_demo_says_how_long_its_stream_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """The bar first moves when Spark has finished a micro-batch, after ten seconds or more."""
    finished = SimpleNamespace(isActive=False, recentProgress=[], exception=lambda: None)
    demo.follow(cast("demo.StreamingQuery", finished))
    assert "up to a minute" in capsys.readouterr().out
