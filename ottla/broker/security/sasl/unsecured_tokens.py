"""Unsigned OAUTHBEARER tokens (RFC 7515, appendix A.5), for tests only.

A listener accepts them only if its `sasl.server.callback.handler.class` is Kafka's validator of
unsecured tokens. The validator's options are in the JAAS text, with Kafka's names.
"""

from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from ottla.broker.security.sasl.exchange import AuthenticationFailed
from ottla.broker.security.sasl.web_tokens import subject_of
from ottla.broker.settings.declaration import SettingsError

log = logging.getLogger("ottla.authentication")

OPTION = "unsecuredValidator"
EXPIRY_MS_MAX = 1 << 53
MALFORMED = (ValueError, TypeError, LookupError, RecursionError, ArithmeticError)


def now_ms() -> float:
    """The time of day, in milliseconds."""
    return time.time() * 1000


class UnsecuredRules:
    """The requirements for a token without a signature. Raises SettingsError."""

    def __init__(
        self, name: str, options: Mapping[str, str], clock: Callable[[], float] = now_ms
    ) -> None:
        self.now_ms = clock
        self.subject_claim = options.get(f"{OPTION}PrincipalClaimName", "").strip() or "sub"
        self.scope = options.get(f"{OPTION}ScopeClaimName", "").strip() or "scope"
        self.required = set(options.get(f"{OPTION}RequiredScope", "").split())
        skew = options.get(f"{OPTION}AllowableClockSkewMs", "").strip() or "0"
        if not skew.isdecimal():
            raise SettingsError(name, f"{OPTION}AllowableClockSkewMs={skew!r:.40} is not a number")
        self.skew_ms = int(skew)

    def check(self, token: str) -> tuple[str, int]:
        """The subject of a token and its expiry in ms. Raises AuthenticationFailed."""
        try:
            head, payload, signature = token.split(".")
            if signature or _decoded(head).get("alg") != "none":
                raise AuthenticationFailed(
                    "the token is signed, but the listener expects unsecured tokens")
            claims = _decoded(payload)
            expires_ms = min(int(float(claims["exp"]) * 1000), EXPIRY_MS_MAX)
            issued_ms = float(claims.get("iat", 0)) * 1000
            scopes = claims.get(self.scope, [])
            scopes = scopes.split() if isinstance(scopes, str) else list(scopes)
            missing = self.required - set(scopes)
        except MALFORMED as error:
            raise AuthenticationFailed(f"{type(error).__name__}: {error}") from error
        now = self.now_ms()
        if now - self.skew_ms >= expires_ms:
            raise AuthenticationFailed("the token has expired")
        if now + self.skew_ms < issued_ms:
            raise AuthenticationFailed("the token's time of issue is in the future")
        if missing:
            raise AuthenticationFailed(f"the token lacks the scope {' '.join(sorted(missing))}")
        return subject_of(claims.get(self.subject_claim)), expires_ms

    def refused(self, error: AuthenticationFailed) -> None:
        """Log why a token was refused; the client does not learn it."""
        log.warning("an unsecured OAUTHBEARER token was refused: %.300s", error)


def _decoded(part: str) -> dict[str, Any]:
    data = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("a part of the token is not a JSON object")
    return value
