"""The interface of the SASL mechanisms: an exchange of tokens that ends with an identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class AuthenticationFailed(Exception):
    """The client has not proved who it is. The text of this exception may be sent to the client."""


class InvalidExchange(AuthenticationFailed):
    """The client's token breaks the mechanism's rules, or its proof is wrong.

    The client learns only that its credentials are invalid; the message is in the log.
    """


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a client that has authenticated."""

    principal: str
    """Type and name, `User:alice`."""
    expires_at_ms: int | None = None
    """When the credential expires, in wall-clock milliseconds; None if it does not."""
    by_token: bool = False
    """Whether a delegation token was used: such a client cannot create further tokens."""


class Exchange(Protocol):
    """One client's conversation with one mechanism."""

    identity: Identity | None
    """Set once the conversation is complete."""
    claimed: str | None = None
    """The user that the client claims to be, unverified; for the log."""

    async def answer(self, token: bytes) -> bytes:
        """The server's next token. Raises AuthenticationFailed."""
        ...
