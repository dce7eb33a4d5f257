"""The broker under test, the one Spark session, and the rule that CI skips nothing."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compat_tests.brokers import Broker, ClusterBroker, KafkaBroker, OttlaBroker, RunningBroker
from compat_tests.kafka_tools import KafkaTools
from compat_tests.requirements import java, program
from compat_tests.scheduling import FilesOnWorkers, PieceTimes, turn_of
from tests.no_skips import pytest_make_collect_report as pytest_make_collect_report
from tests.no_skips import pytest_runtest_makereport as pytest_runtest_makereport

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from pyspark.sql import SparkSession
    from xdist.remote import Producer

    from compat_tests.flights import LoadedTopic

NO_DELAY = "group.initial.rebalance.delay.ms=0"
"""As in the Apache Kafka of benchmarks/peers. Without it, each new group waits for 3 s."""
TIMEOUT_SECONDS = 900
"""Ends a test that hangs. It is no limit for speed, which benchmarks/ measures: a busy machine may
take many times as long as an idle one."""
RUNNING = os.environ.get("OTTLA_COMPAT_BOOTSTRAP", "")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        choices=("ottla", "cluster", "kafka"),
        default="ottla",
        help="the broker under test: Ottla, three of them, or the Apache Kafka of benchmarks/peers",
    )
    parser.addoption(
        "--kills", type=float, default=0.0,
        help="with --broker cluster: kill -9 of a broker every so many seconds, all the time",
    )
    parser.addoption(
        "--record-stories",
        action="store_true",
        help="write what happens into tests/scenarios/wire; only with --broker kafka",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "one_broker: not for a cluster, which answers otherwise")
    config.addinivalue_line("markers", "long: minutes, of no stock client; not in CI")
    config.addinivalue_line(
        "filterwarnings", "ignore:(read|open)_text is deprecated"
    )  # kafka-python


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesOnWorkers:
    """Each worker runs whole files."""
    config.pluginmanager.register(PieceTimes())
    return FilesOnWorkers(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select tests, and set their timeouts. Workers begin with the files that take longest."""
    if config.getoption("--broker") == "cluster":
        items[:] = [item for item in items if item.get_closest_marker("one_broker") is None]
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: turn_of(item.nodeid))


@pytest.fixture(scope="module")
def tools() -> Iterator[KafkaTools]:
    """Kafka's own tools, in one JVM for a file's tests."""
    running = KafkaTools()
    yield running
    running.close()


@pytest.fixture(scope="session")
def new_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Broker]:
    """Returns a function that makes a broker, which is not started yet:
    `new_broker("log.segment.bytes=1048576")`."""
    kind = request.config.getoption("--broker")

    def make(*overrides: str) -> Broker:
        directory = tmp_path_factory.mktemp(kind)
        if kind == "cluster":
            return ClusterBroker(directory, overrides, request.config.getoption("--kills"))
        return (
            KafkaBroker(directory, overrides)
            if kind == "kafka"
            else OttlaBroker(directory, [NO_DELAY, *overrides])
        )

    return make


@pytest.fixture(scope="session")
def broker(new_broker: Callable[..., Broker]) -> Iterator[Broker]:
    """The broker of this run, with default settings; after the last test it must stop cleanly."""
    broker = RunningBroker(RUNNING) if RUNNING else new_broker()
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def new_topic(broker: Broker) -> Callable[..., str]:
    """Returns a function that creates a topic with a unique name:
    `new_topic("orders", partitions=6)`.

    The topic keeps all records. By default, retention would delete the flights within five
    minutes, because their timestamps are from 2013.
    """
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    numbers = itertools.count()

    def create(base: str, partitions: int = 1, **config: str) -> str:
        name = f"{base}-{os.getpid()}-{next(numbers)}"
        settings = {"retention.ms": "-1", **{k.replace("_", "."): v for k, v in config.items()}}
        topic = NewTopic(name, partitions, -1, config=settings)
        for lost in (False, True):
            try:
                admin.create_topics([topic], operation_timeout=60)[name].result(60)
                break
            except KafkaException as error:
                # librdkafka abandons requests to a broker that leaves the metadata.
                code = error.args[0].code()
                if lost and code == KafkaError.TOPIC_ALREADY_EXISTS:
                    break
                if lost or code != KafkaError._DESTROY_BROKER:
                    raise
        return name

    return create


@pytest.fixture(scope="session")
def flights(broker: Broker, new_topic: Callable[..., str]) -> Callable[[str], LoadedTopic]:
    """Returns a function: `flights("zstd")` is a topic with all flights. confluent-kafka produces
    them once for each codec."""
    from compat_tests.flights import produce, read_flights

    events = read_flights()
    loaded: dict[str, LoadedTopic] = {}

    def load(codec: str) -> LoadedTopic:
        if codec not in loaded:
            topic = new_topic(f"flights-{codec}", partitions=6)
            loaded[codec] = produce(broker.bootstrap, topic, codec, events)
        return loaded[codec]

    return load


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One local session for the whole run: starting the JVM costs more than most tests."""
    java()
    from compat_tests.spark_session import local_session

    session = local_session()
    yield session
    session.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(
            executable_path=program("chromium"), args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory for checkpoints and results of one test."""
    return tmp_path
