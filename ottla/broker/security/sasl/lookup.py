"""Finds what SCRAM needs: the credentials and tokens in the newest metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.security.sasl.exchange import Identity
from ottla.broker.security.sasl.scram import NUMBERS, KnownUser, Lookup

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext


def lookup_in(broker: BrokerContext, mechanism: str) -> Lookup:
    """A look-up that always uses the newest users and tokens."""

    async def look(name: str, by_token: bool) -> KnownUser | None:
        image = broker.image
        if not by_token:
            credential = image.credentials.get((name, NUMBERS[mechanism]))
            return None if credential is None else KnownUser(credential, Identity(f"User:{name}"))
        token = image.tokens.get(name)
        if token is None or broker.token_secrets is None:
            return None
        if token.expires_ms < broker.clock.now_ms():
            return None
        return KnownUser(
            await broker.token_secrets.credential(name, mechanism),
            Identity(token.owner, token.expires_ms, by_token=True),
        )

    return look
