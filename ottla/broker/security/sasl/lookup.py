"""Finds what SCRAM needs to know about a user: the credentials of the newest metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.security.sasl.exchange import Identity
from ottla.broker.security.sasl.scram import Known, Lookup

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext


def lookup_in(broker: BrokerContext) -> Lookup:
    """A look-up that a user made or deleted a moment ago counts for."""

    def look(name: str, mechanism: int, by_token: bool) -> Known | None:
        if by_token:
            return None
        credential = broker.image.credentials.get((name, mechanism))
        return None if credential is None else Known(credential, Identity(f"User:{name}"))

    return look
