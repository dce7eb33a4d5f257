"""Replicas that move between the log directories of their broker (KIP-113)."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING

from ottla.log.storage.move_record import MOVE_RECORD
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import AlterReplicaLogDirsRequest
from tests.simulation.cluster.clients import Client
from tests.simulation.network import Broken
from tests.simulation.options import REFUSED
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster.story import ClusterStory
    from tests.simulation.cluster.world import ClusterMachine, ClusterWorld

NOT_THERE = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REPLICA_NOT_AVAILABLE}
"""Errors of a replica that has not been created yet, or that was moved to another broker."""
HARM = ("disk full", "io error", "missing directory", "damaged bytes", REFUSED)
"""Faults after which a move may be refused with KAFKA_STORAGE_ERROR."""


class Mover(Client):
    """An administrator that moves random replicas: leaders and followers, of clients' topics and of
    internal topics."""

    def __init__(self, story: ClusterStory, name: str) -> None:
        super().__init__(story, name)
        self.chance = random.Random(f"cluster moves between directories {story.world.seed}")

    async def work(self) -> None:
        while not self.story.over:
            await self.story.rest(8.0)
            name, index, state = self.chance.choice(list(self.story.truth.states()))
            machine = self.world.broker(self.chance.choice(state.replicas))
            path = self.chance.choice(self.story.options.directories)
            if machine is not None and machine.up:
                await self.move(machine, name, index, path)

    async def move(self, machine: ClusterMachine, name: str, index: int, path: str) -> None:
        """Send AlterReplicaLogDirs. Raises Violation if the broker refuses to move a replica that
        it has, unless a fault of the run harms disks."""
        made = AlterReplicaLogDirsRequest
        request = made(dirs=[made.Dir(
            path=path, topics=[made.Dir.Topic(name=name, partitions=[index])]
        )])
        with contextlib.suppress(Broken):
            answer = await self.call(machine.node_id, request, 2)
            code = ErrorCode(answer.results[0].partitions[0].error_code)
            self.world.note(f"{machine.name}: {name}-{index} moves to {path}: {code.name}")
            well = not any(each in " ".join(self.story.options.faults) for each in HARM)
            refused = code is not ErrorCode.KAFKA_STORAGE_ERROR or well
            if code is not ErrorCode.NONE and code not in NOT_THERE and refused:
                raise Violation(
                    f"a move of {name}-{index} to another directory of {machine.name} is refused"
                    f" with {code.name}"
                )


def unfinished(world: ClusterWorld) -> str:
    """A move that has not ended, or files that a move has left behind; "" if there is neither."""
    for machine in world.brokers:
        if machine.server is not None:
            for name, index in machine.server.storage.moves:
                return f"{machine.name} still moves {name}-{index}"
        for path in machine.disk.names:
            if "-future/" in path or path.endswith("/" + MOVE_RECORD):
                return f"{machine.name} has {path} without a move"
    return ""
