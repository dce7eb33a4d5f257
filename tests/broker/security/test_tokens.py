"""Delegation tokens: who gets one, who may renew or expire it, and logging in with it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.log.files.clock import Clock
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    MetadataRequest,
    RenewDelegationTokenRequest,
)
from tests.broker.running import WireClient, pass_time
from tests.broker.security.logging_in import SaslBroker, log_in
from tests.waiting import until

KEY = {"delegation.token.secret.key": "the cluster's secret"}
DAY_MS = 86_400_000


class LaterClock(Clock):
    """The machine's clock, advanced by some days."""

    def __init__(self, days: int) -> None:
        self.days = days

    def now_ms(self) -> int:
        return super().now_ms() + self.days * DAY_MS


@pytest.fixture
def broker(data: Path) -> Iterator[SaslBroker]:
    with SaslBroker(data, KEY) as running:
        yield running


def client_of(broker: SaslBroker, user: str) -> WireClient:
    client = WireClient(broker.inside)
    assert log_in(client, "PLAIN", user, f"{user}-secret").error_code == 0
    return client


def make_token(client: WireClient, *renewers: str, lifetime_ms: int = -1, **owner: str) -> Any:
    kind = CreateDelegationTokenRequest.Renewer
    return client.call(CreateDelegationTokenRequest(
        renewers=[kind(principal_type="User", principal_name=name) for name in renewers],
        max_lifetime_ms=lifetime_ms, **owner,
    ), 3)  # fmt: skip


def describe(client: WireClient, *owners: str) -> list[str]:
    made = DescribeDelegationTokenRequest.Owner
    wanted = [made(principal_type="User", principal_name=name) for name in owners] or None
    answer = client.call(DescribeDelegationTokenRequest(owners=wanted), 3)
    assert answer.error_code == 0
    return [token.token_id for token in answer.tokens]


def log_in_with(client: WireClient, token: Any, mechanism: str = "SCRAM-SHA-256") -> Any:
    password = base64.b64encode(bytes(token.hmac)).decode()
    return log_in(client, mechanism, token.token_id, password, tokenauth="true")


def renew(client: WireClient, token: Any, period_ms: int = -1) -> Any:
    return client.call(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=period_ms), 2)


def expire(client: WireClient, token: Any, period_ms: int = -1) -> Any:
    wanted = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period_ms)
    return client.call(wanted, 2)


def test_a_token_lasts_as_long_as_the_settings_say(broker: SaslBroker) -> None:
    with client_of(broker, "alice") as alice:
        token = make_token(alice)
        assert (token.error_code, token.principal_name) == (0, "alice")
        assert token.expiry_timestamp_ms == token.issue_timestamp_ms + DAY_MS
        assert token.max_timestamp_ms == token.issue_timestamp_ms + 7 * DAY_MS
        short = make_token(alice, lifetime_ms=1000)
        assert short.expiry_timestamp_ms == short.issue_timestamp_ms + 1000
        assert sorted(describe(alice)) == sorted([token.token_id, short.token_id])


def test_tokens_and_sessions_may_last_for_ever(data: Path) -> None:
    """The sum of the time and the lifetime has more than 64 bits."""
    longest = 2**63 - 1
    names = ("delegation.token.max.lifetime.ms", "delegation.token.expiry.time.ms",
             "connections.max.reauth.ms")  # fmt: skip
    settings = dict.fromkeys(names, longest)
    with SaslBroker(data, KEY | settings) as broker, WireClient(broker.inside) as alice:
        answer = log_in(alice, "PLAIN", "alice", "alice-secret")
        assert answer.error_code == 0
        assert answer.session_lifetime_ms == pytest.approx(longest)     # measured with floats
        token = make_token(alice)
        assert token.expiry_timestamp_ms == token.max_timestamp_ms == longest
        assert describe(alice) == [token.token_id]
        assert renew(alice, token).expiry_timestamp_ms == longest
        with WireClient(broker.inside) as worker:
            assert log_in_with(worker, token).session_lifetime_ms > longest // 2


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_who_has_a_token_logs_in_as_its_owner_and_gets_no_other(
    broker: SaslBroker, mechanism: str
) -> None:
    with client_of(broker, "alice") as alice, WireClient(broker.inside) as worker:
        token = make_token(alice)
        answer = log_in_with(worker, token, mechanism)
        assert answer.error_code == 0
        assert DAY_MS - 60_000 < answer.session_lifetime_ms <= DAY_MS
        assert worker.call(MetadataRequest(topics=[]), 9).brokers
        listener = broker.server.listeners[1]
        who = broker.call(lambda: [each.client.principal for each in listener.connections])
        assert who == ["User:alice", "User:alice"]
        not_allowed = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert make_token(worker).error_code == renew(worker, token).error_code == not_allowed


def test_a_tokens_id_is_no_users_name_and_a_user_no_token(broker: SaslBroker) -> None:
    with client_of(broker, "alice") as alice:
        token = make_token(alice)
    password = base64.b64encode(bytes(token.hmac)).decode()
    with WireClient(broker.inside) as client:
        assert log_in(client, "SCRAM-SHA-256", token.token_id, password).error_code != 0
    with WireClient(broker.inside) as client:
        assert log_in(client, "SCRAM-SHA-256", token.token_id, "x", tokenauth="true").error_code


