"""The pytest plug-in: fixtures `ottla_broker` and `ottla_topic`; failures show the broker's log.

Nothing but pytest is imported until a test asks for a fixture.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.testing.broker import Broker

BROKER: pytest.StashKey[Broker] = pytest.StashKey()
LOG_START: pytest.StashKey[int] = pytest.StashKey()
TOPIC_NAME_MAX = 200
NAME = "ottla_topic"
MARKER = f"{NAME}(partitions=1, configs={{}}): properties of the topic of the fixture {NAME}"
OPTIONS = ("partitions", "configs")
TAKES = "the marker takes partitions=NUMBER and configs=MAPPING, such as partitions=3"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option `ottla_settings`: the broker's settings, one `key=value` per line."""
    parser.addini(
        "ottla_settings", "server properties of ottla_broker, key=value", type="linelist"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker."""
    config.addinivalue_line("markers", MARKER)


@pytest.fixture(scope="session")
def ottla_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """One broker for all tests of a run (with pytest-xdist: one for each worker).

    After each test, the plug-in ends the faults that the test injected, lets the broker's disk
    accept writes again, and starts the broker if it is down. If the test advanced the broker's
    clock, the clock stays advanced.
    """
    from ottla.testing.broker import Broker

    lines = request.config.getini("ottla_settings")
    settings = {key.strip(): value.strip() for key, _, value in (x.partition("=") for x in lines)}
    with Broker(settings) as broker:
        request.config.stash[BROKER] = broker
        yield broker
        del request.config.stash[BROKER]


@pytest.fixture
def ottla_topic(ottla_broker: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic for this test only; it is deleted afterwards."""
    marker = request.node.get_closest_marker(NAME)
    given: dict[str, Any] = dict(marker.kwargs) if marker else {}
    if marker and marker.args:
        raise pytest.UsageError(
            f"@pytest.mark.{NAME}: the argument {marker.args[0]!r} has no name; {TAKES}")
    if strange := sorted(given.keys() - set(OPTIONS)):
        from ottla.testing.names import similar

        raise pytest.UsageError(
            f"@pytest.mark.{NAME} has no option {strange[0]}: {TAKES}"
            f"{similar(strange[0], OPTIONS)}")
    from ottla.client.errors import Refused

    try:
        name = ottla_broker.create_topic(unused_name(request), **given)
    except (TypeError, ValueError, Refused) as error:
        if not given:
            raise
        raise pytest.UsageError(f"@pytest.mark.{NAME}: {error}") from error
    yield name
    ottla_broker.heal()
    try:
        ottla_broker.delete_topic(name)
    except Refused:
        pass                            # the test has deleted it


def unused_name(request: pytest.FixtureRequest) -> str:
    """A unique topic name derived from the test's name, with valid characters only."""
    import secrets

    readable = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:TOPIC_NAME_MAX].strip("-.")
    return f"{readable}-{secrets.token_hex(4)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Remembers the position in the broker's log at which a test began."""
    broker = item.config.stash.get(BROKER, None)
    item.stash[LOG_START] = len(broker.log) if broker is not None else 0
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows what the broker logged during a failed test."""
    report = yield
    broker = item.config.stash.get(BROKER, None)
    if broker is not None and report.failed:
        said = broker.log[item.stash.get(LOG_START, 0) :].strip()
        if said:
            report.sections.append(("the broker's log", said))
    return report


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Heals the broker for the next test, also if the test got the broker by `getfixturevalue`."""
    broker = item.config.stash.get(BROKER, None)
    if broker is not None:
        broker.heal()
