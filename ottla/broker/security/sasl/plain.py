"""SASL/PLAIN (RFC 4616) with the users of a JAAS configuration, as in Kafka's PlainLoginModule."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from ottla.broker.security.sasl.exchange import (
    AuthenticationFailed,
    Exchange,
    Identity,
)

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USER = "user_"


def users_of(options: Mapping[str, str]) -> dict[str, bytes]:
    """Users and passwords: the options `user_<name>="<password>"`."""
    return {
        name.removeprefix(USER): password.encode()
        for name, password in options.items()
        if name.startswith(USER)
    }


class PlainExchange(Exchange):
    """One token: authorization id, user and password, separated by NUL bytes."""

    def __init__(self, users: Mapping[str, bytes]) -> None:
        self.users = users
        self.identity: Identity | None = None

    async def answer(self, token: bytes) -> bytes:
        """Check the one token. Raises AuthenticationFailed with Kafka's messages."""
        parts = token.decode("utf-8", "replace").split("\0")
        if len(parts) != 3:
            raise AuthenticationFailed(
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            )
        authorization_id, user, password = parts
        self.claimed = user
        if not user:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        # The comparison takes the same time for a user who does not exist (CVE-2021-38153).
        expected = self.users.get(user)
        same = hmac.compare_digest(password.encode(), expected or b"\0")
        if expected is None or not same:
            raise AuthenticationFailed("Authentication failed: Invalid username or password")
        # No authorization on behalf of another user (CVE-2017-12610).
        if authorization_id and authorization_id != user:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different"
                " from username"
            )
        self.identity = Identity(f"User:{user}")
        return b""
