"""Topics that are deleted and created again under the same names while other clients work and
faults happen.

After a deletion was answered, no broker may serve the deleted topic, or keep the topic's files
under the topic's name. This also holds for a broker that did not run during the deletion, and for
one that has not read the deletion itself, but a snapshot of the metadata that was written after it.
Each record contains the id of the topic to which it was sent.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from ottla.wire.batch import batches
from ottla.wire.errors import ErrorCode
from ottla.wire.marks import reached
from ottla.wire.messages import DeleteTopicsRequest, ProduceRequest
from ottla.wire.records import Record, build_batch
from tests.simulation.cluster.checker import partitions_of
from tests.simulation.cluster.clients import SOONER_OR_LATER, Admin
from tests.simulation.network import Broken
from tests.simulation.replay import bytes_of
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster.story import ClusterStory
    from tests.simulation.cluster.world import ClusterWorld

NAMES = ("again", "anew")
PARTITIONS = 2
GONE = {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
PUT_ASIDE = ("-stray", "-delete", "-future")
"""The endings of directories that are not the log of an existing replica: stray logs, logs that are
being deleted, and copies for moves between log directories."""


class Deleter(Admin):
    """An administrator that creates topics, writes a little to them, and deletes them."""

    def __init__(self, story: ClusterStory, name: str) -> None:
        super().__init__(story, name)
        self.chance = random.Random(f"cluster deletions {story.world.seed}")
        self.there: dict[str, bytes] = {}
        self.changing: set[str] = set()

    async def work(self) -> None:
        while not self.story.over:
            await self.story.rest(4.0)
            name = self.chance.choice(NAMES)
            if name in self.there and self.chance.random() < 0.5:
                await self.write(name)
            else:
                await self.replace(name, again=self.chance.random() < 0.7)

    async def replace(self, name: str, again: bool) -> None:
        """Create a topic if it does not exist; otherwise delete it, and create it again if
        `again`."""
        if name in self.changing:
            return
        self.changing.add(name)
        topic_id = self.there.pop(name, None)
        if topic_id is not None:
            await self._delete(topic_id)
        if again or topic_id is None:
            self.there[name] = await self.create(name, PARTITIONS)
        self.changing.discard(name)

    async def _delete(self, topic_id: bytes) -> None:
        """Repeat DeleteTopics until the outcome is certain."""
        if not all(machine.up for machine in self.world.brokers):
            reached("a topic is deleted while a broker does not run")
        request = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.Topic(topic_id=topic_id)], topic_names=[], timeout_ms=10_000
        )
        while True:
            _, answer = await self.ask_any(request, 6)
            code = ErrorCode(answer.responses[0].error_code)
            if code in GONE:
                self.attempts = 0
                return
            if code not in SOONER_OR_LATER:
                raise Violation(f"DeleteTopics is answered {code.name}")
            await self.back_off()

    async def write(self, name: str) -> None:
        """Send a batch once to each broker, by the topic's id. The batch must not reach another
        topic."""
        topic_id = self.there.get(name)
        if topic_id is None:
            return
        made, index = ProduceRequest.TopicData, self.chance.randrange(PARTITIONS)
        value = topic_id + b"x" * self.chance.choice((0, 300))
        data = build_batch([Record(timestamp=self.world.wall_ms(), key=None, value=value)])
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[
            made(topic_id=topic_id, partition_data=[made.PartitionData(index=index, records=data)])
        ])
        for machine in self.world.brokers:
            if machine.up:
                try:
                    await self.call(machine.node_id, request, 13)
                except Broken:
                    continue


def not_forgotten(world: ClusterWorld) -> str:
    """What a broker still has of a deleted topic; "" if no broker has anything."""
    for machine in world.brokers:
        if machine.server is None or not machine.up:
            continue
        topics, storage = machine.server.metadata_log.image.topics, machine.server.storage
        for partition in partitions_of(machine):
            topic = topics.get(partition.topic)
            if topic is None or topic.topic_id != partition.topic_id:
                return f"{machine.name} serves partition {partition!r} of a deleted topic"
        known = {
            f"{name}-{index}" for name, topic in topics.items()
            for index, state in enumerate(topic.partitions) if machine.node_id in state.replicas
        }
        for (name, index) in storage.homes:
            if f"{name}-{index}" not in known:
                return f"{machine.name} has the log {name}-{index}, but not this replica"
        for directory in world.options.directories:
            for name in machine.disk.subdirectories(directory):
                if name not in known and not name.endswith(PUT_ASIDE):
                    return f"{machine.name} has {directory}/{name}, but not this replica"
    return ""


def check_own_records(world: ClusterWorld) -> None:
    """Check that a topic has only records that were sent to it, and none that were sent to an
    earlier topic of the same name."""
    for machine in world.brokers:
        for partition in partitions_of(machine):
            if partition.topic not in NAMES:
                continue
            for view in batches(bytes_of(partition)):
                for record in view.records():
                    if (record.value or b"")[:16] != partition.topic_id:
                        raise Violation(
                            f"partition {partition!r} of {machine.name} has a record that was sent"
                            " to an earlier topic of this name"
                        )
