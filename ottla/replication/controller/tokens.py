"""The controller's decisions about delegation tokens (KIP-48, KIP-373).

A token's secret is not stored: it is derived from the token's id and
`delegation.token.secret.key`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.replication.metadata import Decision, MetadataImage, MetadataRecord
from ottla.replication.principals import DelegationToken, TokenSet
from ottla.replication.records import NUMBER_MAX
from ottla.wire.errors import ErrorCode, ProtocolError


class UnknownToken(ProtocolError):
    """The token does not exist; it may have expired and been removed."""

    code = ErrorCode.DELEGATION_TOKEN_NOT_FOUND


class ForeignToken(ProtocolError):
    """The client is neither the token's owner nor its requester nor one of its renewers."""

    code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


class ExpiredToken(ProtocolError):
    """The token has expired: its expiry time cannot be changed any more."""

    code = ErrorCode.DELEGATION_TOKEN_EXPIRED


class TokenTimes(NamedTuple):
    """Lifetimes of tokens, in milliseconds."""

    lifetime_ms_max: int
    renewal_ms: int


def create_token(
    image: MetadataImage,
    token_id: str,
    owner: str,
    requester: str,
    renewers: Sequence[str],
    lifetime_ms: int,
    times: TokenTimes,
    now_ms: int,
) -> Decision[DelegationToken]:
    """Issue a token, and remove all tokens that have expired."""
    lifetime = min(lifetime_ms, times.lifetime_ms_max) if lifetime_ms > 0 else times.lifetime_ms_max
    max_ms = min(now_ms + lifetime, NUMBER_MAX)
    expires_ms = min(max_ms, now_ms + times.renewal_ms)
    token = DelegationToken(
        token_id, owner, requester, tuple(renewers), now_ms, expires_ms, max_ms
    )
    return Decision([*_removals(image, now_ms), TokenSet(token_id, token)], token)


def renew_token(
    image: MetadataImage,
    token_id: str | None,
    who: str,
    period_ms: int,
    times: TokenTimes,
    now_ms: int,
) -> Decision[int]:
    """Renew a token, up to its maximum lifetime; the result is its new expiry time."""
    token = _usable(image, token_id, who, now_ms)
    wanted = period_ms if period_ms >= 0 else times.renewal_ms
    return _ends(token, min(token.max_ms, now_ms + wanted))


def expire_token(
    image: MetadataImage, token_id: str | None, who: str, period_ms: int, now_ms: int
) -> Decision[int]:
    """Make a token expire after `period_ms`, or remove it at once if `period_ms` is negative; the
    result is the token's new expiry time."""
    if period_ms < 0:
        token = _known(image, token_id, who)
        return Decision([TokenSet(token.token_id, None)], now_ms)
    token = _usable(image, token_id, who, now_ms)
    return _ends(token, min(token.max_ms, now_ms + period_ms))


def has_expired_tokens(image: MetadataImage, now_ms: int) -> bool:
    """Whether `remove_expired_tokens` would remove any token."""
    return any(each.expires_ms < now_ms for each in image.tokens.values())


def remove_expired_tokens(image: MetadataImage, now_ms: int) -> Decision[int]:
    """Remove the tokens that have expired; the result is their number."""
    gone = _removals(image, now_ms)
    return Decision(gone, len(gone))


def _removals(image: MetadataImage, now_ms: int) -> list[MetadataRecord]:
    return [
        TokenSet(each.token_id, None)
        for each in image.tokens.values()
        if each.expires_ms < now_ms
    ]


def _ends(token: DelegationToken, expires_ms: int) -> Decision[int]:
    return Decision(
        [TokenSet(token.token_id, token._replace(expires_ms=expires_ms))], expires_ms
    )


def _known(image: MetadataImage, token_id: str | None, who: str) -> DelegationToken:
    token = None if token_id is None else image.tokens.get(token_id)
    if token is None:
        raise UnknownToken("Delegation Token is not found on server.")
    if who not in (token.owner, token.requester) and who not in token.renewers:
        raise ForeignToken("Specified Principal is not valid Owner/Renewer.")
    return token


def _usable(image: MetadataImage, token_id: str | None, who: str, now_ms: int) -> DelegationToken:
    token = _known(image, token_id, who)
    if min(token.max_ms, token.expires_ms) < now_ms:
        raise ExpiredToken("Delegation Token is expired.")
    return token
