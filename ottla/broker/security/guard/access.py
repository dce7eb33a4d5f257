"""What a guard sees of the one who asks, and how it says no.

A guard gets the decoded request before the handler does. It raises where all of it is refused; else
it takes out what is refused, and returns how to add the refusals to the handler's response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ottla.broker.context import RequestContext
from ottla.broker.security.authorizer import ANONYMOUS
from ottla.replication.controller.access import CLUSTER_NAME, Operation, Resource
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError

Amend = Callable[[Any], None]
"""Changes a handler's response in place."""
Guard = Callable[[Any, "Access"], Amend | None]
Item = TypeVar("Item")

GUARDS: dict[int, Guard] = {}

TOPIC_REFUSED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
GROUP_REFUSED = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
CLUSTER_REFUSED = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
TRANSACTION_REFUSED = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


class ClusterRefused(ProtocolError):
    """Not allowed on the cluster."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class GroupRefused(ProtocolError):
    """Not allowed on the group."""

    code = ErrorCode.GROUP_AUTHORIZATION_FAILED


class TopicRefused(ProtocolError):
    """Not allowed on the topic."""

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class TransactionRefused(ProtocolError):
    """Not allowed on the transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class Answered(Exception):
    """The guard answers in the handler's place."""

    def __init__(self, response: Any) -> None:
        super().__init__()
        self.response = response


def guards(*keys: ApiKey) -> Callable[[Guard], Guard]:
    """Register the guard of these APIs."""

    def register(guard: Guard) -> Guard:
        for key in keys:
            assert key not in GUARDS, f"{key.name} is guarded twice"
            GUARDS[key] = guard
        return guard

    return register


class Access:
    """The questions of one request, with the answers for who sent it."""

    def __init__(self, context: RequestContext) -> None:
        self.key, self.version = context.api_key, context.version
        self.image = context.broker.image
        self.host = context.client_host
        authorizer = context.broker.authorizer
        assert authorizer is not None, "guards are asked where there is one"
        self.authorizer = authorizer
        self.principal = ANONYMOUS

    def may(self, operation: int, resource_type: int, name: str) -> bool:
        """Whether this is allowed."""
        return self.authorizer.allows(self.principal, self.host, operation, resource_type, name)

    def cluster(self, operation: int) -> bool:
        """Whether this is allowed on the cluster."""
        return self.may(operation, Resource.CLUSTER, CLUSTER_NAME)

    def topic(self, operation: int, name: str) -> bool:
        """Whether this is allowed on a topic."""
        return self.may(operation, Resource.TOPIC, name)

    def group(self, operation: int, name: str) -> bool:
        """Whether this is allowed on a group."""
        return self.may(operation, Resource.GROUP, name)

    def transaction(self, operation: int, name: str) -> bool:
        """Whether this is allowed on a transactional id."""
        return self.may(operation, Resource.TRANSACTIONAL_ID, name)

    def need_cluster(self, operation: int) -> None:
        """Raise ClusterRefused where this is not allowed on the cluster."""
        if not self.cluster(operation):
            raise ClusterRefused("Cluster authorization failed.")

    def need_group(self, operation: int, name: str) -> None:
        """Raise GroupRefused where this is not allowed on a group."""
        if not self.group(operation, name):
            raise GroupRefused("Group authorization failed.")

    def need_transaction(self, operation: int, name: str) -> None:
        """Raise TransactionRefused where this is not allowed on a transactional id."""
        if not self.transaction(operation, name):
            raise TransactionRefused("Transactional Id authorization failed.")

    def name_of(self, topic_id: bytes) -> str | None:
        """The topic of this id; None for one that is unknown, which handlers tell."""
        return self.image.names.get(topic_id)

    def topic_item(self, operation: int, item: Any) -> bool:
        """Whether this is allowed on a topic that a request names, or gives by its id."""
        name = getattr(item, "name", "") or self.name_of(getattr(item, "topic_id", b""))
        return name is None or self.topic(operation, name)

    def operations(self, resource_type: int, name: str, of: Iterable[Operation]) -> int:
        """The bits of the operations that are allowed (KIP-430)."""
        return sum(1 << each for each in of if self.may(each, resource_type, name))


def split(
    items: Iterable[Item], allowed: Callable[[Item], bool]
) -> tuple[list[Item], list[Item]]:
    """Those that are allowed, and the others."""
    kept: list[Item] = []
    refused: list[Item] = []
    for item in items:
        (kept if allowed(item) else refused).append(item)
    return kept, refused
