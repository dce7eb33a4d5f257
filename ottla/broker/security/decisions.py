"""What `@handles` has to say about access: an API without a decision cannot be registered.

A decision is called with the decoded request and the `Access` of who sent it, before the handler
and only where there is an authorizer. It raises the ProtocolError that the whole request is
refused with, or `Answered`; it may return how to amend the handler's response.
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
    """The decision answers in the handler's place."""

    def __init__(self, response: Any) -> None:
        super().__init__()
        self.response = response


def everybody(request: Any, access: Access) -> None:
    """Open to all, and to those who have not authenticated yet."""


def by_item(request: Any, access: Access) -> None:
    """The handler asks `context.access` about each topic, group or other item."""


def on_cluster(operation: int) -> Decision:
    """The whole request needs this operation on the cluster."""

    def decide(request: Any, access: Access) -> None:
        access.need_cluster(operation)

    return decide


def on_group(operation: int) -> Decision:
    """The whole request needs this operation on the group that it names."""

    def decide(request: Any, access: Access) -> None:
        access.need_group(operation, request.group_id)

    return decide


def on_transaction(operation: int) -> Decision:
    """The whole request needs this operation on the transactional id that it names."""

    def decide(request: Any, access: Access) -> None:
        access.need_transaction(operation, request.transactional_id)

    return decide
