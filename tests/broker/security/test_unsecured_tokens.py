"""OAUTHBEARER without signatures is accepted only where it is configured, and then by Kafka's
rules."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.security.sasl.exchange import AuthenticationFailed
from ottla.broker.security.sasl.unsecured_tokens import UnsecuredRules
from ottla.broker.settings.declaration import SettingsError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import MetadataRequest
from tests.broker.running import WireClient
from tests.broker.security.logging_in import SaslBroker, send_token, shake

INSIDE = "listener.name.inside."
HANDLER = INSIDE + "oauthbearer.sasl.server.callback.handler.class"
VALIDATOR = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured"
    ".OAuthBearerUnsecuredValidatorCallbackHandler"
)
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
NAME = INSIDE + "oauthbearer.sasl.jaas.config"
NOW = 1_700_000_000


def jaas(**options: str) -> str:
    texts = "".join(f' unsecuredValidator{name}="{text}"' for name, text in options.items())
    return f"{MODULE} required{texts};"


def settings(**options: str) -> dict[str, object]:
    return {
        INSIDE + "sasl.enabled.mechanisms": "OAUTHBEARER", HANDLER: VALIDATOR,
        NAME: jaas(**options),
    }  # fmt: skip


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def unsecured(signature: str = "", alg: str = "none", **claims: Any) -> str:
    found = {"sub": "alice", "iat": NOW, "exp": NOW + 600} | claims
    kept = {name: value for name, value in found.items() if value is not None}
    return f"{part({'alg': alg})}.{part(kept)}.{signature}"


@pytest.fixture
def broker(data: Path) -> Iterator[SaslBroker]:
    with SaslBroker(data, settings()) as running:
        yield running


def log_in(client: WireClient, token: str) -> Any:
    assert shake(client, "OAUTHBEARER").error_code == 0
    return send_token(client, f"n,,\1auth=Bearer {token}\1\1".encode())


def test_who_asks_for_unsecured_tokens_gets_them_and_a_warning(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = int(time.time())
    with SaslBroker(data, settings()) as broker, WireClient(broker.inside) as client:
        answer = log_in(client, unsecured(iat=now, exp=now + 600))
        assert answer.error_code == 0
        assert 590_000 < answer.session_lifetime_ms <= 600_000
        assert client.call(MetadataRequest(topics=[]), 9).brokers
        with WireClient(broker.inside) as other:
            assert bytes(log_in(other, unsecured(iat=now - 9, exp=now - 1)).auth_bytes) == (
                b'{"status":"invalid_token"}'
            )
            answer = send_token(other, b"\1")
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert other.is_closed()
    assert "listener INSIDE accepts unsecured tokens" in caplog.text


def test_without_asking_a_listener_has_to_know_the_keys(data: Path) -> None:
    asked = settings()
    del asked[HANDLER]
    with pytest.raises(SettingsError, match="jwks"):
        SaslBroker(data, asked)


def rules(**options: str) -> UnsecuredRules:
    made = {f"unsecuredValidator{name}": text for name, text in options.items()}
    return UnsecuredRules(NAME, made, lambda: NOW * 1000.0)


def test_claims_have_the_names_that_the_options_say() -> None:
    checked = rules(PrincipalClaimName="who", ScopeClaimName="may", RequiredScope="read write")
    assert checked.check(unsecured(who="bob", may="write read more")) == (
        "bob", (NOW + 600) * 1000)  # fmt: skip
    assert checked.check(unsecured(who="bob", may=["read", "write"]))[0] == "bob"
    for missing in ({"may": "read"}, {}, {"scope": "read write"}):
        with pytest.raises(AuthenticationFailed, match="scope"):
            checked.check(unsecured(who="bob", **missing))


@pytest.mark.parametrize(
    "token",
    [
        unsecured(exp=NOW), unsecured(iat=NOW + 1), unsecured(exp=None), unsecured(sub=None),
        unsecured(sub=" "), unsecured(sub=7), unsecured("c2lnbmVk"), unsecured(alg="HS256"),
        unsecured(exp="soon"), unsecured(exp=float("inf")), "x", "a.b.", "..", f"{part([])}..",
        f"{part({'alg': 'none'})}.{part([])}.", f"{part({'alg': 'none'})}.{'W' * 60_000}.",
    ],
)  # fmt: skip
def test_a_token_that_is_not_right_is_refused(token: str) -> None:
    with pytest.raises(AuthenticationFailed):
        rules().check(token)


def test_clocks_may_differ_by_the_allowed_skew() -> None:
    checked = rules(AllowableClockSkewMs="2000")
    assert checked.check(unsecured(exp=NOW - 1))[0] == "alice"
    assert checked.check(unsecured(iat=NOW + 1))[0] == "alice"
    with pytest.raises(AuthenticationFailed):
        checked.check(unsecured(exp=NOW - 3))
    with pytest.raises(SettingsError, match="AllowableClockSkewMs"):
        rules(AllowableClockSkewMs="-1")
