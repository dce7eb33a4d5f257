"""Secrets of delegation tokens: each is derived only from the token's id and the cluster's secret
key.

A client logs in by SCRAM. The user name is the token's id. The password is the token's secret (an
HMAC) in base64.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import secrets
from typing import TYPE_CHECKING

from ottla.broker.security.sasl.scram import ITERATIONS_MIN, derive

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.replication.principals import ScramCredential

CREDENTIALS_MAX = 10_000
"""How many derived credentials are cached; deriving one takes a thread some milliseconds."""
SALT_SIZE = 26


class TokenSecrets:
    """The secrets that are derived from `delegation.token.secret.key`."""

    def __init__(self, key: str) -> None:
        self.key = key.encode()
        self.salt_key = secrets.token_bytes(32)
        self.derived: dict[tuple[str, str], ScramCredential] = {}

    def hmac(self, token_id: str) -> bytes:
        """The secret of a token: its HMAC."""
        return hmac.digest(self.key, token_id.encode(), "sha512")

    def find(self, token_ids: Iterable[str], given: bytes) -> str | None:
        """The id of the token with this secret; None if there is none."""
        for token_id in token_ids:
            if hmac.compare_digest(self.hmac(token_id), given):
                return token_id
        return None

    async def credential(self, token_id: str, mechanism: str) -> ScramCredential:
        """The SCRAM credential of a token, derived in a thread."""
        known = self.derived.get((token_id, mechanism))
        if known is None:
            password = base64.b64encode(self.hmac(token_id))
            salt = hmac.digest(self.salt_key, token_id.encode(), "sha256").hex().encode()
            known = await asyncio.get_running_loop().run_in_executor(
                None, derive, password, salt[:SALT_SIZE], ITERATIONS_MIN, mechanism
            )
            if len(self.derived) >= CREDENTIALS_MAX:
                self.derived.clear()
            self.derived[token_id, mechanism] = known
        return known
