"""OAUTHBEARER: whose tokens are accepted, and which forged, expired or foreign ones are not."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from ottla.broker.security.sasl.exchange import AuthenticationFailed
from ottla.broker.security.sasl.web_tokens import (
    KNOWN,
    WITHOUT_KEYS_SECONDS,
    TokenRules,
    subject_of,
)
from ottla.broker.settings.declaration import SettingsError
from ottla.broker.settings.listener_settings import ListenerSettings
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import MetadataRequest
from tests.broker.running import WireClient
from tests.broker.security.authority import Authority
from tests.broker.security.logging_in import SaslBroker, send_token, shake

RSA, EC, OTHER = (
    rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1()),
    rsa.generate_private_key(65537, 2048),
)  # fmt: skip
ISSUER, AUDIENCE = "https://issuer.example", "kafka"


def key_set() -> str:
    keys = [
        {**jwt.algorithms.RSAAlgorithm.to_jwk(RSA.public_key(), as_dict=True), "kid": "r"},
        {**jwt.algorithms.ECAlgorithm.to_jwk(EC.public_key(), as_dict=True), "kid": "e"},
    ]
    return json.dumps({"keys": keys})


def settings(url: str) -> dict[str, object]:
    return {
        "listener.name.inside.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.inside.oauthbearer.sasl.server.callback.handler.class":
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    keys = tmp_path_factory.mktemp("keys") / "jwks.json"
    keys.write_text(key_set())
    with SaslBroker(tmp_path_factory.mktemp("oauth"), settings(f"file:{keys}")) as running:
        yield running


def claims(**other: Any) -> dict[str, Any]:
    now = int(time.time())
    found = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 600}
    return {name: value for name, value in {**found, **other}.items() if value is not None}


def signed(
    payload: dict[str, Any], key: Any = RSA, algorithm: str = "RS256", kid: str = "r"
) -> str:
    return jwt.encode(payload, key, algorithm, headers={"kid": kid})


def log_in(client: WireClient, token: str, first: str = "n,,\1auth=Bearer {}\1\1") -> Any:
    assert shake(client, "OAUTHBEARER").error_code == 0
    return send_token(client, first.format(token).encode())


@pytest.mark.parametrize(("key", "algorithm", "kid"), [(RSA, "RS256", "r"), (EC, "ES256", "e")])
def test_a_token_of_the_issuer_lets_its_subject_in_until_it_expires(
    broker: SaslBroker, key: Any, algorithm: str, kid: str
) -> None:
    with WireClient(broker.inside) as client:
        answer = log_in(client, signed(claims(), key, algorithm, kid))
        assert answer.error_code == 0 and 540_000 < answer.session_lifetime_ms <= 600_000
        assert client.call(MetadataRequest(topics=[]), 9).brokers
        listener = broker.server.listeners[1]
        who = broker.call(lambda: {each.client.principal for each in listener.connections})
        assert "User:alice" in who
        broker.loop_clock.passed_seconds += 601
        client.send(MetadataRequest(topics=[]), 9)
        assert client.is_closed()


NOW = int(time.time())


def deep() -> str:
    """The part of a token that has 20,000 nested JSON arrays."""
    return base64.urlsafe_b64encode(b"[" * 20_000).decode().rstrip("=")


def test_the_end_of_a_token_may_be_text_or_beyond_all_calendars(broker: SaslBroker) -> None:
    """An earlier version closed the connection with an internal error if a trusted issuer sent such
    a claim."""
    for end in (str(int(time.time()) + 600), 10**30):   # NOW may be long ago on a slow machine
        with WireClient(broker.inside) as client:
            answer = log_in(client, signed(claims(exp=end)))
            assert answer.error_code == 0 and answer.session_lifetime_ms > 0
            assert client.call(MetadataRequest(topics=[]), 9).brokers


SHARED = b"a secret that clients have too...."


@pytest.mark.parametrize(
    "token",
    [
        signed(claims(exp=NOW - 60, iat=NOW - 600)), signed(claims(nbf=NOW + 600)),
        signed(claims(iss="https://other.example")), signed(claims(aud="other")),
        signed(claims(aud=None)), signed(claims(iss=None)), signed(claims(sub=None)),
        signed(claims(exp=None)), signed(claims(sub=" ")), signed(claims(sub=7)),
        signed(claims(), OTHER), signed(claims(), RSA, "RS256", "unknown"),
        signed(claims(), EC, "ES256", "r"),
        jwt.encode(claims(), None, "none", headers={"kid": "r"}),
        jwt.encode(claims(), SHARED, "HS256", headers={"kid": "r"}),
        signed(claims())[:-6] + "AAAAAA", "a.b.c", "x",
        signed({**claims(), "exp": float("inf")}), deep(), deep() + ".e30.x",
    ],
    ids=["expired", "not yet valid", "another issuer", "another audience", "no audience",
         "no issuer", "no subject", "no end", "blank subject", "subject no text", "another key",
         "unknown key", "key of another kind", "unsigned", "signed by a shared secret", "cut",
         "garbage", "no token", "endless", "deep JSON", "deep JSON in three parts"],
)  # fmt: skip
def test_a_token_that_is_not_right_is_refused_without_a_reason(
    broker: SaslBroker, token: str
) -> None:
    with WireClient(broker.inside) as client:
        answer = log_in(client, token)
        assert (answer.error_code, bytes(answer.auth_bytes)) == (0, b'{"status":"invalid_token"}')
        answer = send_token(client, b"\1")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()


def test_extensions_beside_the_token_are_none_of_the_brokers_business(broker: SaslBroker) -> None:
    with WireClient(broker.inside) as client:
        first = "n,,\1team=a\1auth=Bearer {}\1xauth=y\1\1"
        assert log_in(client, signed(claims()), first).error_code == 0


@pytest.mark.parametrize(
    "first", ["", "n,,", "n,,\1\1", "n,,\1auth=Basic {}\1\1", "y,,\1auth=Bearer {}\1\1",
              "n,a=bob,\1auth=Bearer {}\1\1", "n,,\1auth=Bearer {}\1",
              "n,,\1auth=Bearer {}\1auth=x\1\1", "n,,\1auth=x\1auth=Bearer {}\1\1"],
)  # fmt: skip
def test_a_message_that_is_none_or_for_somebody_else_is_refused(
    broker: SaslBroker, first: str
) -> None:
    with WireClient(broker.inside) as client:
        answer = log_in(client, signed(claims()), first)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()


class Keys(BaseHTTPRequestHandler):
    """Serves the key set of the issuer."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(key_set().encode())

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def test_keys_are_read_from_a_url_too(data: Path) -> None:
    server = HTTPServer(("127.0.0.1", 0), Keys)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with SaslBroker(data, settings(f"http://127.0.0.1:{server.server_port}/keys")) as broker:
        with WireClient(broker.inside) as client:
            assert log_in(client, signed(claims())).error_code == 0
    server.shutdown()
    server.server_close()


