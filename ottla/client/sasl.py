"""The client's side of SASL PLAIN and SCRAM: takes the server's token, returns the client's next.

No IO: blocking clients and event loops can both use it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from typing import Protocol

from ottla.client.errors import ClientError

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MAX = 100_000
"""The limit on the iterations that a server may request: more would be an attack on the client's
CPU. Kafka's brokers allow at most 16,384 (KIP-84)."""
FIRST = re.compile(rb"r=([!-+\--~]+),s=([A-Za-z0-9+/=]+),i=([0-9]{1,9})(?:,[^,]*)*")
LAST = re.compile(rb"v=([A-Za-z0-9+/=]+)(?:,[^,]*)*")


class ClientMechanism(Protocol):
    """The client's part of one exchange."""

    def first(self) -> bytes:
        """The first token."""
        ...

    def answer(self, token: bytes) -> bytes | None:
        """The client's answer to the server's token; None when the exchange is complete."""
        ...


class PlainClient(ClientMechanism):
    """PLAIN: the password is sent as plain text, so the connection has to be encrypted."""

    def __init__(self, user: str, password: str) -> None:
        self.user, self.password = user, password

    def first(self) -> bytes:
        """User and password."""
        return f"\0{self.user}\0{self.password}".encode()

    def answer(self, token: bytes) -> bytes | None:
        """Returns None: PLAIN is complete after the first token."""
        return None


class ScramClient(ClientMechanism):
    """SCRAM (RFC 5802): both sides prove that they know the password, without sending it."""

    def __init__(
        self, mechanism: str, user: str, password: str, extensions: Mapping[str, str]
    ) -> None:
        self.algorithm = HASHES[mechanism]
        self.password = password
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        self.nonce = secrets.token_urlsafe(24)
        self.bare = f"n={escaped},r={self.nonce}" + "".join(
            f",{name}={value}" for name, value in extensions.items()
        )
        self.verifier: bytes | None = None

    def first(self) -> bytes:
        """The user and a nonce."""
        return f"n,,{self.bare}".encode()

    def answer(self, token: bytes) -> bytes | None:
        """The first call returns the client's proof. The second call checks the server's proof.
        Raises ClientError."""
        if self.verifier is not None:
            proved = LAST.fullmatch(token)
            if proved is None or not hmac.compare_digest(decoded(proved[1]), self.verifier):
                raise ClientError("the broker could not prove that it knows this user's password")
            return None
        match = FIRST.fullmatch(token)
        if match is None:
            raise ClientError("the broker's first SCRAM message is malformed")
        nonce, salt, iterations = match[1].decode(), decoded(match[2]), int(match[3])
        if not nonce.startswith(self.nonce) or not 0 < iterations <= ITERATIONS_MAX:
            raise ClientError(
                "the broker's first SCRAM message has a wrong nonce, or a number of iterations that"
                f" is not between 1 and {ITERATIONS_MAX}")
        salted = hashlib.pbkdf2_hmac(self.algorithm, self.password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self.algorithm)
        stored = hashlib.new(self.algorithm, client_key).digest()
        without_proof = f"c=biws,r={nonce}"
        signed = self.bare.encode() + b"," + token + b"," + without_proof.encode()
        signature = hmac.digest(stored, signed, self.algorithm)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self.algorithm)
        self.verifier = hmac.digest(server_key, signed, self.algorithm)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def decoded(text: bytes) -> bytes:
    """The bytes of a base64 field. Raises ClientError."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ClientError("the broker sent a SCRAM message with broken base64") from error


def client_mechanism(
    mechanism: str, user: str, password: str, extensions: Mapping[str, str] | None = None
) -> ClientMechanism:
    """The client's part of a mechanism. Raises ClientError for an unknown mechanism."""
    if mechanism == "PLAIN":
        return PlainClient(user, password)
    if mechanism in HASHES:
        return ScramClient(mechanism, user, password, extensions or {})
    raise ClientError(
        f"sasl.mechanism={mechanism} is not supported: use one of {', '.join(('PLAIN', *HASHES))}")
