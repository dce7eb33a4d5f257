"""SASL/OAUTHBEARER (RFC 7628, KIP-255, KIP-768): a signed token (JWT) instead of a password.

    client   n,,^Aauth=Bearer <token>^A^A           ^A is the byte 1
    server   (empty)                                or {"status":"invalid_token"}
    client                                          ^A, and the exchange has failed

The keys that verify the signatures come from a JSON Web Key Set in a file or at a URL, which a
thread reads.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from typing import TYPE_CHECKING

from ottla.broker.security.sasl.exchange import (
    AuthenticationFailed,
    Exchange,
    Identity,
    InvalidExchange,
)

if TYPE_CHECKING:
    from ottla.broker.security.sasl.unsecured_tokens import UnsecuredRules
    from ottla.broker.security.sasl.web_tokens import TokenRules

TOKEN_SIZE_MAX = 64 << 10
FIRST = re.compile(rb"n,(?:a=([^,\x01]*))?,\x01((?:[A-Za-z]+=[^\x01]*\x01)*)\x01")
AUTH = re.compile(rb"(?:^|\x01)auth=([^\x01]*)")
BEARER = re.compile(rb"[Bb]earer +([A-Za-z0-9\-_.~+/=]+)")


def claimed_subject(token: bytes, claim: str) -> str | None:
    """The subject that a token claims; the token is not verified here."""
    payload = [*token.split(b"."), b""][1]
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + b"=="))
        subject = claims.get(claim)
    except (ValueError, AttributeError, RecursionError):
        return None
    return subject if isinstance(subject, str) else None


class OauthExchange(Exchange):
    """The client sends one token, and a second message if the token is refused."""

    def __init__(self, rules: TokenRules | UnsecuredRules) -> None:
        self.rules = rules
        self.identity: Identity | None = None
        self.refusal = ""

    async def answer(self, token: bytes) -> bytes:
        """Check the token in a thread. Raises AuthenticationFailed."""
        if self.refusal:
            raise AuthenticationFailed(self.refusal)
        match = FIRST.fullmatch(token) if len(token) <= TOKEN_SIZE_MAX else None
        # `auth` must occur once: a second one would be an extension with a reserved name (KIP-342).
        given = [] if match is None else AUTH.findall(match[2])
        bearer = BEARER.fullmatch(given[0]) if len(given) == 1 else None
        if match is None or bearer is None:
            raise InvalidExchange("Invalid OAUTHBEARER client first message")
        try:
            subject, expires_ms = await asyncio.get_running_loop().run_in_executor(
                None, self.rules.check, bearer[1].decode("ascii")
            )
        except AuthenticationFailed as error:
            self.claimed = claimed_subject(bearer[1], self.rules.subject_claim)
            self.refusal = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
            self.rules.refused(error)
            return self.refusal.encode()
        self.claimed = subject
        # No authorization on behalf of another user (CVE-2017-12610).
        if match[1] and match[1].decode("utf-8", "replace") != subject:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different"
                " from the token's principal name"
            )
        self.identity = Identity(f"User:{subject}", expires_ms)
        return b""