def test_keys_at_an_https_url_are_read_again(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an issuer has changed its keys, tokens of the new key are accepted, and tokens of the
    old key are refused."""
    authority, served = Authority(tmp_path), [RSA]

    class Changing(Keys):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            public = jwt.algorithms.RSAAlgorithm.to_jwk(served[0].public_key(), as_dict=True)
            self.wfile.write(json.dumps({"keys": [{**public, "kid": "r"}]}).encode())

    server = HTTPServer(("127.0.0.1", 0), Changing)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("issuer"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    asked = settings(f"https://localhost:{server.server_port}/keys")
    asked["sasl.oauthbearer.jwks.endpoint.refresh.ms"] = "1"

    def is_accepted(key: Any) -> bool:
        with WireClient(broker.inside) as client:
            return not bytes(log_in(client, signed(claims(), key)).auth_bytes)

    with SaslBroker(data, asked) as broker:
        assert is_accepted(RSA) and not is_accepted(OTHER)
        served[0] = OTHER
        assert is_accepted(OTHER) and not is_accepted(RSA)
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("url", ["", "ftp://x/keys", "file:/nowhere", "/etc/passwd"])
def test_a_listener_without_keys_is_an_error_at_start(data: Path, url: str) -> None:
    with pytest.raises(SettingsError, match="jwks"):
        SaslBroker(data, settings(url))


class Endpoint:
    """An issuer's URL that serves `keys`, or fails if `keys` is None."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] | None = json.loads(key_set())["keys"]
        outer = self

        class Answering(Keys):
            def do_GET(self) -> None:
                self.send_response(500 if outer.keys is None else 200)
                self.end_headers()
                self.wfile.write(json.dumps({"keys": outer.keys}).encode())

        self.server = HTTPServer(("127.0.0.1", 0), Answering)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def rules(self) -> TokenRules:
        url = f"http://127.0.0.1:{self.server.server_port}/keys"
        return TokenRules(ListenerSettings({
            "sasl.oauthbearer.jwks.endpoint.url": url,
            "sasl.oauthbearer.jwks.endpoint.refresh.ms": "1",
        }))  # fmt: skip

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_known_keys_count_while_the_issuer_cannot_be_reached(
    caplog: pytest.LogCaptureFixture
) -> None:
    """In an earlier version, nobody could log in any more once the issuer had not answered for an
    hour."""
    with Endpoint() as endpoint:
        rules, token = endpoint.rules(), signed(claims())
        assert rules.check(token)[0] == "alice"
        endpoint.keys, rules.read_at = None, float("-inf")
        assert rules.check(token)[0] == rules.check(token)[0] == "alice"
        assert caplog.text.count("the previous 2 keys stay in use") == 1, "not asked again"
        with pytest.raises(AuthenticationFailed):
            rules.check(signed(claims(), RSA, "RS256", "unknown"))
        endpoint.keys, rules.failed_at = [], float("-inf")
        with pytest.raises(AuthenticationFailed):
            rules.check(token)


def test_known_keys_count_after_a_change_of_settings_too() -> None:
    """SIGHUP, and any change of the broker's settings, make new rules for new logins. In an earlier
    version, nobody could log in then until the issuer answered."""
    with Endpoint() as endpoint:
        assert endpoint.rules().check(signed(claims()))[0] == "alice"
        endpoint.keys, known = None, endpoint.keys
        rules = endpoint.rules()
        assert rules.check(signed(claims()))[0] == "alice"
        with pytest.raises(AuthenticationFailed):
            rules.check(signed(claims(), RSA, "RS256", "unknown"))
        assert known is not None
        endpoint.keys, rules.failed_at = known[1:], float("-inf")
        with pytest.raises(AuthenticationFailed):
            rules.check(signed(claims()))


def test_an_issuer_that_answers_later_is_asked_again() -> None:
    with Endpoint() as endpoint:
        endpoint.keys, known = None, endpoint.keys
        rules = endpoint.rules()
        with pytest.raises(AuthenticationFailed):
            rules.check(signed(claims()))
        endpoint.keys = known
        rules.failed_at -= WITHOUT_KEYS_SECONDS
        assert rules.check(signed(claims()))[0] == "alice"


def test_a_key_that_is_of_no_use_here_does_not_spoil_the_others(
    caplog: pytest.LogCaptureFixture
) -> None:
    with Endpoint() as endpoint:
        assert endpoint.keys is not None
        spoilt = {"kty": "RSA", "alg": "RSA-OAEP", "n": "AQAB", "e": "AQAB", "kid": "for-secrets"}
        endpoint.keys[:0] = [spoilt, {"kty": "of tomorrow", "kid": "new"}]
        assert endpoint.rules().check(signed(claims()))[0] == "alice"
        assert "'for-secrets' cannot be used" in caplog.text
        endpoint.keys[2:] = []
        KNOWN.clear()
        with pytest.raises(AuthenticationFailed):
            endpoint.rules().check(signed(claims()))


@pytest.mark.parametrize("subject", ["", "  ", 7, None, "half \ud800 of a character"])
def test_a_subject_that_is_no_name_is_refused(subject: object) -> None:
    with pytest.raises(AuthenticationFailed):
        subject_of(subject)
