"""The answer to a client's request that the controller has not decided. Each item gets the error,
such as REQUEST_TIMED_OUT, since most APIs that are forwarded to the controller have no top-level
error code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from ottla.broker.role import Alone, Role
from ottla.wire.errors import ProtocolError
from ottla.wire.structs import Message

if TYPE_CHECKING:
    from ottla.broker.request_context import RequestContext
    from ottla.replication.controller.features import Levels
    from ottla.replication.metadata import MetadataImage


class UndecidedMetadata:
    """A substitute for the metadata log, for an API's handler: every decision fails with
    `error`."""

    def __init__(self, image: MetadataImage, error: ProtocolError) -> None:
        self.image = self.decided = image
        self.error = error

    async def decide(self, function: Any, *arguments: Any) -> NoReturn:
        """Like `Metadata.decide`, but raises the error."""
        raise self.error

    async def decide_each(
        self, refused: Callable[[ProtocolError], Any], function: Any, *arguments: Any
    ) -> Any:
        """Like `Metadata.decide_each`, but refuses each item with the error."""
        return refused(self.error)


class DecidingRole(Alone):
    """Lets a broker of a cluster handle one request as if it were the controller."""

    def __init__(self, node_id: int, role: Role) -> None:
        super().__init__(node_id)
        self.role, self.listener = role, role.listener

    def supported_features(self) -> Mapping[int, Levels] | None:
        """The levels that the cluster's brokers have registered."""
        return self.role.supported_features()

    def attainable_factor(self, wanted: int, image: MetadataImage) -> int:
        """The replication factor that the cluster would use."""
        return self.role.attainable_factor(wanted, image)


async def undecided_answer(context: RequestContext, body: bytes, error: ProtocolError) -> Message:
    """Have the API's own handler make the response, with an error in place of the decision.
    Requests that are not allowed or not valid are refused as usual."""
    from ottla.broker.dispatch import serve_inside
    from ottla.broker.request_context import RequestContext

    broker = replace(
        context.broker, role=DecidingRole(context.broker.node_id, context.broker.role),
        metadata_log=UndecidedMetadata(context.broker.image, error),    # type: ignore[arg-type]
        loop=asyncio.get_running_loop(),
    )
    inside = RequestContext(broker, context.api_key, context.version, context.client)
    return await serve_inside(inside, body)
