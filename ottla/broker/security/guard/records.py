"""What Produce and Fetch ask, topic by topic, where they are served."""

from __future__ import annotations

from ottla.broker.security.authorizer import ANONYMOUS, Authorizer
from ottla.replication.controller.access import Operation, Resource


def may_write(authorizer: Authorizer, host: str, topic: str) -> bool:
    """Whether a client at `host` may append to a topic."""
    return authorizer.allows(ANONYMOUS, host, Operation.WRITE, Resource.TOPIC, topic)


def may_read(authorizer: Authorizer, host: str, topic: str) -> bool:
    """Whether a client at `host` may read a topic."""
    return authorizer.allows(ANONYMOUS, host, Operation.READ, Resource.TOPIC, topic)


def may_use_transaction(authorizer: Authorizer, host: str, transactional_id: str) -> bool:
    """Whether a client at `host` may write as this transactional id."""
    return authorizer.allows(
        ANONYMOUS, host, Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id
    )