def test_a_token_ends_when_its_owner_or_a_renewer_says_so(broker: SaslBroker) -> None:
    with client_of(broker, "alice") as alice, client_of(broker, "bob") as bob:
        mine, shared = make_token(alice), make_token(alice, "bob")
        assert describe(bob) == [shared.token_id]
        mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert renew(bob, mine).error_code == expire(bob, mine).error_code == mismatch
        assert renew(bob, shared, 8 * DAY_MS).expiry_timestamp_ms == shared.max_timestamp_ms
        assert expire(bob, shared).error_code == 0
        assert renew(bob, shared).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert expire(alice, mine, 0).error_code == 0
    with WireClient(broker.inside) as worker:
        assert log_in_with(worker, shared).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_tokens_are_selected_by_whom_they_belong_to(broker: SaslBroker) -> None:
    """As in Apache Kafka 4.4.0, a token is selected by its owner, requester or renewer. An empty
    list of owners selects nothing."""
    with client_of(broker, "alice") as alice, client_of(broker, "bob") as bob:
        mine, shared, his = make_token(alice), make_token(alice, "bob"), make_token(bob)
        assert describe(alice) == describe(alice, "alice") == [mine.token_id, shared.token_id]
        assert describe(alice, "bob") == [shared.token_id]
        assert describe(bob, "alice") == [shared.token_id]
        assert describe(bob, "bob", "carol") == [shared.token_id, his.token_id]
        assert describe(alice, "carol") == []
        nobody = DescribeDelegationTokenRequest(owners=[])
        assert [alice.call(nobody, version).tokens for version in range(4)] == [[]] * 4


def test_an_expired_token_lets_nobody_in_and_is_not_prolonged(broker: SaslBroker) -> None:
    with client_of(broker, "alice") as alice:
        token = make_token(alice)
        broker.server.clock = broker.server.broker.clock = later = LaterClock(2)
        assert later.now_ms() > token.expiry_timestamp_ms
        with WireClient(broker.inside) as worker:
            assert log_in_with(worker, token).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert renew(alice, token).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
        make_token(alice)
        assert token.token_id not in describe(alice)


def test_expired_tokens_are_removed_at_intervals(data: Path) -> None:
    settings = KEY | {"delegation.token.expiry.check.interval.ms": "60000"}
    clock = LaterClock(0)
    with SaslBroker(data, settings, clock) as broker, client_of(broker, "alice") as alice:
        token, longer = make_token(alice), make_token(alice)
        assert renew(alice, longer, 5 * DAY_MS).error_code == 0
        clock.days = 2
        log = broker.server.metadata_log
        pass_time(broker, 59)
        assert token.token_id in log.image.tokens
        pass_time(broker, 2)
        until(lambda: token.token_id not in log.image.tokens, "the removal")
        assert longer.token_id in log.image.tokens
    with SaslBroker(data, KEY) as broker:
        assert set(broker.server.metadata_log.image.tokens) == {longer.token_id}


def test_tokens_survive_a_restart(data: Path) -> None:
    with SaslBroker(data, KEY) as broker, client_of(broker, "alice") as alice:
        token = make_token(alice)
    with SaslBroker(data, KEY) as broker, WireClient(broker.inside) as worker:
        assert log_in_with(worker, token).error_code == 0
    with SaslBroker(data, {"delegation.token.secret.key": "another"}) as broker:
        with WireClient(broker.inside) as worker:
            assert log_in_with(worker, token).error_code != 0


@pytest.mark.parametrize("key", [{}, {"delegation.token.secret.key": ""}], ids=["none", "empty"])
def test_there_are_no_tokens_without_a_secret_key_or_a_login(
    broker: SaslBroker, tmp_path: Path, key: dict[str, str]
) -> None:
    """Everybody could derive the secrets of tokens from an empty key."""
    with WireClient(broker.address) as anybody:
        assert make_token(anybody).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    with SaslBroker(tmp_path / "other", key) as without, client_of(without, "alice") as alice:
        assert make_token(alice).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_renewers_are_users(broker: SaslBroker) -> None:
    with client_of(broker, "alice") as alice:
        kind = CreateDelegationTokenRequest.Renewer
        wanted = [kind(principal_type="Group", principal_name="all")]
        answer = alice.call(CreateDelegationTokenRequest(renewers=wanted, max_lifetime_ms=-1), 3)
        assert answer.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


def test_a_token_for_somebody_else_needs_the_right_to_create_it(data: Path) -> None:
    rules = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice",
    }
    with SaslBroker(data, {**KEY, **rules}) as broker:
        owner = {"owner_principal_type": "User", "owner_principal_name": "carol"}
        with client_of(broker, "bob") as bob:
            refused = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
            assert make_token(bob, **owner).error_code == refused
        with client_of(broker, "alice") as alice:
            token = make_token(alice, **owner)
            assert (token.principal_name, token.token_requester_principal_name) == (
                "carol", "alice")
            with WireClient(broker.inside) as worker:
                assert log_in_with(worker, token).error_code == 0
            # The requester of another user's token, for example a service, may renew and expire it
            # (KIP-373).
            assert renew(alice, token, DAY_MS).error_code == 0
            assert describe(alice) == [token.token_id]
            assert expire(alice, token).error_code == 0
            assert renew(alice, token).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
