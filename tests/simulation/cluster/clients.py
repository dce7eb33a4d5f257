"""Clients of a cluster: they find a partition's leader through any broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.wire.batch import batches
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AlterPartitionReassignmentsRequest,
    CreateTopicsRequest,
    ElectLeadersRequest,
    FetchRequest,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from ottla.wire.records import Record, build_batch
from tests.simulation.network import Broken, Link
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster.story import ClusterStory

AGAIN = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_CONTROLLER, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR,
}
LOST_SEQUENCE = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}
SOONER_OR_LATER = {*AGAIN, ErrorCode.INVALID_REPLICATION_FACTOR}
"""Errors that an administrator may get while brokers are down."""


@dataclass(eq=False)
class Part:
    """A partition, and what clients were promised about it."""

    topic: str
    index: int
    sent: dict[bytes, tuple[str, int]] = field(default_factory=dict)
    acked: dict[bytes, int] = field(default_factory=dict)
    """By value, the offset at which it was acknowledged with acks=all; -1 if the answer had no
    offset."""
    seen: dict[int, bytes] = field(default_factory=dict)
    """By offset, the values that consumers have read."""
    epochs: dict[int, int] = field(default_factory=dict)
    """By offset, the leader epochs of the records that consumers have read."""
    flushed: dict[bytes, int] = field(default_factory=dict)
    """By value, the node id of the only in-sync replica, if there was only one at the
    acknowledgement."""
    lost_at: float = -1.0
    """When promises were last given up (`lose`), either because the partition had no good copy, or
    because of an unclean election; -1.0 if never."""
    lost_in: int = -1
    """The leader epoch at that time. Followers may return lost records until they know a later
    epoch."""
    deletions: list[int] = field(default_factory=list)
    """For each DeleteRecords request, the offset below which it may have deleted records."""
    start: int = 0
    """The highest log start that an answer to DeleteRecords has promised: no replica's log may
    start before it."""
    start_epoch: int = -1
    """The leader epoch of the partition when that answer arrived."""

    @property
    def deleted_below(self) -> int:
        """Records before this offset may have been deleted."""
        return max(self.deletions, default=0)

    def deletion(self, offset: int) -> int:
        """Note that DeleteRecords up to this offset was requested; returns its index in
        `deletions`."""
        self.deletions.append(offset)
        return len(self.deletions) - 1

    def deleted(self, start: int, epoch: int) -> None:
        """Note that DeleteRecords was answered: records before this log start must not come
        back."""
        if start > self.start:
            self.start, self.start_epoch = start, epoch

    def lose(
        self, now: float, epoch: int, left: dict[int, bytes], flushed_by: Collection[int]
    ) -> None:
        """Give up the promises about lost records. The records that remain in the log, `left` by
        offset, stay promised at these offsets. A former leader that is elected uncleanly may have
        a record at another offset than the one that its successor has acknowledged. Records that
        one of the replicas `flushed_by` acknowledged while it was the only one in sync stay
        promised, too. Answers to requests that are under way will promise nothing."""
        self.lost_at, self.lost_in = now, epoch
        self.start = 0
        stays = {value: offset for offset, value in left.items()}
        flushed = {value for value, node in self.flushed.items() if node in flushed_by}
        self.acked = {
            value: stays.get(value, at) if at >= 0 else at
            for value, at in self.acked.items() if value in stays or value in flushed
        }
        self.seen = {at: value for at, value in self.seen.items() if left.get(at) == value}
        self.epochs = {at: epoch for at, epoch in self.epochs.items() if at in self.seen}

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    def saw(self, offset: int, value: bytes, epoch: int) -> None:
        """Note that a consumer has read this value at this offset. Raises Violation if an earlier
        read returned another value."""
        if self.seen.setdefault(offset, value) != value:
            raise Violation(
                f"partition {self}: offset {offset} was read as {self.seen[offset]!r}, and is read"
                f" as {value!r} now"
            )
        self.epochs[offset] = epoch


class Client:
    """Connections to every broker, made on first use."""

    def __init__(self, story: ClusterStory, name: str) -> None:
        self.story, self.world, self.name = story, story.world, name
        self.links: dict[int, Link] = {}
        self.leaders: dict[tuple[str, int], int] = {}
        self.epochs: dict[tuple[str, int], int] = {}
        """The leader epochs of `leaders`."""
        self.attempts = 0

    async def back_off(self) -> None:
        """Wait before another attempt. Each wait is twice as long as the one before, but at most a
        second, as in stock clients."""
        await asyncio.sleep(min(0.1 * 2**self.attempts, 1.0))
        self.attempts += 1

    async def call(self, node_id: int, request: Any, version: int) -> Any:
        """Send a request to one broker. Raises Broken if the broker does not run, or stops before
        it answers."""
        machine = self.world.broker(node_id)
        link = self.links.get(node_id)
        if link is None or link.broken:
            link = None if machine is None else self.world.connect(self.name, machine)
            if link is None:
                raise Broken
            self.links[node_id] = link
        answer, waiting = link.ask(request, version), self.story.waiting
        waiting[answer] = self.world.now, type(request).__name__, self.name, node_id
        try:
            return await answer
        finally:
            del waiting[answer]

    async def ask_any(self, request: Any, version: int) -> tuple[int, Any]:
        """The answer of a random broker, and that broker's node id."""
        while True:
            up = [each.node_id for each in self.world.brokers if each.up]
            if up:
                node_id = self.story.random.choice(up)
                try:
                    return node_id, await self.call(node_id, request, version)
                except Broken:
                    pass
            await asyncio.sleep(0.05)

    async def leader(self, part: Part) -> int | None:
        """The leader of a partition, according to the broker that was asked last; None if that
        broker knows none."""
        key = (part.topic, part.index)
        if key not in self.leaders:
            _, answer = await self.ask_any(MetadataRequest(
                topics=[MetadataRequest.Topic(name=part.topic)], allow_auto_topic_creation=False,
            ), 12)
            self.leaders |= {
                (topic.name, each.partition_index): each.leader_id
                for topic in answer.topics for each in topic.partitions
                if each.leader_id >= 0 and self.is_news(topic.name, each)
            }
        return self.leaders.get(key)

    def is_news(self, topic: str, told: Any) -> bool:
        """Whether a Metadata response is at least as new, for one partition, as what the client
        knows. Stock clients ignore older information, which comes from a broker that has not yet
        heard of the next leader (KIP-320)."""
        key = topic, told.partition_index
        newest = max(told.leader_epoch, self.epochs.get(key, -1))
        self.epochs[key] = newest
        return bool(told.leader_epoch == newest)

    async def at_leader(
        self, part: Part, request: Callable[[], Any], version: int
    ) -> Any | None:
        """The leader's answer. None if there is no known leader or no answer: the caller may try
        again."""
        leader = await self.leader(part)
        if leader is not None:
            try:
                return await self.call(leader, request(), version)
            except Broken:
                pass
        self.lost(part)
        await self.back_off()
        return None

    def lost(self, part: Part) -> None:
        """Forget the leader of a partition, so that it is looked up again."""
        self.leaders.pop((part.topic, part.index), None)


