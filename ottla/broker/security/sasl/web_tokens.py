"""Checks JSON Web Tokens against the settings `sasl.oauthbearer.…` and a set of keys (JWKS)."""

from __future__ import annotations

import json
import logging
import time
import urllib.parse
import urllib.request
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from ottla.broker.security.sasl.exchange import AuthenticationFailed
from ottla.broker.settings.declaration import SettingsError
from ottla.wire.environment import pip_install

if TYPE_CHECKING:
    from ottla.broker.settings.listener_settings import ListenerSettings

log = logging.getLogger("ottla.authentication")

URL = "sasl.oauthbearer.jwks.endpoint.url"
ALGORITHMS = [
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
]
"""Only signatures with a private key: with a shared secret or "none", clients could make valid
tokens themselves."""
KEYS_SIZE_MAX = 1 << 20
FETCH_SECONDS = 10.0
EXPIRY_MS_MAX = 1 << 53
"""The latest end of a session. A token that expires later counts as expiring at this time, since
the reply to the client has only 64 bits for the session's lifetime."""
UNUSABLE = (OSError, ArithmeticError, ValueError, TypeError, LookupError, RecursionError)
"""The exceptions that a token's JSON may cause, in some release of PyJWT or Python."""
AGAIN_SECONDS = 30.0
"""A token with an unknown key makes the broker read the keys again, at most once in this time. If
the keys could not be read, but the broker has keys that it read earlier, it also waits this long
before the next attempt."""
WITHOUT_KEYS_SECONDS = 1.0
"""The wait before the next attempt if the keys could not be read and the broker has no keys."""
KNOWN: dict[str, dict[str, Any]] = {}
"""The keys that were read last from each URL. New rules begin with them: rules are made anew after
each change of the broker's settings, and the URL may be out of reach at that time."""


class TokenRules:
    """The requirements for a token. Raises SettingsError if they cannot be checked."""

    def __init__(self, settings: ListenerSettings) -> None:
        try:
            import jwt
        except ImportError as error:
            raise SettingsError(
                "sasl.enabled.mechanisms",
                f"OAUTHBEARER needs the package PyJWT: {pip_install('PyJWT', 'cryptography')}",
            ) from error
        self.jwt: Any = jwt
        self.settings = settings
        self.subject_claim = settings.sasl_oauthbearer_sub_claim_name
        url = settings.sasl_oauthbearer_jwks_endpoint_url
        if not url:
            raise SettingsError(
                URL, "has to be set to the location of the keys that verify tokens: file:/path or"
                " https://…"
            )
        self.url = urllib.parse.urlsplit(url)
        if self.url.scheme not in ("file", "http", "https"):
            raise SettingsError(URL, f"{url!r} does not begin with file:, http: or https:")
        self.lock = Lock()
        self.keys = KNOWN.get(self.url.geturl(), {})
        self.read_at = self.failed_at = float("-inf")
        if self.url.scheme == "file":
            try:
                self._read()
            except (OSError, ValueError, TypeError, LookupError, jwt.PyJWTError) as error:
                raise SettingsError(URL, f"the keys of {url} cannot be read: {error}") from error

    def check(self, token: str) -> tuple[str, int]:
        """The subject of a token and its expiry in ms. Runs in a thread: it may read a URL.

        Raises AuthenticationFailed.
        """
        settings, jwt = self.settings, self.jwt
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in ALGORITHMS:
                raise AuthenticationFailed(
                    f"the token's signature algorithm {header.get('alg')!r:.20} is not accepted")
            claims = jwt.decode(
                token,
                self._key(str(header.get("kid", ""))),
                algorithms=[header["alg"]],
                audience=list(settings.sasl_oauthbearer_expected_audience) or None,
                issuer=settings.sasl_oauthbearer_expected_issuer or None,
                leeway=settings.sasl_oauthbearer_clock_skew_seconds,
                options={
                    "require": ["exp", "iat", self.subject_claim],
                    "verify_aud": bool(settings.sasl_oauthbearer_expected_audience),
                    "verify_sub": False,
                },
            )
            expires_ms = min(int(float(claims["exp"]) * 1000), EXPIRY_MS_MAX)
        except (*UNUSABLE, jwt.PyJWTError) as error:
            raise AuthenticationFailed(f"{type(error).__name__}: {error}") from error
        return subject_of(claims[self.subject_claim]), expires_ms

    def refused(self, error: AuthenticationFailed) -> None:
        """Log why a token was refused; the client does not learn it."""
        log.warning("an OAUTHBEARER token was refused: %.300s", error)

    def _key(self, key_id: str) -> Any:
        # One thread reads the keys. Others wait only if they need a key that is not known yet.
        if self._due(key_id) and self.lock.acquire(blocking=key_id not in self.keys):
            try:
                if self._due(key_id):
                    self._renew()
            finally:
                self.lock.release()
        key = self.keys.get(key_id)
        if key is None:
            raise AuthenticationFailed(f"the token is signed by the unknown key {key_id!r:.80}")
        return key

    def _due(self, key_id: str) -> bool:
        """Whether the keys have to be read before a token with this key is checked."""
        now = time.monotonic()
        if now - self.failed_at < (AGAIN_SECONDS if self.keys else WITHOUT_KEYS_SECONDS):
            return False
        age = now - self.read_at
        return age > self.settings.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000 or (
            key_id not in self.keys and age > AGAIN_SECONDS
        )

    def _renew(self) -> None:
        """Read the keys; if that fails, the known keys stay in use, as in Kafka."""
        try:
            self._read()
        except (*UNUSABLE, self.jwt.PyJWTError) as error:
            self.failed_at = time.monotonic()
            log.warning(
                "the keys of %s cannot be read, so the previous %d keys stay in use: %.300s",
                self.settings.sasl_oauthbearer_jwks_endpoint_url, len(self.keys), error,
            )

    def _read(self) -> None:
        if self.url.scheme == "file":
            data = Path(urllib.request.url2pathname(self.url.path)).read_bytes()
        else:
            with urllib.request.urlopen(self.url.geturl(), timeout=FETCH_SECONDS) as answer:
                data = answer.read(KEYS_SIZE_MAX + 1)
        if len(data) > KEYS_SIZE_MAX:
            raise ValueError(f"the key set has more than {KEYS_SIZE_MAX} bytes")
        listed = [
            each for each in json.loads(data)["keys"]
            if each.get("use", "sig") == "sig" and each.get("kty") != "oct"
        ]
        keys: dict[str, Any] = {}
        for each in listed:
            key_id = str(each.get("kid", ""))
            try:
                keys[key_id] = self.jwt.PyJWK(each).key
            except (*UNUSABLE, self.jwt.PyJWTError) as error:
                log.warning("the key %.80r cannot be used: %.300s", key_id, error)
        if listed and not keys:
            raise ValueError("none of the keys in the key set can be used")
        self.keys = KNOWN[self.url.geturl()] = keys
        self.read_at = time.monotonic()


def subject_of(claim: object) -> str:
    """The name in a token's claim. Raises AuthenticationFailed if it is not a name."""
    if not isinstance(claim, str) or not claim.strip():
        raise AuthenticationFailed("the token has no subject")
    try:
        claim.encode()
    except UnicodeEncodeError as error:
        # JSON may contain escaped lone surrogates, which no response and no record can hold.
        raise AuthenticationFailed("the token's subject is not text") from error
    return claim.strip()
