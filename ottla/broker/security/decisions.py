"""The access decisions that `@handles` takes: an API without one cannot be registered.

A decision is called with the decoded request and the `Access` of its sender, before the handler and
only if there is an authorizer. It raises the ProtocolError with which the whole request is refused.
It changes neither request nor response: where Kafka refuses single items, or has a special
response, the decision is `by_item` and the handler uses `context.access`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.replication.controller.access import Operation

if TYPE_CHECKING:
    from ottla.broker.request_context import RequestContext
    from ottla.broker.security.access import Access

Decision = Callable[[Any, "Access"], None]


def everybody(request: Any, access: Access) -> None:
    """Allowed for all clients, also before they have authenticated."""


def by_item(request: Any, access: Access) -> None:
    """The handler checks each topic, group or other item with `context.access`."""


def on_cluster(operation: int) -> Decision:
    """The whole request requires this operation on the cluster."""

    def decide(request: Any, access: Access) -> None:
        access.need_cluster(operation)

    return decide


def on_group(operation: int) -> Decision:
    """The whole request requires this operation on the group that it names."""

    def decide(request: Any, access: Access) -> None:
        access.need_group(operation, request.group_id)

    return decide


def on_transaction(operation: int) -> Decision:
    """The whole request requires this operation on the transactional id that it names."""

    def decide(request: Any, access: Access) -> None:
        access.need_transaction(operation, request.transactional_id)

    return decide


def client_id_of(node_id: int) -> str:
    """The client id with which a broker sends requests to others."""
    return f"broker-{node_id}"


def asks_as_a_broker(context: RequestContext) -> bool:
    """Whether the sender is another broker that acts on its own behalf: it uses the inter-broker
    listener, has CLUSTER_ACTION, and the request was not forwarded. A client that is not a broker
    also passes if it uses that listener and has CLUSTER_ACTION; with this right it may forward
    requests on behalf of any user anyway."""
    inside = context.broker.role.listener == context.client.listener
    return inside and not context.forwarded and context.access.quiet.cluster(
        Operation.CLUSTER_ACTION)
