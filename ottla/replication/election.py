"""The election of the controller.

The controller is the broker that created the ephemeral node `/controller`. The multi that creates
`/controller` also increments `/controller_epoch`. Every later write of the controller checks the
version of `/controller_epoch`. So a deposed controller can change nothing, even if its machine was
suspended during the election. Safety depends neither on time nor on the state of a session.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass

from ottla.replication.cluster_store import CONTROLLER_EPOCH
from ottla.replication.coordination import (
    Check,
    Coordination,
    CoordinationRefused,
    Create,
    Delete,
    NoNode,
    Operation,
    Set,
    Watch,
)
from ottla.replication.records import GARBAGE, UnreadableMetadata

CONTROLLER = "/controller"


@dataclass(frozen=True, slots=True)
class Term:
    """The result of a won election: the controller's epoch, and the version of
    `/controller_epoch` that its writes check."""

    epoch: int
    version: int


@dataclass(frozen=True, slots=True)
class Controller:
    """The holder of `/controller`."""

    node_id: int
    epoch: int
    incarnation: str
    session_id: int


class Election:
    """One broker's part in the election."""

    def __init__(self, coordination: Coordination, node_id: int, incarnation: str) -> None:
        self.coordination = coordination
        self.node_id, self.incarnation = node_id, incarnation

    async def holder(self, watch: Watch | None = None) -> Controller | None:
        """The controller, or None; `watch` is called when the controller may have changed."""
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
        except GARBAGE as error:
            raise UnreadableMetadata(
                f"{CONTROLLER} in ZooKeeper is not readable: {data[:100]!r}") from error

    async def contest(self, deposing: Controller | None = None) -> Term | None:
        """Become the controller if there is none, or replace the controller `deposing`. Returns
        None if another broker was faster.

        A controller should only be deposed if its process has ended, but safety does not depend on
        that: ZooKeeper refuses the deposed controller's writes from now on. Raises ConnectionLost
        if the outcome is not known; the caller must then call `resign`.
        """
        data, stat = await self.coordination.get(CONTROLLER_EPOCH)
        try:
            epoch = int(data) + 1
        except ValueError as error:
            raise UnreadableMetadata(
                f"{CONTROLLER_EPOCH} in ZooKeeper is not a number: {data!r}") from error
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
        except CoordinationRefused:
            return None
        return Term(epoch, stat.version + 1)

    async def resign(self) -> None:
        """Delete `/controller` if this session has created it."""
        _, stat = await self.coordination.get(CONTROLLER_EPOCH)
        holder = await self.holder()
        if holder is None or holder.session_id != self.coordination.session_id:
            return
        with suppress(CoordinationRefused):     # another broker has deposed this broker meanwhile
            await self.coordination.multi([
                Check(CONTROLLER_EPOCH, stat.version), Delete(CONTROLLER)
            ])
