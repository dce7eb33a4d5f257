"""What the sender of a request is allowed to do: `context.access`, with or without an authorizer.

Handlers check single items with it; the functions of `decisions` check a whole request. Without an
authorizer everything is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ottla.broker.threads.slices import Slices
from ottla.replication.controller.access import CLUSTER_NAME, Operation, Resource
from ottla.wire.errors import ErrorCode, ProtocolError

if TYPE_CHECKING:
    from ottla.broker.security.authorizer import Authorizer
    from ottla.broker.security.client import Client
    from ottla.replication.metadata import MetadataImage

Item = TypeVar("Item")

TOPIC_REFUSED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
GROUP_REFUSED = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
CLUSTER_REFUSED = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
TRANSACTION_REFUSED = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
CLUSTER_REFUSED_MESSAGE = "Cluster authorization failed."


class Rules(Protocol):
    """The two parts of the broker that decisions about access need."""

    authorizer: Authorizer | None

    @property
    def image(self) -> MetadataImage:
        """The current metadata."""


class ClusterRefused(ProtocolError):
    """The client may not perform the operation on the cluster."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class GroupRefused(ProtocolError):
    """The client may not perform the operation on the group."""

    code = ErrorCode.GROUP_AUTHORIZATION_FAILED


class TopicRefused(ProtocolError):
    """The client may not perform the operation on the topic."""

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class TransactionRefused(ProtocolError):
    """The client may not perform the operation on the transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class Access:
    """What one client may do, according to the authorizer and the current metadata.

    Each negative result of `may` is logged as a refusal of the request with `api_key`; nothing is
    logged if `api_key` is None (`quiet`).
    """

    __slots__ = ("api_key", "authorizer", "client", "image")

    def __init__(
        self,
        authorizer: Authorizer | None,
        client: Client,
        image: MetadataImage,
        api_key: int | None,
    ) -> None:
        self.authorizer, self.client, self.image = authorizer, client, image
        self.api_key = api_key

    @property
    def quiet(self) -> Access:
        """The same access without logging, for checks whose negative result does not refuse a
        request: filters, and the first of two alternative permissions."""
        return Access(self.authorizer, self.client, self.image, None)

    def may(self, operation: int, resource_type: int, name: str) -> bool:
        """Whether an operation is allowed on a resource."""
        authorizer, client = self.authorizer, self.client
        if authorizer is None or authorizer.allows(
            client.principal, client.host, operation, resource_type, name
        ):
            return True
        if self.api_key is not None:
            authorizer.denials.note(client, self.api_key, operation, resource_type, name)
        return False

    def may_with_any(self, operation: int, resource_type: int) -> bool:
        """Whether the operation is allowed on at least one possible resource of this type."""
        return self.authorizer is None or self.authorizer.allows_any(
            self.client.principal, self.client.host, operation, resource_type
        )

    def cluster(self, operation: int) -> bool:
        """Whether an operation is allowed on the cluster."""
        return self.may(operation, Resource.CLUSTER, CLUSTER_NAME)

    def topic(self, operation: int, name: str) -> bool:
        """Whether an operation is allowed on a topic."""
        return self.may(operation, Resource.TOPIC, name)

    def group(self, operation: int, name: str) -> bool:
        """Whether an operation is allowed on a group."""
        return self.may(operation, Resource.GROUP, name)

    def transaction(self, operation: int, name: str) -> bool:
        """Whether an operation is allowed on a transactional id."""
        return self.may(operation, Resource.TRANSACTIONAL_ID, name)

    def need_cluster(self, operation: int) -> None:
        """Raise ClusterRefused if an operation is not allowed on the cluster."""
        if not self.cluster(operation):
            raise ClusterRefused(CLUSTER_REFUSED_MESSAGE)

    def need_group(self, operation: int, name: str) -> None:
        """Raise GroupRefused if an operation is not allowed on a group."""
        if not self.group(operation, name):
            raise GroupRefused("Group authorization failed.")

    def need_topic(self, operation: int, name: str) -> None:
        """Raise TopicRefused if an operation is not allowed on a topic."""
        if not self.topic(operation, name):
            raise TopicRefused("Topic authorization failed.")

    def need_topic_of(self, operation: int, topic: str | bytes) -> bool:
        """As `need_topic`, for a topic's name or id. Returns False for an unknown id, so that the
        handler reports it."""
        name = self.name_of(topic) if isinstance(topic, bytes) else topic
        if name is not None:
            self.need_topic(operation, name)
        return name is not None

    def need_transaction(self, operation: int, name: str) -> None:
        """Raise TransactionRefused if an operation is not allowed on a transactional id."""
        if not self.transaction(operation, name):
            raise TransactionRefused("Transactional Id authorization failed.")

    def name_of(self, topic_id: bytes) -> str | None:
        """The topic with this id; None for an unknown id, which handlers report."""
        return self.image.names.get(topic_id)

    def topic_item(self, operation: int, item: Any) -> bool:
        """As `topic_of`, for a request's item, which has a name, an id or both."""
        return self.topic_of(operation, getattr(item, "name", ""), getattr(item, "topic_id", b""))

    def topic_of(self, operation: int, name: str | None, topic_id: bytes) -> bool:
        """Whether an operation is allowed on a topic, given by its name or, if that is empty, its
        id. True for an unknown id, which handlers report."""
        name = name or self.name_of(topic_id)
        return name is None or self.topic(operation, name)

    def split(
        self, items: list[Item], allowed: Callable[[Item], bool]
    ) -> tuple[list[Item], list[Item]]:
        """Split the items into the allowed ones and the others; without an authorizer nothing is
        copied or called."""
        if self.authorizer is None:
            return items, []
        kept: list[Item] = []
        refused: list[Item] = []
        for item in items:
            (kept if allowed(item) else refused).append(item)
        return kept, refused

    async def divide(
        self, items: list[Item], allowed: Callable[[Item], bool]
    ) -> tuple[list[Item], list[Item]]:
        """As `split`, but in slices: a request may have tens of thousands of items."""
        if self.authorizer is None:
            return items, []
        kept: list[Item] = []
        refused: list[Item] = []
        async for item in Slices().each(items):
            (kept if allowed(item) else refused).append(item)
        return kept, refused

    def sight(self) -> Callable[[str], bool] | None:
        """Returns a function that tells whether the client may see a topic; None if it may see
        all topics."""
        if self.authorizer is None:
            return None
        return partial(self.quiet.topic, Operation.DESCRIBE)

    def operations(self, resource_type: int, name: str, of: Iterable[Operation]) -> int:
        """The allowed operations among `of`, as bits (KIP-430)."""
        quiet = self.quiet
        return sum(1 << each for each in of if quiet.may(each, resource_type, name))


def access_of(broker: Rules, client: Client, api_key: int | None) -> Access:
    """The current access of a client, for requests that do not pass through `dispatch`."""
    return Access(broker.authorizer, client, broker.image, api_key)
