"""Brokers with SASL listeners, and the steps of a login to them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ottla.broker.security.sasl.scram import HASHES, NUMBERS
from ottla.client.sasl import client_mechanism
from ottla.log.files.clock import Clock
from ottla.wire.messages import (
    AlterUserScramCredentialsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.broker.running import RunningBroker, WireClient

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="admin" password="a" user_alice="alice-secret" user_bob="bob-secret";'
)
LISTENERS = {
    "listeners": "PLAIN://127.0.0.1:0,INSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "PLAIN:PLAINTEXT,INSIDE:SASL_PLAINTEXT",
    "listener.name.inside.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.inside.plain.sasl.jaas.config": JAAS,
}


class SaslBroker(RunningBroker):
    """A broker with a listener for everybody, and a listener `inside` that requires
    authentication."""

    def __init__(
        self, data: Path, overrides: Mapping[str, object] | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__(data, clock=clock, **{**LISTENERS, **(overrides or {})})
        self.inside = ("127.0.0.1", self.server.listeners[1].port)


def shake(client: WireClient, mechanism: str, version: int = 1) -> Any:
    """Send SaslHandshake; returns the answer."""
    return client.call(SaslHandshakeRequest(mechanism=mechanism), version)


def send_token(client: WireClient, token: bytes, version: int = 2) -> Any:
    """Send SaslAuthenticate; returns the answer."""
    return client.call(SaslAuthenticateRequest(auth_bytes=token), version)


def log_in(client: WireClient, mechanism: str, user: str, password: str, **extensions: str) -> Any:
    """Log in; returns the last answer, which has the error code if the login failed."""
    shaken = shake(client, mechanism)
    if shaken.error_code:
        return shaken
    exchange = client_mechanism(mechanism, user, password, extensions)
    answer = send_token(client, exchange.first())
    while not answer.error_code:
        token = exchange.answer(bytes(answer.auth_bytes))
        if token is None:
            break
        answer = send_token(client, token)
    return answer


def make_user(
    client: WireClient, user: str, password: str, mechanism: str, iterations: int = 4096
) -> None:
    """Create a SCRAM credential, as kafka-configs does."""
    salt = f"salt of {user}".encode()
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
    wanted = AlterUserScramCredentialsRequest.Upsertion(
        name=user, mechanism=NUMBERS[mechanism], iterations=iterations, salt=salt,
        salted_password=salted,
    )
    made = client.call(AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted]), 0)
    assert made.results[0].error_code == 0, made


def delete_user(client: WireClient, user: str, mechanism: str) -> None:
    """Delete a SCRAM credential."""
    gone = AlterUserScramCredentialsRequest.Deletion(name=user, mechanism=NUMBERS[mechanism])
    made = client.call(AlterUserScramCredentialsRequest(deletions=[gone], upsertions=[]), 0)
    assert made.results[0].error_code == 0, made