class Producer(Client):
    """An idempotent producer with acks=all. It has one batch in flight at a time, and retries it
    until it is acknowledged."""

    def __init__(self, story: ClusterStory, name: str) -> None:
        super().__init__(story, name)
        self.sequences: dict[Part, int] = {}
        self.numbers = 0

    async def work(self) -> None:
        await self._begin()
        while not self.story.over:
            await self.story.rest(0.5)
            await self._send(self.story.random.choice(self.story.parts))

    async def _begin(self) -> None:
        while True:
            _, answer = await self.ask_any(InitProducerIdRequest(transactional_id=None), 4)
            if answer.error_code == 0:
                self.id, self.epoch = answer.producer_id, answer.producer_epoch
                if self.id in self.story.producer_ids:
                    raise Violation(f"producer id {self.id} was given to two producers")
                self.story.producer_ids.add(self.id)
                return
            if ErrorCode(answer.error_code) not in AGAIN:
                raise Violation(f"InitProducerId is answered {ErrorCode(answer.error_code).name}")
            await asyncio.sleep(0.1)

    async def _send(self, part: Part) -> None:
        random = self.story.random
        values = []
        for _ in range(random.choice((1, 1, 3))):
            self.numbers += 1
            value = f"{self.name}.{self.numbers}.".encode() + b"x" * random.choice((0, 50, 600))
            part.sent[value] = (self.name, self.numbers)
            values.append(value)
        sequence = self.sequences.get(part, 0)
        self.sequences[part] = sequence + len(values)
        data = build_batch(
            [Record(timestamp=self.world.wall_ms(), key=None, value=value) for value in values],
            producer_id=self.id, producer_epoch=self.epoch, base_sequence=sequence,
        )
        made, version = ProduceRequest.TopicData, random.choice((7, 9, 11))

        def request() -> ProduceRequest:
            return ProduceRequest(acks=-1, timeout_ms=random.choice((1000, 10_000)), topic_data=[
                made(name=part.topic, partition_data=[
                    made.PartitionData(index=part.index, records=data)
                ])
            ])

        while True:
            asked_at, alone = self.world.now, self.story.alone(part)
            answer = await self.at_leader(part, request, version)
            if answer is None:
                continue
            found = answer.responses[0].partition_responses[0]
            code = ErrorCode(found.error_code)
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self.attempts = 0
                if asked_at < part.lost_at:
                    return
                base = found.base_offset if code is ErrorCode.NONE else -1
                for at, value in enumerate(values):
                    part.acked[value] = base + at if base >= 0 else -1
                    if alone is not None and alone == self.story.alone(part):
                        part.flushed[value] = alone[0]
                return
            if code in LOST_SEQUENCE and part.lost_at >= 0:
                self.sequences.clear()
                await self._begin()         # earlier batches are lost: get a new producer id
                return
            too_large = code is ErrorCode.MESSAGE_TOO_LARGE and self.story.options.settings_change
            if code not in AGAIN and not too_large:
                raise Violation(
                    f"partition {part}: a batch of producer {self.name!r} is answered {code.name}"
                )
            self.lost(part)
            await self.back_off()


