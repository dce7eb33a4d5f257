"""A controller that is deposed between the decisions of one request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ottla.broker.api import configs
from ottla.broker.cluster.metadata_log import NotController
from ottla.replication.controller.configs import Alteration, ConfigChange
from ottla.wire.errors import ErrorCode, ProtocolError


class Deposed:
    """The metadata log of a broker that is no longer the controller."""

    async def decide(self, function: Callable[..., Any], *arguments: Any) -> bool:
        raise NotController("broker 1 is not the controller")


def test_a_setting_that_could_not_complete_reassignments_is_answered_with_an_error() -> None:
    """The connection stays open. The client asks the next controller, which completes the
    reassignments."""
    context: Any = SimpleNamespace(broker=SimpleNamespace(metadata_log=Deposed()))
    change = ConfigChange("min.insync.replicas", 0, "1")
    errors: list[ProtocolError | None] = [None]
    asyncio.run(configs.complete_waiting_reassignments(
        context, [Alteration("topic", "t", [change])], errors
    ))
    assert [each and each.code for each in errors] == [ErrorCode.NOT_CONTROLLER]
