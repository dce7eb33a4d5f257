"""A SASL listener: who may log in, what is refused with which code, and what attackers can
learn."""

from __future__ import annotations

import base64
import hmac
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.security.sasl.exchange import InvalidExchange
from ottla.broker.security.sasl.scram import ScramExchange
from ottla.client.sasl import ScramClient
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    ApiVersionsRequest,
    DescribeAclsRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.broker.running import WireClient
from tests.broker.security.logging_in import (
    SaslBroker,
    delete_user,
    log_in,
    make_user,
    send_token,
    shake,
)

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MASKED = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism"
)
REFUSED = "Authentication failed: Invalid username or password"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    with SaslBroker(tmp_path_factory.mktemp("sasl")) as running:
        with WireClient(running.address) as admin:
            for mechanism in SCRAM:
                make_user(admin, "scarlet", "s-secret", mechanism)
        yield running


@pytest.fixture
def client(broker: SaslBroker) -> Iterator[WireClient]:
    with WireClient(broker.inside) as connected:
        yield connected


def served(client: WireClient) -> bool:
    return bool(client.call(MetadataRequest(topics=[]), 9).brokers)


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_a_user_with_the_right_password_is_served(client: WireClient, mechanism: str) -> None:
    user, password = ("alice", "alice-secret") if mechanism == "PLAIN" else ("scarlet", "s-secret")
    answer = log_in(client, mechanism, user, password)
    assert (answer.error_code, answer.error_message, answer.session_lifetime_ms) == (0, None, 0)
    assert served(client)


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
@pytest.mark.parametrize("user", ["alice", "scarlet", "nobody"])
def test_a_wrong_password_and_an_unknown_user_are_told_the_same_and_closed(
    client: WireClient, mechanism: str, user: str
) -> None:
    answer = log_in(client, mechanism, user, "wrong")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == (REFUSED if mechanism == "PLAIN" else f"{MASKED} {mechanism}")
    assert client.is_closed()


def test_an_unknown_user_is_given_a_salt_that_stays_the_same(broker: SaslBroker) -> None:
    salts = []
    for _ in range(2):
        with WireClient(broker.inside) as client:
            shake(client, "SCRAM-SHA-256")
            exchange = ScramClient("SCRAM-SHA-256", "nobody", "x", {})
            answer = send_token(client, exchange.first())
            salts.append(bytes(answer.auth_bytes).split(b",")[1:])
    assert salts[0] == salts[1] and salts[0][1] == b"i=4096"


@pytest.mark.parametrize("mechanism", SCRAM)
def test_a_user_made_and_deleted_on_the_running_broker_counts_at_once(
    broker: SaslBroker, mechanism: str
) -> None:
    with WireClient(broker.address) as admin:
        make_user(admin, "newcomer", "n1", mechanism, iterations=8192)
        with WireClient(broker.inside) as client:
            assert log_in(client, mechanism, "newcomer", "n1").error_code == 0
        make_user(admin, "newcomer", "n2", mechanism)
        with WireClient(broker.inside) as client:
            assert log_in(client, mechanism, "newcomer", "n1").error_code != 0
        delete_user(admin, "newcomer", mechanism)
    with WireClient(broker.inside) as client:
        assert log_in(client, mechanism, "newcomer", "n2").error_code != 0


def test_a_users_name_may_have_commas_and_equals_signs(broker: SaslBroker) -> None:
    with WireClient(broker.address) as admin, WireClient(broker.inside) as client:
        make_user(admin, "a=b,c", "x", "SCRAM-SHA-256")
        assert log_in(client, "SCRAM-SHA-256", "a=b,c", "x").error_code == 0


@pytest.mark.parametrize(
    "request_", [MetadataRequest(topics=[]), DescribeAclsRequest(resource_type_filter=1),
                 SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret")],
    ids=["Metadata", "DescribeAcls", "SaslAuthenticate"],
)  # fmt: skip
def test_nothing_is_answered_before_the_login(
    client: WireClient, request_: MetadataRequest
) -> None:
    client.send(request_, 1)
    assert client.is_closed()


def test_every_api_but_the_three_closes_the_connection_before_the_login(
    broker: SaslBroker
) -> None:
    for key in ApiKey:
        if key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE):
            continue
        with WireClient(broker.inside) as client:
            client.send_frame(key.to_bytes(2, "big") + bytes(8) + b"\xff\xff" + bytes(20))
            assert client.is_closed(), key


