"""The log names the users who log in and the users whose login fails; the metrics count them. The
log has few lines even if there are many logins."""

from __future__ import annotations

import logging
import urllib.request
from pathlib import Path

import pytest

from ottla.broker.security.logins import KNOWN_MAX, LOGGED_PER_SWEEP, Logins
from ottla.broker.security.sasl.oauthbearer import claimed_subject
from ottla.wire.messages import CreateAclsRequest, MetadataRequest, SaslHandshakeRequest
from tests.broker.running import WireClient
from tests.broker.security.logging_in import SaslBroker, log_in, shake

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:bob", "ottla.http.listener": "127.0.0.1:0",
    "connection.failed.authentication.delay.ms": 0,
}


def lines(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [each for each in map(logging.LogRecord.getMessage, caplog.records) if words in each]


def scraped(broker: SaslBroker, name: str) -> dict[str, float]:
    """The samples of a metric, by the text of their labels."""
    assert broker.server.http is not None
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.server.http.port}/metrics") as answer:
        text = answer.read().decode()
    rows = [line.removeprefix(name).rpartition(" ") for line in text.splitlines()
            if line.startswith((name + "{", name + " "))]  # fmt: skip
    return {labels: float(value) for labels, _, value in rows}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_failed_login_names_the_user(
    data: Path, caplog: pytest.LogCaptureFixture, mechanism: str
) -> None:
    with SaslBroker(data, {"connection.failed.authentication.delay.ms": 0}) as broker:
        for user in ("alice", "no\nbody", "x" * 1000):
            with WireClient(broker.inside) as client:
                assert log_in(client, mechanism, user, "wrong").error_code != 0
        found = lines(caplog, "is closed: login")
    loggers = {each.name for each in caplog.records if "is closed: login" in each.getMessage()}
    assert loggers == {"ottla.listener"}, "as the table in docs/operations.md says"
    assert [f"login of '{user}' by {mechanism} failed" in line for user, line in zip(
        ("alice", "no\\nbody", "x" * 250), found, strict=True)] == [True] * 3  # fmt: skip


def test_a_mechanism_that_is_not_offered_has_no_user(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with SaslBroker(data) as broker, WireClient(broker.inside) as client:
        assert shake(client, "GSSAPI").error_code != 0
        [line] = lines(caplog, "is closed: login")
    assert "login failed: Unsupported SASL mechanism GSSAPI" in line


@pytest.mark.parametrize("asks_versions", [False, True])
def test_a_client_without_a_login_is_told_apart_from_one_whose_login_goes_wrong(
    data: Path, caplog: pytest.LogCaptureFixture, asks_versions: bool
) -> None:
    with SaslBroker(data) as broker:
        with WireClient(broker.inside) as client:
            if asks_versions:
                client.negotiate()
            client.send(MetadataRequest(topics=[]), 1)
            assert client.is_closed()
        with WireClient(broker.inside) as client:
            shake(client, "PLAIN")
            client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert client.is_closed()
        without, wrong = lines(caplog, "is closed")
    came = "after ApiVersions" if asks_versions else "before SaslHandshake"
    said = f"the client did not log in (security.protocol without SASL?): Metadata came {came}"
    assert without.endswith(said) and "client None" not in without
    assert wrong.endswith("is closed: SaslHandshake came while it authenticates")


@pytest.mark.parametrize(("token", "subject"), [
    (b"e30.eyJzdWIiOiJldmUifQ.x", "eve"), (b"e30.eyJzdWIiOjd9.x", None), (b"x", None),
    (b"e30.W10.x", None), (b"e30." + b"W1tb" * 5000 + b".x", None), (b"a.!.b", None),
])  # fmt: skip
def test_the_subject_of_a_refused_token_is_read_if_it_can_be(
    token: bytes, subject: str | None
) -> None:
    assert claimed_subject(token, "sub") == subject


def test_many_logins_of_the_same_user_are_one_line(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ottla.authentication")
    with SaslBroker(data) as broker:
        for _ in range(5):
            with WireClient(broker.inside) as client:
                assert log_in(client, "PLAIN", "alice", "alice-secret").error_code == 0
        assert len(lines(caplog, "User:alice")) == 1
        counts = broker.server.listeners[1].logins.counts
        assert counts == {"successful_authentication": 5}


def test_logins_of_many_users_have_a_bounded_number_of_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "ottla.authentication")
    logins = Logins("L")
    for number in range(2 * KNOWN_MAX):
        logins.success(f"User:{number}", "h", "h:1", "PLAIN", False)
    assert len(lines(caplog, "has authenticated")) == LOGGED_PER_SWEEP
    logins.sweep()
    assert lines(caplog, f"{2 * KNOWN_MAX - LOGGED_PER_SWEEP} more logins are not logged")
    assert len(logins.known) == KNOWN_MAX
    logins.success("User:another", "h", "h:1", "PLAIN", False)
    logins.success("User:another", "h", "h:2", "PLAIN", True)
    assert len(lines(caplog, "User:another")) == 1


def test_logins_and_denials_are_metrics(data: Path) -> None:
    prefix, inside = "kafka_server_socketservermetrics_", '{listener="INSIDE",networkprocessor="0"}'
    with SaslBroker(data, AUTHORIZED) as broker:
        with WireClient(broker.inside) as alice:
            assert log_in(alice, "PLAIN", "alice", "alice-secret").error_code == 0
            for _ in range(2):
                assert alice.call(MetadataRequest(topics=[
                    MetadataRequest.Topic(name="t")]), 9).topics[0].error_code == 29
            made = CreateAclsRequest.Creation(
                resource_type=2, resource_name="t", principal="User:a", host="*", operation=3,
                permission_type=3,
            )
            assert alice.call(CreateAclsRequest(creations=[made]), 3).results[0].error_code == 31
            with WireClient(broker.inside) as eve:
                assert log_in(eve, "PLAIN", "eve", "x").error_code != 0
            assert scraped(broker, f"{prefix}successful_authentication_total")[inside] == 1
            assert scraped(broker, f"{prefix}failed_authentication_total")[inside] == 1
            assert scraped(broker, f"{prefix}failed_reauthentication_total")[inside] == 0
            assert scraped(broker, "ottla_authorization_denials_total")[""] == 3
