"""Clients that change things: topics created, deleted and created again, settings, log starts,
directories."""

from __future__ import annotations

import asyncio
import contextlib
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
from tests.simulation.model import GOING, GONE, LIVE, PartitionModel, TopicModel
from tests.simulation.network import Broken
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.story import Story

NAMES = ("a", "b", "c")


class Admin:
    """Creates and deletes topics, one task for each name."""

    def __init__(self, story: Story, name: str) -> None:
        self.story, self.random = story, story.random
        self.session = story.session(name)

    async def work(self) -> None:
        story = self.story
        while not story.over:
            await asyncio.sleep(self.random.expovariate(0.2 / story.pace))
            with contextlib.suppress(Broken):
                await self.act()

    async def act(self) -> None:
        """One random operation on topics."""
        await self.random.choice((
            self.recreate, self.recreate, self.grow, self.configure, self.configure,
            self.delete_records, self.delete_records, self.move,
        ))()

    async def recreate(self) -> None:
        """Delete a topic if it exists, and create it again, at once or later."""
        name = self.random.choice(NAMES)
        if name in self.story.busy:
            return
        self.story.busy.add(name)
        try:
            topic = next((t for t in self.story.model.topics if t.name == name
                          and t.state in (LIVE, GOING)), None)
            if topic is not None:
                await self.delete(topic)
                if self.random.random() < 0.3:
                    return
            await self.create(name)
        finally:
            self.story.busy.discard(name)

    async def delete_on_a_full_disk(self) -> None:
        """Deleting a topic frees space: it must not fail on a full disk."""
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
        """DeleteTopics until the outcome is certain; a disk may fail it a few times."""
        topic.state = GOING
        made = DeleteTopicsRequest
        while True:
            try:
                answer = await self.session.call(made(
                    topics=[made.Topic(topic_id=topic.topic_id)], timeout_ms=10_000
                ), 6)
            except Broken:
                await asyncio.sleep(0.1)
                continue
            code = ErrorCode(answer.responses[0].error_code)
            if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID):
                topic.state = GONE
                self.story.world.note(f"deleted {topic.name}({topic.number})")
                return
            if code != ErrorCode.KAFKA_STORAGE_ERROR and code != ErrorCode.UNKNOWN_SERVER_ERROR:
                raise Violation(f"deleting {topic.name}: {code.name}")
            if not refusals:
                raise Violation(f"deleting {topic.name} on a full disk: {code.name}")
            refusals -= 1
            await asyncio.sleep(0.5)

    async def create(self, name: str) -> None:
        """CreateTopics until the outcome is certain."""
        made = CreateTopicsRequest
        count = self.random.choice((1, 1, 2, 3))
        while True:
            try:
                answer = await self.session.call(made(topics=[made.Topic(
                    name=name, num_partitions=count, replication_factor=1, assignments=[],
                    configs=[],
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
                raise Violation(f"creating {name}: {code.name}")
            await asyncio.sleep(0.5)
        if topic_id in self.story.model.by_id:
            raise Violation(f"{name} was deleted, and is there again with its id")
        topic = self.story.model.new_topic(name, topic_id, count)
        topic.indexed_whole = self.story.options.settings["log.index.interval.bytes"] == "0"
        self.story.world.note(f"created {name}({topic.number}) with {count}")

    async def identify(self, name: str) -> tuple[bytes, int]:
        while True:
            try:
                answer = await self.session.call(MetadataRequest(
                    topics=[MetadataRequest.Topic(name=name)], allow_auto_topic_creation=False
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
        name, value = random.choice((
            ("retention.ms", "1000"), ("retention.ms", "3600000"), ("retention.ms", "-1"),
            ("retention.bytes", "2000"), ("retention.bytes", "-1"),
            ("cleanup.policy", "compact"), ("cleanup.policy", "delete"),
            ("cleanup.policy", "compact,delete"), ("segment.ms", "500"),
            ("compression.type", "zstd"), ("flush.messages", "3"),
            ("min.cleanable.dirty.ratio", "0.0"), ("delete.retention.ms", "0"),
        ))
        topic.may_be_set(name, value)
        change = topic.name, name, value
        self.story.model.late_changes.append(change)
        alone = not topic.changing.get(name)
        topic.changing[name] = topic.changing.get(name, 0) + 1
        made = IncrementalAlterConfigsRequest
        answer = await self.session.call(made(resources=[made.Resource(
            resource_type=2, resource_name=topic.name,
            configs=[made.Resource.Config(name=name, config_operation=0, value=value)],
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

    async def delete_records(self) -> None:
        topic = self.some_topic()
        if topic is None:
            return
        partition = self.random.choice(topic.partitions)
        known = [b.base_offset for b in partition.batches if b.base_offset >= 0]
        if not known:
            return
        offset = self.random.choice(known) + self.random.choice((0, 1))
        partition.delete_asked = max(partition.delete_asked, offset)
        partition.late_deletions.append(offset)
        made = DeleteRecordsRequest
        answer = await self.session.call(made(topics=[made.Topic(
            name=topic.name,
            partitions=[made.Topic.Partition(partition_index=partition.index, offset=offset)],
        )], timeout_ms=10_000), 2)
        part = answer.topics[0].partitions[0]
        if topic.state != LIVE:
            return
        partition.late_deletions.remove(offset)
        if part.error_code == 0:
            partition.delete_acked = max(partition.delete_acked, part.low_watermark)

    async def move(self) -> None:
        """Move some partitions of a topic, all at once."""
        directories = self.story.world.options.directories
        topic = self.some_topic()
        if topic is None or len(directories) < 2:
            return
        made = AlterReplicaLogDirsRequest
        chosen = self.random.sample(topic.partitions, self.random.randint(1, len(topic.partitions)))
        answer = await self.session.call(made(dirs=[made.Dir(
            path=self.random.choice(directories),
            topics=[made.Dir.Topic(name=topic.name, partitions=[each.index for each in chosen])],
        )]), 2)
        well = not {"disk full", "io error", "directory missing"} & {*self.story.options.faults}
        for part in answer.results[0].partitions:
            code = ErrorCode(part.error_code)
            if code != ErrorCode.NONE and topic.state == LIVE and well:
                raise Violation(
                    f"{topic.name}-{part.partition_index} is not moved, though every disk is well:"
                    f" {code.name}"
                )
