"""Signs tokens (OAUTHBEARER); has the settings of a broker whose clients log in with them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

OAUTH = "org.apache.kafka.common.security.oauthbearer"
LIFETIME_SECONDS = 600


class Signer:
    """Signs tokens of the user ann; `keys` is the file of public keys (JWKS) for brokers."""

    def __init__(self, directory: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        self.keys = directory / "keys.json"
        self.keys.write_text(json.dumps({"keys": [{**public, "kid": "k"}]}))

    def token(self, audience: str = "kafka") -> tuple[str, float]:
        """A token, and the time of its expiry in seconds since 1970."""
        now = int(time.time())
        expires = now + LIFETIME_SECONDS
        claims = {"sub": "ann", "iss": "here", "aud": audience, "iat": now, "exp": expires}
        return jwt.encode(claims, self._key, "ES256", headers={"kid": "k"}), expires

    def settings(self) -> list[str]:
        """The broker settings with which the SASL listeners accept these tokens."""
        found = [
            f"sasl.oauthbearer.jwks.endpoint.url=file:{self.keys}",
            "sasl.oauthbearer.expected.audience=kafka", "sasl.oauthbearer.expected.issuer=here",
        ]  # fmt: skip
        for listener in ("sasl_plaintext", "sasl_ssl"):
            name = f"listener.name.{listener}"
            found += [
                f"{name}.sasl.enabled.mechanisms=OAUTHBEARER",
                f"{name}.oauthbearer.sasl.jaas.config={OAUTH}.OAuthBearerLoginModule required;",
                f"{name}.oauthbearer.sasl.server.callback.handler.class="
                f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
            ]
        return found
