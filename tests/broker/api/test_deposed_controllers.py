"""A controller that is deposed between the decisions of one request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ottla.broker.api import configs
from ottla.broker.cluster.metadata_log import NotController
from ottla.replication.controller.configs import Alteration, ConfigChange
from ottla.replication.controller.reassignment import complete_reassignments
from ottla.wire.errors import ErrorCode


class Deposed:
    """A metadata log that takes settings, and then is another broker's."""

    async def decide(self, function: Callable[..., Any], *arguments: Any) -> bool:
        if function is complete_reassignments:
            raise NotController("broker 1 is not the controller")
        return False

    async def decide_each(self, refused: Any, *arguments: Any) -> list[None]:
        return [None]


def test_a_setting_that_could_not_complete_reassignments_is_answered_with_an_error() -> None:
    """Not with a closed connection: the client asks the next controller, which completes them."""
    broker = SimpleNamespace(role=SimpleNamespace(replicated=True), metadata_log=Deposed())
    change = ConfigChange("min.insync.replicas", 0, "1")
    alterations = [Alteration("topic", "t", [change], False)]
    context: Any = SimpleNamespace(broker=broker)
    rules: Any = None
    [error] = asyncio.run(configs._decide(context, alterations, rules, False))
    assert error is not None and error.code is ErrorCode.NOT_CONTROLLER
