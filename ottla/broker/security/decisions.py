"""The access decisions that `@handles` takes: an API without one cannot be registered.

A decision is called with the decoded request and the `Access` of its sender, before the handler and
only if there is an authorizer. It raises the ProtocolError with which the whole request is refused,
or `Answered`; it may return a function that changes the handler's response.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.broker.security.access import Access

Amend = Callable[[Any], None]
"""Changes a handler's response in place."""
Decision = Callable[[Any, "Access"], Amend | None]


class Answered(Exception):
    """The decision itself answers, instead of the handler."""

    def __init__(self, response: Any) -> None:
        super().__init__()
        self.response = response


def everybody(request: Any, access: Access) -> None:
    """Allowed for all clients, also before they have authenticated."""


def by_item(request: Any, access: Access) -> None:
    """The handler asks `context.access` about each topic, group or other item."""


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
