"""What the metadata keeps about those who connect: SCRAM credentials (KIP-554), quotas (KIP-546),
access rules (KIP-290), delegation tokens (KIP-48).

A password is not kept, and nothing that a client could log in with: only what a server checks a
client's proof against (RFC 5802, section 3).
"""

from __future__ import annotations

from dataclasses import dataclass

Entity = tuple[tuple[str, str | None], ...]
"""Whom a quota is for: pairs of type and name, sorted by type; the name None is the default of
all that have no quota of their own."""

Identity = tuple[str, int]
"""A user and the number of a SCRAM mechanism."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """Salted keys of one user for one mechanism."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes


@dataclass(frozen=True, slots=True)
class ScramSet:
    """A user's credential for a mechanism; None takes it away."""

    user: str
    mechanism: int
    credential: ScramCredential | None


@dataclass(frozen=True, slots=True)
class QuotaSet:
    """One limit of an entity; None takes it away."""

    entity: Entity
    key: str
    value: float | None


@dataclass(frozen=True, slots=True)
class AccessRule:
    """Who may, or may not, do what with which resources; types by Kafka's numbers.

    A rule of pattern type PREFIXED is for all names that begin with `resource_name`.
    """

    resource_type: int
    pattern_type: int
    resource_name: str
    principal: str
    host: str
    operation: int
    permission: int


@dataclass(frozen=True, slots=True)
class RuleSet:
    """An access rule comes, or goes where `present` is false."""

    rule: AccessRule
    present: bool


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token with which clients may log in as `owner`; times in wall-clock milliseconds."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int


@dataclass(frozen=True, slots=True)
class TokenSet:
    """A token comes or changes; None takes it away."""

    token_id: str
    token: DelegationToken | None
