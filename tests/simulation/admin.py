"""Clients that create and delete topics, change settings, delete records, and move logs between
directories."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AlterReplicaLogDirsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    IncrementalAlterConfigsRequest,
    MetadataRequest,
)
from tests.simulation.logs import check_start_kept
from tests.simulation.model import GOING, GONE, LIVE, PartitionModel, TopicModel
from tests.simulation.network import Broken
from tests.simulation.options import SHAKEN
from tests.simulation.session import Session
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.story import Story

NAMES = ("a", "b", "c")
FIRST_SETTINGS = (
    ("cleanup.policy", "compact"), ("cleanup.policy", "compact"),
    ("cleanup.policy", "compact,delete"), ("retention.ms", "1000"), ("segment.bytes", "1000"),
    ("message.timestamp.type", "LogAppendTime"), ("file.delete.delay.ms", "0"),
)
"""The settings with which topics are created: a topic has one of these or none."""
SETTINGS = (
    ("retention.ms", "1000"), ("retention.ms", "3600000"), ("retention.ms", "-1"),
    ("retention.bytes", "2000"), ("retention.bytes", "-1"),
    ("cleanup.policy", "compact"), ("cleanup.policy", "compact"), ("cleanup.policy", "delete"),
    ("cleanup.policy", "compact,delete"), ("segment.ms", "500"),
    ("compression.type", "zstd"), ("flush.messages", "3"),
    ("min.cleanable.dirty.ratio", "0.0"), ("delete.retention.ms", "0"),
    ("segment.bytes", "700"), ("segment.bytes", "8192"), ("segment.index.bytes", "36"),
    ("index.interval.bytes", "0"), ("index.interval.bytes", "4096"), ("flush.ms", "100"),
    ("min.compaction.lag.ms", "0"), ("min.compaction.lag.ms", "60000"),
    ("max.compaction.lag.ms", "60001"), ("file.delete.delay.ms", "0"), ("preallocate", "true"),
    ("message.timestamp.type", "LogAppendTime"), ("message.timestamp.type", "CreateTime"),
)
OF_THE_BROKER = (
    ("log.retention.ms", "retention.ms", "3600000"), ("log.cleanup.policy", "cleanup.policy",
    "compact"), ("log.cleanup.policy", "cleanup.policy", "delete"),
    ("log.segment.bytes", "segment.bytes", "2000"), ("log.roll.ms", "segment.ms", "500"),
    ("log.flush.interval.messages", "flush.messages", "5"),
    ("log.message.timestamp.type", "message.timestamp.type", "LogAppendTime"),
    ("log.cleaner.delete.retention.ms", "delete.retention.ms", "0"),
    ("log.index.interval.bytes", "index.interval.bytes", "300"),
    ("compression.type", "compression.type", "gzip"),
)
"""Settings of the broker that give topics a default: the broker's setting, the topics' setting, and
a value."""
INTERNAL = ("__consumer_offsets", "__transaction_state")
UNBOUND = 1 << 62


class Admin:
    """An administrator. `story.busy` has the names of topics that some administrator is creating,
    deleting or growing: no other one does this at the same time."""

    def __init__(self, story: Story, name: str) -> None:
        self.story, self.random = story, story.random
        self.session = story.session(name)
        self.others: list[Session] = []

    async def work(self) -> None:
        story = self.story
        while not story.over:
            await asyncio.sleep(self.random.expovariate(0.2 / story.pace))
            with contextlib.suppress(Broken):
                await self.act()

    async def act(self) -> None:
        """One random operation on topics."""
        if self.story.options.slow_moves and self.story.apart.random() < 0.3:
            await self.move()
            return
        await self.random.choice((
            self.recreate, self.recreate, self.grow, self.configure, self.configure,
            self.delete_records, self.delete_records, self.move, self.move_internal,
            self.configure_all,
        ))()

    async def recreate(self, later: float = 0.3) -> None:
        """Delete a topic if it exists, and create it again. With the probability `later`, a deleted
        topic is not created now, but by a later call."""
        name = self.random.choice(NAMES)
        if name in self.story.busy:
            return
        self.story.busy.add(name)
        try:
            topic = next((t for t in self.story.model.topics if t.name == name
                          and t.state in (LIVE, GOING)), None)
            if topic is not None:
                if topic.state == LIVE and self.random.random() < 0.2:
                    with contextlib.suppress(Broken):
                        await self.delete_records_of(topic)
                await self.delete(topic)
                if self.random.random() < later:
                    return
            await self.create(name)
        finally:
            self.story.busy.discard(name)

    async def delete_on_a_full_disk(self) -> None:
        """Delete a topic while the disk is full. This must not fail, because it frees space."""
        topic = self.some_topic()
        if topic is None or len(self.story.model.live()) < 2:
            return
        self.story.busy.add(topic.name)
        disk = self.story.world.disk
        disk.capacity = min(disk.capacity or 0, disk.used())
        try:
            await self.delete(topic, refusals=0)
        finally:
            self.story.busy.discard(topic.name)

    async def delete(self, topic: TopicModel, refusals: int = 1000) -> None:
        """Repeat DeleteTopics until the outcome is certain. It may fail `refusals` times because of
        the disk."""
        topic.state, asked_in = GOING, self.story.model.incarnation
        made, named = DeleteTopicsRequest, self.random.random() < 0.3
        self.story.on_deletion()
        while True:
            try:
                answer = await self.session.call(made(
                    topics=[] if named else [made.Topic(topic_id=topic.topic_id)],
                    topic_names=[topic.name] if named else [], timeout_ms=10_000,
                ), 5 if named else 6)
            except Broken:
                await asyncio.sleep(0.1)
                continue
            code = ErrorCode(answer.responses[0].error_code)
            if code in (
                ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            ):
                topic.state = GONE
                if asked_in == self.story.model.incarnation:
                    topic.gone_in = asked_in
                self.story.world.note(f"deleted {topic.name}({topic.number})")
                return
            if code != ErrorCode.KAFKA_STORAGE_ERROR and code != ErrorCode.UNKNOWN_SERVER_ERROR:
                raise Violation(f"DeleteTopics of {topic.name} is answered {code.name}")
            if not refusals:
                raise Violation(
                    f"DeleteTopics of {topic.name} is refused too often on a full disk: {code.name}"
                )
            refusals -= 1
            await asyncio.sleep(0.5)

    async def create(self, name: str) -> None:
        """Repeat CreateTopics, or Metadata requests that create the topic, until the outcome is
        certain."""
        if self.random.random() < 0.1:
            topic_id, count = await self.identify(name, create=True)
            self.created(name, topic_id, count)
            return
        made = CreateTopicsRequest
        count = self.random.choice((1, 1, 2, 3))
        own = [self.random.choice(FIRST_SETTINGS)] if self.random.random() < 0.3 else []
        while True:
            try:
                answer = await self.session.call(made(topics=[made.Topic(
                    name=name, num_partitions=count, replication_factor=1, assignments=[],
                    configs=[made.Topic.Config(name=name, value=value) for name, value in own],
                )], timeout_ms=10_000), 7)
                code = ErrorCode(answer.topics[0].error_code)
            except Broken:
                await asyncio.sleep(0.1)
                continue
            if code == ErrorCode.NONE:
                topic_id = answer.topics[0].topic_id
                break
            if code == ErrorCode.TOPIC_ALREADY_EXISTS:
                topic_id, count = await self.identify(name)
                break
            if code not in (
                ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR
            ):
                raise Violation(f"CreateTopics of {name} is answered {code.name}")
            await asyncio.sleep(0.5)
        topic = self.created(name, topic_id, count)
        for setting, value in own:
            others = topic.settings.get(setting, set())
            topic.may_be_set(setting, value)
            topic.settings[setting] = {value, *others}

    def created(self, name: str, topic_id: bytes, count: int) -> TopicModel:
        """Note in the model that the topic exists."""
        if topic_id in self.story.model.by_id:
            raise Violation(f"the new topic {name} has the id of an earlier topic")
        topic = self.story.model.new_topic(name, topic_id, count)
        if self.story.options.settings["log.index.interval.bytes"] == "0":
            topic.indexed_whole = not self.story.model.sparse
        self.story.world.note(f"created {name}({topic.number}) with {count}")
        return topic

    async def identify(self, name: str, create: bool = False) -> tuple[bytes, int]:
        """The id and the number of partitions of a topic that exists, or that this Metadata request
        creates."""
        while True:
            try:
                answer = await self.session.call(MetadataRequest(
                    topics=[MetadataRequest.Topic(name=name)], allow_auto_topic_creation=create
                ), 12)
            except Broken:
                continue
            topic = answer.topics[0]
            if topic.error_code == 0:
                return topic.topic_id, len(topic.partitions)
            await asyncio.sleep(0.2)

    def some_topic(self) -> TopicModel | None:
        topics = [t for t in self.story.model.live() if t.name not in self.story.busy]
        return self.random.choice(topics) if topics else None

    async def grow(self) -> None:
        topic = self.some_topic()
        if topic is None or len(topic.partitions) >= 4:
            return
        self.story.busy.add(topic.name)
        try:
            count, made = len(topic.partitions) + 1, CreatePartitionsRequest
            while True:
                try:
                    answer = await self.session.call(made(topics=[
                        made.Topic(name=topic.name, count=count, assignments=None)
                    ], timeout_ms=10_000), 3)
                except Broken:
                    await asyncio.sleep(0.1)
                    continue
                code = ErrorCode(answer.results[0].error_code)
                if code in (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS):
                    break
                await asyncio.sleep(0.5)
            while len(topic.partitions) < count:
                topic.partitions.append(PartitionModel(topic, len(topic.partitions)))
        finally:
            self.story.busy.discard(topic.name)

    async def configure(self) -> None:
        """Change a setting of retention or of file layout."""
        topic, random = self.some_topic(), self.random
        if topic is None:
            return
        name, value = random.choice(SETTINGS)
        removed = random.random() < 0.15
        value = "default" if removed else value
        topic.may_be_set(name, value)
        change = topic.name, name, value
        self.story.model.late_changes.append(change)
        alone = not topic.changing.get(name)
        topic.changing[name] = topic.changing.get(name, 0) + 1
        made = IncrementalAlterConfigsRequest
        answer = await self.session.call(made(resources=[made.Resource(
            resource_type=2, resource_name=topic.name,
            configs=[made.Resource.Config(
                name=name, config_operation=int(removed), value=None if removed else value
            )],
        )]), 1)
        if topic.state == LIVE:
            self.story.model.late_changes.remove(change)
        else:
            for other in self.story.model.live():
                if other.name == topic.name:
                    other.may_be_set(name, value)
        if alone and topic.changing[name] == 1:
            topic.changing[name] = 0
            if answer.responses[0].error_code == 0:
                topic.settings[name] = {value}

    async def configure_all(self) -> None:
        """Change a setting of the broker that applies to topics without a setting of their own."""
        property_name, name, value = self.random.choice(OF_THE_BROKER)
        self.story.model.everywhere(name, value)
        made, removed = IncrementalAlterConfigsRequest, self.random.random() < 0.4
        answer = await self.session.call(made(resources=[made.Resource(
            resource_type=4, resource_name=self.random.choice(("", "7")),
            configs=[made.Resource.Config(
                name=property_name, config_operation=int(removed),
                value=None if removed else value,
            )],
        )]), 1)
        code = ErrorCode(answer.responses[0].error_code)
        if code not in (
            ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR
        ):
            raise Violation(
                f"a change of the broker's settings, {property_name}={value}, is answered"
                f" {code.name}"
            )

    async def delete_records(self) -> None:
        """Send DeleteRecords for one topic, or sometimes for several topics at almost the same
        time."""
        topic, apart = self.some_topic(), self.story.apart
        if topic is None:
            return
        if not self.story.options.small or apart.random() < 0.5:
            await self.delete_records_of(topic)
            return

        async def later(session: Session) -> None:
            await asyncio.sleep(apart.choice((0.0, 0.001, 0.1)) * apart.random())
            chosen = self.some_topic()
            if chosen is not None:
                await self.delete_records_of(chosen, session)

        self.others = self.others or [self.story.session(f"deleter {at}") for at in range(3)]
        done = await asyncio.gather(*map(later, self.others), return_exceptions=True)
        for error in done:
            if error is not None and not isinstance(error, Broken):
                raise error

    async def delete_records_of(self, topic: TopicModel, session: Session | None = None) -> None:
        """Send DeleteRecords for a random partition: up to the first record of a random batch, up
        to the record after that one, or for all records."""
        session = session or self.session
        partition = self.random.choice(topic.partitions)
        known = [b.base_offset for b in partition.batches if b.base_offset >= 0]
        if not known:
            return
        whole = self.random.random() < 0.1
        offset = UNBOUND if whole else self.random.choice(known) + self.random.choice((0, 1))
        if not whole:
            partition.delete_asked = max(partition.delete_asked, offset)
        partition.late_deletions.append(offset)
        made, incarnation = DeleteRecordsRequest, self.story.model.incarnation
        answer = await session.call(made(topics=[made.Topic(
            name=topic.name,
            partitions=[made.Topic.Partition(
                partition_index=partition.index, offset=-1 if whole else offset
            )],
        )], timeout_ms=10_000), 2)
        part = answer.topics[0].partitions[0]
        if topic.state != LIVE:
            return
        if not whole or part.error_code != ErrorCode.KAFKA_STORAGE_ERROR:
            # After KAFKA_STORAGE_ERROR, a deletion of all records may have taken effect: perhaps
            # the disk has only refused to store the new log start.
            partition.late_deletions.remove(offset)
        if part.error_code == 0:
            partition.delete_acked = max(partition.delete_acked, part.low_watermark)
            world = self.story.world
            if world.up and world.server and incarnation == self.story.model.incarnation:
                key = topic.name, partition.index
                check_start_kept(world.server, world.disk, key, part.low_watermark)

    async def move_internal(self) -> None:
        """Move a partition of an internal topic between log directories."""
        name, index = self.random.choice(INTERNAL), self.random.randrange(2)
        if len(self.story.options.directories) > 1:
            await self.moved(name, [index], lambda: True)

    async def move(self) -> None:
        """Move some partitions of a topic between log directories, all at once."""
        topic = self.some_topic()
        if topic is None or len(self.story.options.directories) < 2:
            return
        compacted = [each for each in self.story.model.live() if each.compacted]
        if self.story.options.slow_moves and compacted:
            topic = self.story.apart.choice(compacted)
        chosen = self.random.sample(topic.partitions, self.random.randint(1, len(topic.partitions)))
        await self.moved(topic.name, [each.index for each in chosen], lambda: topic.state == LIVE)

    async def moved(self, name: str, indexes: list[int], there: Callable[[], bool]) -> None:
        """Send AlterReplicaLogDirs. Raises Violation if a move is refused although the topic
        exists, as `there` says, and no fault of the run harms a disk."""
        made = AlterReplicaLogDirsRequest
        answer = await self.session.call(made(dirs=[made.Dir(
            path=self.random.choice(self.story.options.directories),
            topics=[made.Dir.Topic(name=name, partitions=indexes)],
        )]), 2)
        well = not {*SHAKEN, "directory missing"} & {*self.story.options.faults}
        for part in answer.results[0].partitions:
            code = ErrorCode(part.error_code)
            if code != ErrorCode.NONE and there() and well:
                raise Violation(
                    f"a move of {name}-{part.partition_index} to another directory is refused with"
                    f" {code.name}, though every disk is well"
                )
