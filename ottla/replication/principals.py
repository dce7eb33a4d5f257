"""The metadata about clients: SCRAM credentials (KIP-554), quotas (KIP-546), ACLs (KIP-290),
delegation tokens (KIP-48).

The metadata contain no passwords, and nothing else that lets a client log in. They contain only the
keys with which a server verifies a client's proof (RFC 5802, section 3).
"""

from typing import NamedTuple

USER, CLIENT_ID, IP = "user", "client-id", "ip"
CLIENT_KEYS = {
    "producer_byte_rate": "LONG",
    "consumer_byte_rate": "LONG",
    "request_percentage": "DOUBLE",
    "controller_mutation_rate": "DOUBLE",
}
IP_KEYS = {"connection_creation_rate": "INT"}
"""The limits that addresses may have, each with its type; CLIENT_KEYS are the limits of clients."""

Entity = tuple[tuple[str, str | None], ...]
"""The clients that a quota applies to: pairs of type and name, sorted by type. The name None means
all clients that have no quota of their own."""

Identity = tuple[str, int]
"""A user and the number of a SCRAM mechanism."""


class ScramCredential(NamedTuple):
    """Salted keys of one user for one mechanism."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes


class ScramSet(NamedTuple):
    """A user's credential for a mechanism; None removes it."""

    user: str
    mechanism: int
    credential: ScramCredential | None


class QuotaSet(NamedTuple):
    """One limit of an entity; None removes it."""

    entity: Entity
    key: str
    value: float | None


class AccessRule(NamedTuple):
    """An ACL: allows or denies a principal an operation on resources; types are Kafka's numbers.

    With pattern type PREFIXED it applies to all names that begin with `resource_name`.
    """

    resource_type: int
    pattern_type: int
    resource_name: str
    principal: str
    host: str
    operation: int
    permission: int


class RuleSet(NamedTuple):
    """An ACL is added, or removed if `present` is false."""

    rule: AccessRule
    present: bool


class DelegationToken(NamedTuple):
    """A token with which clients may log in as `owner`; times are wall-clock milliseconds."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int


class TokenSet(NamedTuple):
    """A token is issued or changed; None removes it."""

    token_id: str
    token: DelegationToken | None
