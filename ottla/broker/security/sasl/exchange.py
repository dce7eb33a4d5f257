"""What the SASL mechanisms have in common: an exchange of tokens that ends in an identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class AuthenticationFailed(Exception):
    """The client is not who it says; the message may be told to it."""


class InvalidExchange(AuthenticationFailed):
    """The client's token breaks the mechanism's rules, or its proof is wrong.

    The client is told only that its credentials are invalid; the log has the message.
    """


@dataclass(frozen=True, slots=True)
class Identity:
    """Who has authenticated."""

    principal: str
    """Type and name, `User:alice`."""
    expires_at_ms: int | None = None
    """When the credential ends, in wall-clock milliseconds; None if it does not."""
    by_token: bool = False
    """Whether a delegation token was used: it cannot make others."""


class Exchange(Protocol):
    """One client's conversation with one mechanism."""

    identity: Identity | None
    """Set once the conversation is complete."""

    async def answer(self, token: bytes) -> bytes:
        """The server's next token. Raises AuthenticationFailed."""
        ...
