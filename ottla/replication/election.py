"""The election of the controller: the broker that created the ephemeral node `/controller`.

Becoming it takes one multi that also counts `/controller_epoch` up. The version of that node is
what every later write of the controller checks, so that one which was deposed, or whose machine
stood still, cannot change anything: safety does not rest on time, nor on a session's state.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass

from ottla.replication.cluster_store import CONTROLLER_EPOCH
from ottla.replication.coordination import (
    Check,
    Coordination,
    Create,
    Delete,
    NoNode,
    Operation,
    Refused,
    Set,
    Watch,
)
from ottla.replication.records import UnreadableMetadata

CONTROLLER = "/controller"


@dataclass(frozen=True, slots=True)
class Term:
    """What an election gave: the controller's epoch, and the version that its writes check."""

    epoch: int
    version: int


@dataclass(frozen=True, slots=True)
class Controller:
    """Who holds `/controller`."""

    node_id: int
    epoch: int
    incarnation: str
    session_id: int


class Election:
    """A broker's part in it."""

    def __init__(self, coordination: Coordination, node_id: int, incarnation: str) -> None:
        self.coordination = coordination
        self.node_id, self.incarnation = node_id, incarnation

    async def holder(self, watch: Watch | None = None) -> Controller | None:
        """The controller, None if there is none; `watch` is called when that may have changed."""
        if watch is not None:
            await self.coordination.exists(CONTROLLER, watch)
        try:
            data, stat = await self.coordination.get(CONTROLLER)
        except NoNode:
            return None
        try:
            body = json.loads(data)
            return Controller(
                int(body["brokerid"]), int(body["epoch"]), str(body["incarnation"]), stat.owner
            )
        except (ValueError, KeyError, TypeError) as error:
            raise UnreadableMetadata(f"{CONTROLLER} is not readable: {data[:100]!r}") from error

    async def contest(self, deposing: Controller | None = None) -> Term | None:
        """Become the controller if nobody is, or in place of `deposing`; None where somebody else
        was faster.

        Whoever deposes another had better be right that its process has ended, but need not be: the
        other one's writes are refused from now on. Raises ConnectionLost where the outcome is not
        known: `resign` then.
        """
        data, stat = await self.coordination.get(CONTROLLER_EPOCH)
        try:
            epoch = int(data) + 1
        except ValueError as error:
            raise UnreadableMetadata(f"{CONTROLLER_EPOCH} is not a number: {data!r}") from error
        operations: list[Operation] = [Set(CONTROLLER_EPOCH, str(epoch).encode(), stat.version)]
        if deposing is not None:
            if epoch != deposing.epoch + 1:
                return None
            operations.append(Delete(CONTROLLER))
        body = {"brokerid": self.node_id, "epoch": epoch, "incarnation": self.incarnation}
        try:
            await self.coordination.multi([
                *operations, Create(CONTROLLER, json.dumps(body).encode(), ephemeral=True)
            ])
        except Refused:
            return None
        return Term(epoch, stat.version + 1)

    async def resign(self) -> None:
        """Give the office back if this session holds it."""
        _, stat = await self.coordination.get(CONTROLLER_EPOCH)
        holder = await self.holder()
        if holder is None or holder.session_id != self.coordination.session_id:
            return
        with suppress(Refused):             # somebody else ended it, and may hold it by now
            await self.coordination.multi([
                Check(CONTROLLER_EPOCH, stat.version), Delete(CONTROLLER)
            ])