def test_versions_may_be_asked_before_the_login_and_not_in_its_middle(
    broker: SaslBroker
) -> None:
    with WireClient(broker.inside) as client:
        client.negotiate()
        assert log_in(client, "PLAIN", "bob", "bob-secret").error_code == 0
        client.negotiate()
    with WireClient(broker.inside) as client:
        shake(client, "PLAIN")
        client.send(ApiVersionsRequest(), 0)
        assert client.is_closed()


def test_a_mechanism_that_is_not_enabled_is_refused_with_the_list(client: WireClient) -> None:
    answer = shake(client, "GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", *SCRAM]
    assert client.is_closed()


def test_a_second_handshake_before_the_token_closes_the_connection(client: WireClient) -> None:
    shake(client, "PLAIN")
    client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert client.is_closed()


def test_a_handshake_after_the_login_is_refused_where_sessions_do_not_end(
    client: WireClient
) -> None:
    log_in(client, "PLAIN", "bob", "bob-secret")
    assert shake(client, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert send_token(client, b"x").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert served(client)


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (b"bob", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0bob\0bob-secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0x", "Authentication failed: username not specified"),
        (b"\0bob\0", "Authentication failed: password not specified"),
        (b"\xff\xfe\0bob\0bob-secret", "an authorization id that is different"),
        # CVE-2017-12610: no user may act as another.
        (b"alice\0bob\0bob-secret", "an authorization id that is different from username"),
    ],
)
def test_a_plain_token_that_is_not_right_is_told_as_by_kafka(
    client: WireClient, token: bytes, told: str
) -> None:
    shake(client, "PLAIN")
    answer = send_token(client, token)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert told in answer.error_message
    assert client.is_closed()


def test_an_authorization_id_that_is_the_user_is_accepted(client: WireClient) -> None:
    shake(client, "PLAIN")
    assert send_token(client, b"bob\0bob\0bob-secret").error_code == 0


@pytest.mark.parametrize(
    "first",
    [b"", b"n,,", b"y,,n=u,r=abc", b"p=tls-unique,,n=u,r=abc", b"n,,n=,r=abc", b"n,,n=u,r=",
     b"n,,n=u,r=a b", b"\xff", b"n,,n=u=,r=abc"],
)  # fmt: skip
def test_a_first_scram_message_that_is_none_ends_the_exchange(
    client: WireClient, first: bytes
) -> None:
    shake(client, "SCRAM-SHA-256")
    assert send_token(client, first).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed()


def test_scram_does_not_let_a_user_act_in_anothers_name(client: WireClient) -> None:
    shake(client, "SCRAM-SHA-256")
    answer = send_token(client, b"n,a=alice,n=scarlet,r=abc")
    assert "an authorization id that is different" in answer.error_message


@pytest.mark.parametrize("change", ["nonce", "binding", "proof", "short", "long"])
def test_the_last_scram_message_has_to_be_right_in_all_its_parts(
    client: WireClient, change: str
) -> None:
    shake(client, "SCRAM-SHA-256")
    exchange = ScramClient("SCRAM-SHA-256", "scarlet", "s-secret", {})
    answer = send_token(client, exchange.first())
    last = (exchange.answer(bytes(answer.auth_bytes)) or b"").decode()
    if change == "nonce":                   # CVE-2024-56128: signed, but over another nonce
        other = bytes(answer.auth_bytes).replace(b"r=" + exchange.nonce.encode(), b"r=xyz")
        again = ScramClient("SCRAM-SHA-256", "scarlet", "s-secret", {})
        again.nonce = "xyz"
        last = (again.answer(other) or b"").decode()
    elif change == "binding":
        last = last.replace("c=biws", "c=eSws")
    else:
        proof = base64.b64decode(last.rpartition("p=")[2])
        wrong = {"proof": proof[::-1], "short": proof[:-1], "long": proof + b"\0"}[change]
        last = last.rpartition("p=")[0] + "p=" + base64.b64encode(wrong).decode()
    answer = send_token(client, last.encode())
    assert answer.error_message == f"{MASKED} SCRAM-SHA-256"


