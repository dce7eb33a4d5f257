"""Clients that connect too fast (KIP-612). Above a listener's rate they wait to be accepted. Above
their address's rate they are accepted, held and then closed. Other clients are served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.quotas.connection_rates import KEPT_MAX, ConnectionRates
from ottla.broker.settings.config import BrokerConfig
from ottla.replication.metadata import MetadataImage
from ottla.replication.principals import QuotaSet
from ottla.wire.messages import AlterClientQuotasRequest, MetadataRequest
from tests.broker.running import RunningBroker, WireClient, pass_time

HERE = "127.0.0.1"
WINDOWS_SECONDS = 10
"""As in Kafka, ten seconds' worth of connections may come at once before the rate is enforced."""


def rates(*overrides: str, **by_address: float) -> ConnectionRates:
    made = ConnectionRates(BrokerConfig.load(None, ["log.dirs=/nowhere", *overrides]))
    quotas = [
        QuotaSet((("ip", None if name == "default" else name.replace("_", ".")),),
                 "connection_creation_rate", value)
        for name, value in by_address.items()
    ]  # fmt: skip
    made.follow(MetadataImage.empty(), MetadataImage.empty().apply(quotas))
    return made


def test_without_limits_nobody_waits() -> None:
    free = rates()
    assert all(free.accepted("PLAINTEXT", 0.0) == free.held(HERE, 0.0) == 0 for _ in range(1000))


def test_a_listener_pauses_for_as_long_as_the_rate_is_exceeded() -> None:
    limited = rates("max.connection.creation.rate=2")
    pauses = [limited.accepted("PLAINTEXT", 100.0) for _ in range(21)]
    assert pauses == [0.0] * 20 + [pytest.approx(0.5)]
    assert (limited.pauses, limited.pause_seconds) == (1, pytest.approx(0.5))


def test_with_a_rate_of_0_every_connection_is_followed_by_the_longest_pause() -> None:
    limited = rates("max.connection.creation.rate=0")
    assert [limited.accepted("PLAINTEXT", now) for now in (0.0, 10.0)] == [WINDOWS_SECONDS] * 2


def test_over_ten_seconds_the_rate_is_that_of_the_setting() -> None:
    limited, now, accepted = rates("max.connection.creation.rate=5"), 0.0, 0
    while now < 60:
        accepted += 1
        now += limited.accepted("PLAINTEXT", now) or 0.001
    assert 0.85 < accepted / (5 * (60 + WINDOWS_SECONDS)) < 1.15


def test_brokers_with_a_listener_of_their_own_do_not_wait() -> None:
    limited = rates(
        "max.connection.creation.rate=1", "listeners=A://:1,B://:2",
        "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT", "inter.broker.listener.name=B",
    )  # fmt: skip
    assert all(limited.accepted("B", 0.0) == 0 for _ in range(100))
    assert any(limited.accepted("A", 0.0) for _ in range(100))


def test_a_listener_may_have_a_lower_rate_of_its_own() -> None:
    """The setting was once accepted and ignored (KIP-612)."""
    limited = rates(
        "listeners=A://:1,B://:2,C://:3", "inter.broker.listener.name=B",
        "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT",
        "listener.name.a.max.connection.creation.rate=1", "max.connection.creation.rate=100",
        "listener.name.b.max.connection.creation.rate=2",
    )  # fmt: skip
    without = {
        name: sum(limited.accepted(name, 0.0) == 0 for _ in range(500)) for name in "ABC"
    }
    # All 500 of A count toward the broker's limit, but those of B do not: only brokers use B.
    assert without == {"A": 10, "B": 20, "C": 500}


def test_an_address_has_its_own_limit_or_the_default() -> None:
    limited = rates(**{"default": 1, "10_0_0_1": 100, "10_0_0_2": 0})
    served = {
        host: sum(limited.held(host, 0.0) == 0 for _ in range(200))
        for host in ("10.0.0.1", "10.0.0.2", "10.0.0.3")
    }
    assert served == {"10.0.0.1": 200, "10.0.0.2": 0, "10.0.0.3": 10}
    assert 0 < limited.held("10.0.0.3", 0.0) <= WINDOWS_SECONDS
    assert limited.held("10.0.0.3", 20.0) == 0, "what was refused is not counted"


def test_the_rates_of_any_number_of_addresses_take_bounded_memory() -> None:
    limited = rates(default=1)
    for number in range(KEPT_MAX + 10):
        assert limited.held(f"fd00::{number:x}", 0.0) == 0
    assert len(limited.addresses) == KEPT_MAX


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path, **{"quota.window.num": 2}) as running:
        yield running


def is_served(client: WireClient) -> bool:
    return bool(client.call(MetadataRequest(topics=[]), 9).brokers)


def limit(client: WireClient, address: str | None, value: float | None) -> None:
    made = AlterClientQuotasRequest.Entry
    entity = made.Entity(entity_type="ip", entity_name=address)
    change = made.Op(key="connection_creation_rate", value=value or 0, remove=value is None)
    request = AlterClientQuotasRequest(entries=[made(entity=[entity], ops=[change])])
    assert client.call(request, 1).entries[0].error_code == 0


def test_a_client_of_an_address_above_its_quota_is_held_then_closed(broker: RunningBroker) -> None:
    with WireClient(broker.address) as admin:
        limit(admin, HERE, 2)
        clients = [WireClient(broker.address) for _ in range(3)]
        assert is_served(clients[0]) and is_served(clients[1])
        listener = broker.server.listeners[0]
        assert broker.call(lambda: len(listener.throttled)) == 1
        pass_time(broker, 1.1)
        assert clients[2].is_closed()
        assert is_served(clients[0]), "connections that exist stay"
        limit(admin, HERE, None)
        with WireClient(broker.address) as later:
            assert is_served(later)
    for client in clients:
        client.close()


def test_above_the_rate_of_the_broker_clients_wait_and_are_served(tmp_path: Path) -> None:
    settings = {"quota.window.num": 2, "max.connection.creation.rate": 2}
    with RunningBroker(tmp_path, **settings) as broker:
        clients = [WireClient(broker.address) for _ in range(5)]
        for client in clients[:3]:
            assert is_served(client)
        listener = broker.server.listeners[0]
        assert broker.call(lambda: listener.paused is not None and listener.accepted == 3)
        for client in clients[3:]:
            pass_time(broker, 3)
            assert is_served(client)
            client.close()
        assert broker.server.broker.connection_rates.pauses >= 1


def test_a_broker_stops_while_clients_wait_or_are_held(tmp_path: Path) -> None:
    settings = {"quota.window.num": 2, "max.connection.creation.rate": 1}
    with RunningBroker(tmp_path, **settings) as broker:
        clients = [WireClient(broker.address) for _ in range(5)]
        assert is_served(clients[0])
    for client in clients:
        client.close()
