"""The client's side of SASL: PLAIN and SCRAM as functions from the server's token to the next one.

No IO: a blocking client and an event loop can both speak it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Protocol

from ottla.client.errors import ClientError

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MAX = 1_000_000
"""A server that asks for more wants to keep this client busy."""


class ClientMechanism(Protocol):
    """The client's part of one exchange."""

    def first(self) -> bytes:
        """The first token."""
        ...

    def answer(self, token: bytes) -> bytes | None:
        """The token after the server's one; None when the exchange is complete."""
        ...


class PlainClient(ClientMechanism):
    """PLAIN: the password travels as it is, so the connection has to be encrypted."""

    def __init__(self, user: str, password: str) -> None:
        self.user, self.password = user, password

    def first(self) -> bytes:
        """User and password."""
        return f"\0{self.user}\0{self.password}".encode()

    def answer(self, token: bytes) -> bytes | None:
        """Nothing is left to say."""
        return None


class ScramClient(ClientMechanism):
    """SCRAM (RFC 5802): neither side learns what it could log in with elsewhere."""

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
        """The proof; then the server's own proof is checked. Raises ClientError."""
        fields = dict(part.partition("=")[::2] for part in token.decode().split(","))
        if self.verifier is not None:
            proved = base64.b64decode(fields.get("v", ""))
            if not hmac.compare_digest(proved, self.verifier):
                raise ClientError("the broker does not know this user's password")
            return None
        nonce, iterations = fields["r"], int(fields["i"])
        if not nonce.startswith(self.nonce) or iterations > ITERATIONS_MAX:
            raise ClientError("the broker answers SCRAM with a wrong nonce or too many iterations")
        salt = base64.b64decode(fields["s"])
        salted = hashlib.pbkdf2_hmac(self.algorithm, self.password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self.algorithm)
        stored = hashlib.new(self.algorithm, client_key).digest()
        without_proof = f"c=biws,r={nonce}"
        signed = f"{self.bare},{token.decode()},{without_proof}".encode()
        signature = hmac.digest(stored, signed, self.algorithm)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self.algorithm)
        self.verifier = hmac.digest(server_key, signed, self.algorithm)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def client_mechanism(
    mechanism: str, user: str, password: str, extensions: Mapping[str, str] | None = None
) -> ClientMechanism:
    """The client's part of a mechanism. Raises ClientError for one that is not here."""
    if mechanism == "PLAIN":
        return PlainClient(user, password)
    if mechanism in HASHES:
        return ScramClient(mechanism, user, password, extensions or {})
    raise ClientError(f"sasl.mechanism={mechanism} is not supported, PLAIN and SCRAM are")
