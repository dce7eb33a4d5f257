"""A test bench for a coordinator: the real runtime over a log in memory, with a fake clock."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ottla.groups.cluster_view import Topic
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.requests import ServedConsumerGroup
from ottla.groups.record_codec import Encoded, decode_record, encode_record
from ottla.groups.records import NO_PRODUCER, Marker, Producer, Record
from ottla.groups.routing import partition_for
from ottla.groups.runtime import Runtime
from ottla.groups.settings import GroupSettings
from ottla.groups.shard import Shard
from ottla.groups.shard_runtime import Committed
from ottla.wire.errors import ErrorCode
from tests.fakes import FakeClock
from tests.groups.compacting import compacted, durable

TURNS_AT_ONCE_MAX = 1000


class FakeCluster:
    """The topics of a cluster, which tests create and change."""

    def __init__(self) -> None:
        self.version = 0
        self.topics: dict[str, Topic] = {}
        self.settings: dict[str, int] = {}

    def make(self, name: str, partitions: int) -> Topic:
        self.version += 1
        self.topics[name] = Topic(name, name.encode().ljust(16, b"."), partitions)
        return self.topics[name]

    def drop(self, name: str) -> None:
        self.version += 1
        del self.topics[name]

    def topic(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def topic_of_id(self, topic_id: bytes) -> Topic | None:
        return next((t for t in self.topics.values() if t.topic_id == topic_id), None)

    def topic_names(self) -> list[str]:
        return list(self.topics)

    def group_settings(self, group_id: str) -> dict[str, str]:
        return {name: str(value) for name, value in self.settings.items()}


class Workbench:
    """Runs a coordinator. Every record is encoded and decoded. `crash` restarts the coordinator
    from the encoded records."""

    def __init__(self, replicated: bool = False, **settings: Any) -> None:
        self.replicated, self.settings = replicated, GroupSettings(**settings)
        self.clock = FakeClock()
        self.cluster = FakeCluster()
        self.logs: dict[int, list[tuple[Encoded | Marker, int]]] = {}
        self.records: list[Record] = []
        self.appends: list[list[Record]] = []
        self.uncommitted: list[Committed] = []
        self.hold_commits = False
        self.refusal: Exception | None = None
        self.turn_goes_on = False
        self.due: list[Callable[[], None]] = []
        self.encode: Callable[[Any], Any] = lambda record: record   # `append` encodes
        self.lost: list[int] = []
        self.ids = 0
        self.start()

    def start(self) -> None:
        self.runtime = Runtime(
            self.settings,
            self.clock,
            self,
            self.new_id,
            cluster=self.cluster,
            later=self.later,
            replicated=self.replicated,
        )
        for partition in range(self.settings.offsets_topic_num_partitions):
            shard = self.runtime.begin_load(partition)
            for entry, producer in self.logs.get(partition, []):
                if isinstance(entry, Marker):
                    shard.offsets.end_transaction(*entry)
                elif (record := decode_record(*entry)) is not None:
                    shard.replay(record, producer)
            self.runtime.adopt(shard)

    def crash(self) -> None:
        """Restart as after kill -9: what was appended stays, what was only in memory is lost."""
        self.start()

    def compact(self, seed: int) -> None:
        """Crash, run passes of the log cleaner, start from what they have left, and assert that the
        state is the same."""
        chance = random.Random(seed)
        self.crash()
        before = [durable(shard) for shard in self.runtime.shards()]
        self.logs = {partition: compacted(log, chance) for partition, log in self.logs.items()}
        self.crash()
        assert [durable(shard) for shard in self.runtime.shards()] == before

    def later(self, function: Callable[[], None]) -> None:
        """Call a function that is due at the end of a turn. This happens at once, unless the test
        keeps the turn open."""
        if self.turn_goes_on:
            self.due.append(function)
        else:
            function()

    def end_turn(self) -> None:
        """End the turn of the loop and handle everything that arrived in it."""
        due, self.due = self.due, []
        for function in due:
            function()

    def new_id(self) -> str:
        self.ids += 1
        return str(self.ids)

    def append(
        self, partition: int, records: list[Record], producer: Producer, done: Committed
    ) -> None:
        if self.refusal is not None:
            raise self.refusal
        log = self.logs.setdefault(partition, [])
        log += [(encode_record(record), producer.producer_id) for record in records]
        self.records += records
        self.appends.append(records)
        if self.hold_commits:
            self.uncommitted.append(done)
        else:
            done(None)

    def reload(self, partition: int) -> None:
        self.lost.append(partition)

    def wake(self, at_ms: int) -> None:
        """Do nothing: `wait` asks for the next timer."""

    def end_transaction(self, group_id: str, producer_id: int, committed: bool) -> None:
        """A transaction's marker reaches the partition of this group."""
        partition = self.partition(group_id)
        self.logs.setdefault(partition, []).append((Marker(producer_id, committed), producer_id))
        self.runtime.end_transaction(partition, producer_id, committed)

    def commit_all(self) -> None:
        """Report everything that was appended as committed."""
        done, self.uncommitted = self.uncommitted, []
        for committed in done:
            committed(None)

    def wait(self, ms: int) -> None:
        """Let time pass. Each timer fires at its own time."""
        end_ms, at_once = self.clock.elapsed_ms + ms, 0
        while (at_ms := self.runtime.next_timer_ms()) is not None and at_ms <= end_ms:
            at_once = 0 if at_ms > self.clock.elapsed_ms else at_once + 1
            assert at_once < TURNS_AT_ONCE_MAX, "a timer is set again for the moment it fires at"
            self.clock.elapsed_ms = max(at_ms, self.clock.elapsed_ms)
            self.runtime.fire()
        self.clock.elapsed_ms = end_ms

    def shard(self, group_id: str = "g") -> Shard:
        return self.runtime.shard(group_id)

    def consumers(self, group_id: str = "g") -> ConsumerGroup:
        """The KIP-848 group of this id. It must exist."""
        group = self.shard(group_id).group_of(ServedConsumerGroup, group_id)
        assert group is not None
        return group

    def heartbeat(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None
    ) -> ErrorCode:
        """Send a classic heartbeat; returns the error code. If the heartbeat may have effects, it
        takes a turn."""
        asked = (group_id, generation, member_id, instance_id)
        code = self.shard(group_id).heartbeat(*asked, self.runtime.tick_ms())
        if code is None:
            code = self.runtime.turn(group_id, lambda s, r: s.heartbeat_turn(*asked, r))
        assert code is not None
        return code

    def partition(self, group_id: str = "g") -> int:
        return partition_for(group_id, self.settings.offsets_topic_num_partitions)

    def ask(self, operation: Callable[..., Any], group_id: str = "g", producer_id: int = -1) -> Any:
        """Run an operation; returns its answer, or None if there is no answer yet. A refusal is
        returned, not raised."""
        answers: list[Any] = []
        producer = NO_PRODUCER if producer_id < 0 else Producer(producer_id, 0)
        self.runtime.change(group_id, operation, answers.append, producer)
        return answers[0] if answers else None
