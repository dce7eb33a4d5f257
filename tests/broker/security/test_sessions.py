"""Sessions that expire (KIP-368), and clients that never authenticate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker import listener as listeners
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import MetadataRequest
from tests.broker.configs import alter
from tests.broker.running import NODE_ID, WireClient
from tests.broker.security.logging_in import (
    JAAS,
    SaslBroker,
    log_in,
    make_user,
    send_token,
    shake,
)

BROKER, SET = 4, 0
LIFETIME_MS = 60_000


@pytest.fixture
def broker(data: Path) -> Iterator[SaslBroker]:
    with SaslBroker(data, {"connections.max.reauth.ms": LIFETIME_MS}) as running:
        yield running


@pytest.fixture
def client(broker: SaslBroker) -> Iterator[WireClient]:
    with WireClient(broker.inside) as connected:
        yield connected


def passes(broker: SaslBroker, seconds: float) -> None:
    broker.loop_clock.passed_seconds += seconds


def served(client: WireClient) -> bool:
    return bool(client.call(MetadataRequest(topics=[]), 9).brokers)


def test_a_session_that_was_not_renewed_is_closed(broker: SaslBroker, client: WireClient) -> None:
    answer = log_in(client, "PLAIN", "bob", "bob-secret")
    assert LIFETIME_MS - 2000 < answer.session_lifetime_ms <= LIFETIME_MS
    passes(broker, 50)
    assert served(client)
    passes(broker, 11)
    client.send(MetadataRequest(topics=[]), 9)
    assert client.is_closed()


@pytest.mark.parametrize("seconds", [30, 90])
def test_a_session_is_renewed_before_its_end_or_after_it(
    broker: SaslBroker, client: WireClient, seconds: int
) -> None:
    log_in(client, "PLAIN", "bob", "bob-secret")
    passes(broker, seconds)
    assert log_in(client, "PLAIN", "bob", "bob-secret").session_lifetime_ms > LIFETIME_MS - 2000
    passes(broker, 50)
    assert served(client)


def test_nobody_becomes_somebody_else_by_renewing(client: WireClient) -> None:
    log_in(client, "PLAIN", "bob", "bob-secret")
    answer = log_in(client, "PLAIN", "alice", "alice-secret")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "Cannot change principals during re-authentication" in answer.error_message
    assert client.is_closed()


def test_a_session_is_renewed_by_the_mechanism_that_it_began_with(
    broker: SaslBroker, client: WireClient
) -> None:
    with WireClient(broker.address) as admin:
        make_user(admin, "bob", "bob-secret", "SCRAM-SHA-256")
    log_in(client, "PLAIN", "bob", "bob-secret")
    assert shake(client, "SCRAM-SHA-256").error_code == 0
    answer = send_token(client, b"n,,n=bob,r=abc")
    assert "is not supported for re-authentication of mechanism 'PLAIN'" in answer.error_message
    assert client.is_closed()


def test_a_wrong_password_when_renewing_ends_the_connection(client: WireClient) -> None:
    log_in(client, "PLAIN", "bob", "bob-secret")
    assert log_in(client, "PLAIN", "bob", "wrong").error_code != 0
    assert client.is_closed()


def test_a_session_is_renewed_by_the_users_that_there_are_then(
    broker: SaslBroker, client: WireClient
) -> None:
    """A removed user keeps what is left of the session, and cannot renew it."""
    with WireClient(broker.inside) as other:
        log_in(client, "PLAIN", "bob", "bob-secret")
        log_in(other, "PLAIN", "alice", "alice-secret")
        with WireClient(broker.address) as admin:
            without_bob = JAAS.replace('user_bob="bob-secret"', 'user_carol="c"')
            name = "listener.name.inside.plain.sasl.jaas.config"
            assert alter(admin, BROKER, str(NODE_ID), (name, SET, without_bob)) == 0
        assert served(client) and served(other)
        passes(broker, 30)
        refused = log_in(client, "PLAIN", "bob", "bob-secret")
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()
        assert log_in(other, "PLAIN", "alice", "alice-secret").error_code == 0


def test_a_connection_renews_its_session_once_a_second_at_most(
    broker: SaslBroker, client: WireClient
) -> None:
    log_in(client, "PLAIN", "bob", "bob-secret")
    log_in(client, "PLAIN", "bob", "bob-secret")
    assert shake(client, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
    passes(broker, 1.1)
    assert log_in(client, "PLAIN", "bob", "bob-secret").error_code == 0


def test_clients_that_do_not_log_in_are_closed_after_a_while(broker: SaslBroker) -> None:
    with WireClient(broker.inside) as silent, WireClient(broker.inside) as known:
        silent.negotiate()
        log_in(known, "PLAIN", "bob", "bob-secret")
        passes(broker, listeners.LOGIN_SECONDS + 1)
        broker.call(broker.server.listeners[1].sweep)
        assert silent.is_closed()
        assert served(known)


def test_many_who_do_not_log_in_make_room_for_the_next(
    broker: SaslBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "STRANGERS_MAX", 3)
    with WireClient(broker.inside) as known:
        log_in(known, "PLAIN", "bob", "bob-secret")
        strangers = [WireClient(broker.inside) for _ in range(4)]
        assert strangers[0].is_closed()
        strangers[3].negotiate()
        assert served(known)
        assert len(broker.server.listeners[1].strangers) == 3
        for each in strangers:
            each.close()
