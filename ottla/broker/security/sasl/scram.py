"""SASL/SCRAM (RFC 5802, RFC 7677) with the credentials in the metadata (KIP-84, KIP-554).

    client   n,,n=alice,r=<client nonce>
    server   r=<client nonce><server nonce>,s=<salt>,i=<iterations>
    client   c=biws,r=<both nonces>,p=<proof>
    server   v=<signature>

The server stores keys that are derived from the password, so the server only computes two HMACs and
a hash; the client does the expensive derivation. For a user who does not exist, the exchange looks
normal: its salt stays the same, and it fails only at its end.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ottla.broker.security.sasl.exchange import (
    AuthenticationFailed,
    Exchange,
    Identity,
    InvalidExchange,
)
from ottla.replication.principals import ScramCredential

NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Kafka's numbers of the mechanisms (KIP-554)."""
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN = 4096
"""Fewer iterations would make a stolen credential cheap to attack (related to CVE-2024-56128)."""
NONCE = r"[\x21-\x2b\x2d-\x7e]+"
NAME = r"(?:[^=,\0]|=2C|=3D)+"
FIRST = re.compile(rf"(n,(?:a=({NAME}))?,)((?:m=[^,]*,)?n=({NAME}),r=({NONCE})((?:,[^,]*)*))")
LAST = re.compile(rf"(c=([A-Za-z0-9+/=]*),r=({NONCE})(?:,[^,]*)*?),p=([A-Za-z0-9+/=]+)")
TOKEN_AUTHENTICATION = "tokenauth"
SALT_SIZE = 26
SECRET = secrets.token_bytes(32)
"""The salts of users who do not exist are derived from this."""


@dataclass(frozen=True, slots=True)
class KnownUser:
    """What the server knows about a user: the credential, and the identity that it proves."""

    credential: ScramCredential
    identity: Identity


Lookup = Callable[[str, bool], Awaitable[KnownUser | None]]
"""Finds a user by name, or a delegation token by id if the second argument is true."""


class ScramExchange(Exchange):
    """The client sends two tokens, and each is answered."""

    def __init__(self, mechanism: str, lookup: Lookup) -> None:
        self.mechanism, self.lookup = mechanism, lookup
        self.algorithm = HASHES[mechanism]
        self.identity: Identity | None = None
        self.known: KnownUser | None = None
        self.header = self.bare = self.first = self.nonce = ""

    async def answer(self, token: bytes) -> bytes:
        """The server's part of one step. Raises AuthenticationFailed."""
        try:
            text = token.decode()
        except UnicodeDecodeError as error:
            raise InvalidExchange("a SCRAM message is not UTF-8") from error
        return await self._begin(text) if not self.first else self._end(text)

    async def _begin(self, text: str) -> bytes:
        match = FIRST.fullmatch(text)
        if match is None:
            raise InvalidExchange("Invalid SCRAM client first message format")
        self.header, authorization_id, self.bare, name, nonce, extensions = match.groups()
        self.claimed = user = unescape(name)
        # No authorization on behalf of another user (CVE-2017-12610).
        if authorization_id is not None and unescape(authorization_id) != user:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different"
                " from username"
            )
        by_token = f"{TOKEN_AUTHENTICATION}=true" in extensions.lower().split(",")
        self.known = await self.lookup(user, by_token)
        if self.known is not None and self.known.credential.iterations < ITERATIONS_MIN:
            raise InvalidExchange(f"the credential has fewer than {ITERATIONS_MIN} iterations")
        salt, iterations = nobodys_salt(user), ITERATIONS_MIN
        if self.known is not None:
            salt, iterations = self.known.credential.salt, self.known.credential.iterations
        self.nonce = nonce + secrets.token_urlsafe(24)
        encoded = base64.b64encode(salt).decode()
        self.first = f"r={self.nonce},s={encoded},i={iterations}"
        return self.first.encode()

    def _end(self, text: str) -> bytes:
        match = LAST.fullmatch(text)
        if match is None:
            raise InvalidExchange("Invalid SCRAM client final message format")
        without_proof, binding, nonce, encoded_proof = match.groups()
        try:
            bound = base64.b64decode(binding, validate=True)
            proof = base64.b64decode(encoded_proof, validate=True)
        except binascii.Error as error:
            raise InvalidExchange("a SCRAM message contains invalid base64") from error
        if nonce != self.nonce and nonce.endswith(self.nonce):
            raise AuthenticationFailed(
                "Authentication failed: the client repeats its nonce, as librdkafka before 2.6.1"
                " does. Update librdkafka, or use PLAIN or another client"
            )
        # Without this check a captured conversation could be replayed (CVE-2024-56128).
        if not hmac.compare_digest(nonce.encode(), self.nonce.encode()):
            raise InvalidExchange("Invalid client nonce in the final client message.")
        # Java's client always sends the channel binding of an empty header.
        if bound not in (self.header.encode(), b"n,,"):
            raise InvalidExchange("the channel binding differs from that of the first message")
        credential = NOBODY if self.known is None else self.known.credential
        signed = f"{self.bare},{self.first},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, signed, self.algorithm)
        padded = proof.ljust(len(signature), b"\0")[: len(signature)]
        client_key = bytes(a ^ b for a, b in zip(padded, signature, strict=True))
        stored = hashlib.new(self.algorithm, client_key).digest()
        proved = hmac.compare_digest(stored, credential.stored_key)
        if not proved or len(proof) != len(signature) or self.known is None:
            raise InvalidExchange("Invalid client credentials")
        self.identity = self.known.identity
        verifier = hmac.digest(credential.server_key, signed, self.algorithm)
        return b"v=" + base64.b64encode(verifier)


NOBODY = ScramCredential(ITERATIONS_MIN, b"", bytes(64), bytes(64))


def nobodys_salt(user: str) -> bytes:
    """The salt of a user who does not exist: it stays the same, as the salt of a real user does."""
    return hmac.digest(SECRET, user.encode(), "sha256").hex().encode()[:SALT_SIZE]


def unescape(name: str) -> str:
    """A user's name decoded from a message, where commas and equals signs are escaped."""
    return name.replace("=2C", ",").replace("=3D", "=")


def derive(password: bytes, salt: bytes, iterations: int, mechanism: str) -> ScramCredential:
    """Derive the credential of a password. This takes milliseconds: call it in a thread."""
    algorithm = HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(algorithm, password, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    return ScramCredential(
        iterations, salt, hashlib.new(algorithm, client_key).digest(),
        hmac.digest(salted, b"Server Key", algorithm),
    )