def test_an_old_librdkafka_is_told_why_it_cannot_log_in_by_scram(client: WireClient) -> None:
    """Before 2.6.1, librdkafka repeats its own nonce before the combined nonce. Debian 12's kcat
    has librdkafka 2.0.2."""
    shake(client, "SCRAM-SHA-256")
    exchange = ScramClient("SCRAM-SHA-256", "scarlet", "s-secret", {})
    answer = send_token(client, exchange.first())
    last = exchange.answer(bytes(answer.auth_bytes)) or b""
    repeated = last.replace(b"r=", b"r=" + exchange.nonce.encode())
    answer = send_token(client, repeated)
    assert answer.error_code and "librdkafka before 2.6.1" in answer.error_message


def test_bare_tokens_follow_the_first_version_of_the_handshake(broker: SaslBroker) -> None:
    with WireClient(broker.inside) as client:
        assert shake(client, "PLAIN", 0).error_code == 0
        client.send_frame(b"\0bob\0bob-secret")
        assert client.socket.recv(4, socket.MSG_WAITALL) == bytes(4)      # an empty token
        assert served(client)
    with WireClient(broker.inside) as client:
        shake(client, "SCRAM-SHA-512", 0)
        exchange = ScramClient("SCRAM-SHA-512", "scarlet", "s-secret", {})
        client.send_frame(exchange.first())
        client.send_frame(exchange.answer(bytes(client.receive_frame())) or b"")
        assert exchange.answer(bytes(client.receive_frame())) is None
        assert served(client)


def test_a_bare_token_that_is_wrong_closes_the_connection(client: WireClient) -> None:
    shake(client, "PLAIN", 0)
    client.send_frame(b"\0bob\0wrong")
    assert client.is_closed()


def test_a_large_frame_is_refused_before_the_login_and_served_after_it(
    broker: SaslBroker
) -> None:
    with WireClient(broker.inside) as client:
        client.send_bytes((524_289).to_bytes(4, "big"))
        assert client.is_closed()
    with WireClient(broker.inside) as client:
        log_in(client, "PLAIN", "bob", "bob-secret")
        assert client.call(MetadataRequest(topics=[
            MetadataRequest.Topic(name="x" * 30_000) for _ in range(20)]), 4).topics


def test_frames_sent_before_the_login_has_ended_wait_for_it(client: WireClient) -> None:
    shake(client, "PLAIN")
    sent = client.send(SaslAuthenticateRequest(auth_bytes=b"\0bob\0bob-secret"), 2)
    asked = client.send(MetadataRequest(topics=[]), 9)
    assert client.answer(sent).error_code == 0
    assert client.answer(asked).brokers


def test_a_failure_is_answered_after_a_delay_and_nothing_is_served_meanwhile(data: Path) -> None:
    with SaslBroker(data, {"connection.failed.authentication.delay.ms": 20_000}) as broker:
        with WireClient(broker.inside) as client:
            shake(client, "PLAIN")
            sent = client.send(SaslAuthenticateRequest(auth_bytes=b"\0bob\0wrong"), 2)
            client.send(MetadataRequest(topics=[]), 9)
            client.socket.setblocking(False)
            with WireClient(broker.address) as other:
                assert served(other)
            with pytest.raises(BlockingIOError):
                client.socket.recv(1)
            client.socket.settimeout(20)
            broker.loop_clock.passed_seconds += 20
            broker.call(lambda: None)
            assert client.answer(sent).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert client.is_closed()


def test_a_proof_made_for_an_empty_key_does_not_make_an_unknown_user() -> None:
    async def nobody(name: str, by_token: bool) -> None:
        return None

    exchange = ScramExchange("SCRAM-SHA-256", nobody)
    first = run(exchange, b"n,,n=u,r=abc")
    last = b"c=biws,r=" + first.split(b",")[0][2:]
    signed = b"n=u,r=abc," + first + b"," + last
    signature = hmac.digest(bytes(64), signed, "sha256")
    proof = base64.b64encode(signature)
    with pytest.raises(InvalidExchange):
        run(exchange, last + b",p=" + proof)
    assert exchange.identity is None


def run(exchange: ScramExchange, token: bytes) -> bytes:
    """Run one step of the exchange without a loop; returns the answer."""
    step = exchange.answer(token)
    try:
        step.send(None)
    except StopIteration as done:
        return bytes(done.value)
    raise AssertionError("it waits")