def fetch_of(part: Part, offset: int, epoch: int, rack: str = "") -> FetchRequest:
    """A consumer's fetch of one partition. `epoch` is the leader epoch that the consumer knows, -1
    for none."""
    made = FetchRequest.Topic
    return FetchRequest(
        replica_id=-1, max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, isolation_level=0,
        rack_id=rack, topics=[made(topic=part.topic, partitions=[made.Partition(
            partition=part.index, fetch_offset=offset, current_leader_epoch=epoch,
            partition_max_bytes=1 << 20,
        )])],
    )


class Consumer(Client):
    """Reads at random offsets, and remembers what it saw."""

    async def work(self) -> None:
        random = self.story.random
        while not self.story.over:
            await self.story.rest(2.0)
            part = random.choice(self.story.parts)
            offsets = [*part.seen, *(each + 1 for each in part.seen)]
            await self._read(part, random.choice(offsets) if offsets else 0)
            if random.random() < 0.5 and part.epochs:
                await self._validate(part)

    async def _read(self, part: Part, offset: int) -> None:
        asked_at, start, start_epoch, epoch = self.world.now, part.start, part.start_epoch, -1

        def request() -> FetchRequest:
            nonlocal epoch
            epoch = self.newest_epoch(part)
            return fetch_of(part, offset, epoch)

        answer = await self.at_leader(part, request, 12)
        if answer is None or asked_at < part.lost_at:
            return
        self.attempts = 0
        found = answer.responses[0].partitions[0]
        code = ErrorCode(found.error_code)
        told = self.epochs.get((part.topic, part.index), -1)
        # A former leader may answer as a follower that lacks the record. A stock client that has
        # read a record of a newer epoch does not ask it: it waits for Metadata of that epoch.
        as_follower = self.story.options.follower_reads and self.newest_epoch(part) > told
        gone = offset < part.deleted_below
        if code is ErrorCode.NONE and offset < start and epoch >= start_epoch:
            raise Violation(
                f"partition {part}: a fetch from offset {offset} succeeds, though the records below"
                f" {start} were deleted"
            )
        expected = offset in part.seen and not gone
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and expected and not as_follower:
            raise Violation(
                f"partition {part}: offset {offset} is answered OFFSET_OUT_OF_RANGE, though it was"
                " read before"
            )
        if code is not ErrorCode.NONE:
            self.lost(part)
            return
        if self.story.damage.spoils(part.topic, part.index, found.records):
            return
        for view in batches(found.records or b""):
            for record in view.records():
                if record.offset >= offset:
                    part.saw(record.offset, record.value or b"", view.leader_epoch)

    def newest_epoch(self, part: Part) -> int:
        """The newest leader epoch in the client's Metadata or in the records that consumers have
        read. Consumers that read from followers may have read records of a new epoch, of which the
        replaced leader has not heard."""
        told = self.epochs.get((part.topic, part.index), -1)
        return max(told, *part.epochs.values()) if part.epochs else told

    async def _validate(self, part: Part) -> None:
        """Ask where the epoch of the newest read record ends, as consumers do when the leader has
        changed (KIP-320). Raises Violation if the epoch ends before this record: a consumer would
        report a truncated log."""
        offset = max(part.epochs)
        epoch, asked_at = part.epochs[offset], self.world.now
        made = OffsetForLeaderEpochRequest.Topic

        def request() -> OffsetForLeaderEpochRequest:
            return OffsetForLeaderEpochRequest(topics=[made(topic=part.topic, partitions=[
                made.Partition(
                    partition=part.index, leader_epoch=epoch,
                    current_leader_epoch=self.newest_epoch(part),
                )
            ])])

        answer = await self.at_leader(part, request, 4)
        if answer is None or asked_at < part.lost_at:
            return
        found = answer.topics[0].partitions[0]
        if found.error_code:
            self.lost(part)
        elif (
            (found.leader_epoch, found.end_offset) <= (epoch, offset)
            and offset >= part.deleted_below
        ):
            raise Violation(
                f"partition {part}: offset {offset} was read in epoch {epoch}, but the leader says"
                f" that epoch {found.leader_epoch} ends at offset {found.end_offset}"
            )


