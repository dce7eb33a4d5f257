"""A client that sends mostly read-only requests while other clients change topics, groups and
settings. Answers must be true, and must not list deleted topics. The client also writes to topics
that were deleted, which must fail, and changes a quota."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AlterClientQuotasRequest,
    ConsumerGroupDescribeRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeTopicPartitionsRequest,
    DescribeTransactionsRequest,
    FetchRequest,
    ListConfigResourcesRequest,
    ListGroupsRequest,
    ListTransactionsRequest,
    MetadataRequest,
    ProduceRequest,
)
from ottla.wire.records import Record, build_batch
from tests.simulation import options
from tests.simulation.model import GONE, LIVE, PartitionModel, TopicModel
from tests.simulation.network import Broken
from tests.simulation.reading import Missing, ask_offset
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.story import Story

NO_SUCH = {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
SHAKEN = {*options.SHAKEN, "directory missing"}


class Looker:
    """The client."""

    def __init__(self, story: Story, name: str) -> None:
        self.story, self.random, self.name = story, story.random, name
        self.session = story.session(name)

    async def look(self) -> None:
        """Send one random request."""
        await self.random.choice((
            self.describe, self.describe, self.list_topics, self.use_an_old_id,
            self.fetch_in_another_epoch, self.look_up_a_time, self.limit,
        ))()

    def some_partition(self) -> PartitionModel | None:
        topics = self.story.model.live()
        return self.random.choice(self.random.choice(topics).partitions) if topics else None

    async def describe(self) -> None:
        """Call an API that changes nothing. Unless the run has a fault of SHAKEN, the answer must
        not contain UNKNOWN_SERVER_ERROR."""
        partition = self.some_partition()
        if partition is None:
            return
        name, index = partition.topic.name, partition.index
        groups = ["s0", "s1", "c-classic", "n-new"]
        resource = DescribeConfigsRequest.Resource
        request, version = self.random.choice((
            (DescribeProducersRequest(topics=[DescribeProducersRequest.Topic(
                name=name, partition_indexes=[index])]), 0),
            (DescribeTransactionsRequest(transactional_ids=["t0", "t1"]), 0),
            (ListTransactionsRequest(), 1),
            (DescribeGroupsRequest(groups=groups), 5),
            (ConsumerGroupDescribeRequest(group_ids=groups), 0),
            (ListGroupsRequest(), 5),
            (DescribeLogDirsRequest(topics=None), 4),
            (DescribeClusterRequest(), 1),
            (DescribeTopicPartitionsRequest(
                topics=[DescribeTopicPartitionsRequest.Topic(name=name)],
                response_partition_limit=2, cursor=None), 0),
            (ListConfigResourcesRequest(resource_types=[]), 1),
            (DescribeConfigsRequest(resources=[
                resource(resource_type=2, resource_name=name, configuration_keys=None),
                resource(resource_type=4, resource_name="7", configuration_keys=None)]), 4),
        ))
        answer = await self.session.call(request, version)
        if not SHAKEN & {*self.story.options.faults}:
            for place, code in codes_in(answer):
                if code == ErrorCode.UNKNOWN_SERVER_ERROR:
                    raise Violation(
                        f"{type(request).__name__} is answered UNKNOWN_SERVER_ERROR, {place}:"
                        f" {request}"
                    )

    async def list_topics(self) -> None:
        """Check that Metadata lists every existing topic with all its partitions, and no deleted
        topic."""
        model = self.story.model
        there = [(topic, len(topic.partitions)) for topic in model.live()]
        gone = {topic.topic_id: topic for topic in model.topics if topic.state == GONE}
        answer = await self.session.call(
            MetadataRequest(topics=None, allow_auto_topic_creation=False), 12
        )
        listed = {topic.topic_id: topic for topic in answer.topics}
        for topic_id in sorted(listed.keys() & gone.keys()):
            raise Violation(f"topic {gone[topic_id].name} was deleted, but Metadata lists its id")
        for topic, count in there:
            if topic.state != LIVE:
                continue
            found = listed.get(topic.topic_id)
            if found is None or len(found.partitions) < count:
                raise Violation(
                    f"topic {topic.name} has {count} partitions, but Metadata lists it as {found}"
                )

    async def use_an_old_id(self) -> None:
        """Send a fetch or a produce request with the id of a deleted topic. It must fail, even if
        a new topic has the same name."""
        gone = [topic for topic in self.story.model.topics if topic.state == GONE]
        if not gone:
            return
        topic = self.random.choice(gone[-3:])
        if self.random.random() < 0.5:
            await self.fetch_from(topic)
        else:
            await self.produce_to(topic)

    async def fetch_from(self, topic: TopicModel) -> None:
        made = FetchRequest.Topic
        answer = await self.session.call(FetchRequest(
            replica_id=-1, max_wait_ms=self.random.choice((0, 100)), min_bytes=1,
            max_bytes=1 << 20, topics=[made(topic_id=topic.topic_id, partitions=[made.Partition(
                partition=0, fetch_offset=0, partition_max_bytes=1 << 20,
            )])],
        ), 13)
        if answer.error_code:
            return
        part = answer.responses[0].partitions[0]
        if ErrorCode(part.error_code) not in NO_SUCH or part.records:
            raise Violation(
                f"a fetch by the id of the deleted topic {topic.name} is answered {part}"
            )

    async def produce_to(self, topic: TopicModel) -> None:
        made = ProduceRequest.TopicData
        data = build_batch([Record(timestamp=self.story.world.wall_ms(), key=b"k0", value=b"late")])
        answer = await self.session.call(ProduceRequest(
            acks=self.random.choice((1, -1)), timeout_ms=1000, topic_data=[made(
                topic_id=topic.topic_id, partition_data=[made.PartitionData(index=0, records=data)]
            )],
        ), 13)
        part = answer.responses[0].partition_responses[0]
        if ErrorCode(part.error_code) not in NO_SUCH:
            raise Violation(
                f"a produce by the id of the deleted topic {topic.name} is answered {part}"
            )

    async def fetch_in_another_epoch(self) -> None:
        """Send a fetch whose leader epoch is one below or one above the current epoch. It must be
        refused."""
        partition = self.some_partition()
        if partition is None:
            return
        topic, incarnation = partition.topic, self.story.model.incarnation
        answer = await self.session.call(
            MetadataRequest(topics=[MetadataRequest.Topic(topic_id=topic.topic_id, name=None)],
                            allow_auto_topic_creation=False), 12)
        found = [each for each in answer.topics[0].partitions
                 if each.partition_index == partition.index and not each.error_code]
        if not found:
            return
        epoch = found[0].leader_epoch + self.random.choice((-1, 1))
        made = FetchRequest.Topic
        answer = await self.session.call(FetchRequest(
            replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20,
            topics=[made(topic_id=topic.topic_id, partitions=[made.Partition(
                partition=partition.index, fetch_offset=0, current_leader_epoch=epoch,
                partition_max_bytes=1 << 20,
            )])],
        ), 13)
        same = self.story.model.incarnation == incarnation and topic.state == LIVE
        if not same or epoch < 0 or SHAKEN & {*self.story.options.faults}:
            return
        code = ErrorCode(answer.responses[0].partitions[0].error_code)
        if code not in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH):
            raise Violation(
                f"partition {partition!r}: a fetch that names the wrong epoch {epoch} is answered"
                f" {code.name}"
            )

    async def look_up_a_time(self) -> None:
        """Look up an offset by time with ListOffsets, while other clients write and delete records.
        The record that is found must not be older than this time."""
        partition = self.some_partition()
        if partition is None or not partition.batches:
            return
        time = self.random.choice(self.random.choice(partition.batches).timestamps)
        with contextlib.suppress(Missing):
            part = await ask_offset(self.session, partition, time, self.random.choice((0, 1)))
            if part.offset >= 0 and part.timestamp < time:
                raise Violation(
                    f"partition {partition!r}: ListOffsets for time {time} gives an older record:"
                    f" {part}"
                )

    async def limit(self) -> None:
        """Set a quota for a producer, or remove it."""
        made, removed = AlterClientQuotasRequest.Entry, self.random.random() < 0.5
        await self.session.call(AlterClientQuotasRequest(entries=[made(
            entity=[made.Entity(entity_type="client-id", entity_name="p0")],
            ops=[made.Op(key="producer_byte_rate", value=0.0 if removed else 5000.0,
                         remove=removed)],
        )], validate_only=False), 1)


def codes_in(value: Any, place: str = "") -> Iterator[tuple[str, int]]:
    """Every error code in an answer, with its place."""
    if isinstance(value, list):
        for each in value:
            yield from codes_in(each, place)
    elif hasattr(value, "error_code"):
        yield f"{place} {value}"[:300], value.error_code
    if hasattr(type(value), "__slots__"):
        for name in type(value).__slots__:
            inner = getattr(value, name, None)
            if isinstance(inner, list):
                yield from codes_in(inner, name)


async def look_around(story: Story, name: str) -> None:
    looker = Looker(story, name)
    while not story.over:
        await asyncio.sleep(story.random.expovariate(0.3 / story.pace))
        with contextlib.suppress(Broken):
            await looker.look()