class Admin(Client):
    """An administrator that creates topics. Faults use it to reassign partitions, to change
    settings and to request elections."""

    def __init__(self, story: ClusterStory, name: str) -> None:
        super().__init__(story, name)
        self.made, self.busy = 0, False

    async def work(self) -> None:
        while not self.story.over:
            await self.story.rest(20.0)
            await self.act()

    async def act(self) -> None:
        """Create another topic. Transactional producers also call this, while a transaction is
        open."""
        if not self.busy:
            self.busy = True
            self.made += 1
            await self.create(f"{self.name}-{self.made}", 1)
            self.busy = False

    async def create(self, name: str, partitions: int) -> bytes:
        """Repeat CreateTopics until the outcome is certain; returns the topic's id."""
        made = CreateTopicsRequest
        request = made(topics=[made.Topic(
            name=name, num_partitions=partitions, replication_factor=self.story.options.factor,
            assignments=[], configs=[],
        )], timeout_ms=10_000)
        while True:
            _, answer = await self.ask_any(request, 7)
            code = ErrorCode(answer.topics[0].error_code)
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self.attempts = 0
                return await self.identify(name)
            if code not in SOONER_OR_LATER:
                raise Violation(
                    f"CreateTopics of {name} is answered {code.name}:"
                    f" {answer.topics[0].error_message}"
                )
            await self.back_off()

    async def move(self, name: str, index: int, cancels: bool = False) -> ErrorCode:
        """Reassign a partition to random replicas, or cancel a reassignment. Returns the error of
        the answer. Whether the request succeeds or not, no record may be lost."""
        nodes = [each.node_id for each in self.world.brokers]
        wanted = self.story.random.sample(nodes, self.story.random.randint(1, len(nodes)))
        wanted = wanted[: max(self.story.options.factor, 1)]
        if len(wanted) < min(self.story.options.min_isr, len(nodes)):
            wanted = nodes[: self.story.options.factor]
        made = AlterPartitionReassignmentsRequest
        request = made(timeout_ms=10_000, topics=[made.Topic(name=name, partitions=[
            made.Topic.Partition(partition_index=index, replicas=None if cancels else wanted)
        ])])
        _, answer = await self.ask_any(request, 0)
        told = answer.error_code or answer.responses[0].partitions[0].error_code
        return ErrorCode(told)

    async def configure(self, topic: str, name: str, value: str | None) -> None:
        """Set a setting of a topic, or remove it if `value` is None. Repeats the request until it
        succeeds."""
        made = IncrementalAlterConfigsRequest
        request = made(resources=[made.Resource(
            resource_type=2, resource_name=topic, configs=[made.Resource.Config(
                name=name, config_operation=int(value is None), value=value,
            )],
        )])
        while (await self.ask_any(request, 1))[1].responses[0].error_code:
            await self.back_off()
        self.attempts = 0

    async def elect_anyone(self, name: str, index: int) -> None:
        """Request an unclean election, as an operator does if the disks of the last copy are
        lost."""
        made = ElectLeadersRequest.TopicPartition
        await self.ask_any(ElectLeadersRequest(
            election_type=1, timeout_ms=10_000,
            topic_partitions=[made(topic=name, partitions=[index])],
        ), 2)

    async def identify(self, name: str) -> bytes:
        """The id of a topic that exists."""
        while True:
            _, answer = await self.ask_any(MetadataRequest(
                topics=[MetadataRequest.Topic(name=name)], allow_auto_topic_creation=False
            ), 12)
            if answer.topics[0].error_code == 0:
                return bytes(answer.topics[0].topic_id)
            await asyncio.sleep(0.1)
