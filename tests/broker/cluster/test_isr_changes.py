"""Which changes of in-sync sets a leader requests from the controller, and which it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.cluster import continuity
from ottla.broker.cluster.isr_changes import IsrChanges
from ottla.log.partition.damage import Damage
from ottla.replication.partition import Partition
from ottla.replication.roles.assignment import assume
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import AlterPartitionRequest, AlterPartitionResponse
from tests.fakes import FakeClock
from tests.replication.fakes import LAG_MS, FakeClusterSide, batch, make_partition


class Refusing:
    """A controller that notes the requested in-sync sets, and refuses them."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    async def decide(self, function: object, request: AlterPartitionRequest) -> Any:
        made = AlterPartitionResponse.Topic
        self.asked += [
            [member.broker_id for member in each.new_isr_with_epochs]
            for topic in request.topics for each in topic.partitions
        ]
        return AlterPartitionResponse(topics=[
            made(topic_id=topic.topic_id, partitions=[
                made.Partition(
                    partition_index=each.partition_index,
                    error_code=int(ErrorCode.INELIGIBLE_REPLICA),
                ) for each in topic.partitions
            ]) for topic in request.topics
        ])


def started(
    controller: Refusing, replicas: Iterable[Partition], lag_ms: int = LAG_MS
) -> IsrChanges:
    """The IsrChanges of broker 1, which is the controller."""
    unused: Any = None
    changes = IsrChanges(
        1, lag_ms, cast(Any, controller), unused,
        cast(Any, SimpleNamespace(deciding=lambda: True)), unused, lambda: 101,
        lambda partition, nodes: None, asyncio.get_running_loop(),
    )
    changes.start(cast(Any, replicas), check=unused)
    return changes


def asked_for(partition: Partition) -> list[list[int]]:
    """The in-sync sets that the leader, broker 1, requests of a partition."""
    controller = Refusing()
    ask(controller, partition)
    return controller.asked


def ask(controller: Refusing, partition: Partition) -> None:
    """Have the leader request the change that is due, and wait for the answer."""

    async def asked() -> None:
        changes = started(controller, [partition])
        changes.isr_due(partition)
        assert changes.task is not None
        await changes.task
        changes.close()

    asyncio.run(asked())


def fails(partition: Partition) -> None:
    partition.log.fail("its disk is gone")


def is_damaged(partition: Partition) -> None:
    damage = Damage(f"{partition.log.directory}/{0:020d}.log", 70, "changed", 1)
    partition.log.end_before(damage)


@pytest.mark.parametrize("happens", [fails, is_damaged])
def test_nobody_leaves_the_in_sync_set_of_a_leader_whose_log_nobody_can_read(
    tmp_path: Path, happens: Callable[[Partition], None]
) -> None:
    """The followers lag because their fetches fail. If they left before the controller hears of the
    failure, the leader would be alone in sync. Once its log can be read again, the log may have
    fewer records than theirs, or none."""
    clock = FakeClock()
    part = make_partition(tmp_path, clock, FakeClusterSide())
    assume(part, 1, 5, 1, (1, 2), (1, 2), 10)
    for _ in range(3):
        part.append_bytes(batch())
    part.fetched_by(2, 102, 2)
    clock.advance(LAG_MS + 1)
    assert asked_for(part) == [[1]], "it lags"
    happens(part)
    assert asked_for(part) == []
    assert part.role.proposed is None


def test_a_follower_may_join_a_damaged_only_copy(tmp_path: Path) -> None:
    """The follower has everything that was committed, so it can lead once it is in sync."""
    part = make_partition(tmp_path, FakeClock(), FakeClusterSide())
    assume(part, 1, 5, 1, (1, 2), (1,), 10)
    part.append_bytes(batch())
    part.log.flush()
    part.flushed(1)
    is_damaged(part)
    part.fetched_by(2, 102, 1)
    assert asked_for(part) == [[1, 2]]


def may_be_joined(tmp_path: Path, clock: FakeClock) -> Partition:
    """A partition that broker 1 leads with replica 2 in sync. Replica 3 has everything, and may
    join."""
    part = make_partition(tmp_path, clock, FakeClusterSide())
    assume(part, 1, 5, 1, (1, 2, 3), (1, 2), 10)
    part.fetched_by(2, 102, 0)
    part.fetched_by(3, 103, 0)
    return part


def counts_replica_3(part: Partition, clock: FakeClock) -> None:
    """Check that a record is committed only once replica 3 has it, even if the replica lags."""
    part.append_bytes(batch())
    clock.advance(LAG_MS + 1)
    part.fetched_by(2, 102, 1)
    assert part.high_watermark == 0, "replica 3 may be in sync, and lacks the record"
    part.fetched_by(3, 103, 1)
    assert part.high_watermark == 1


class LosingAnswers(Refusing):
    """A controller whose answers are lost, so that the leader cannot know what was decided."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = asyncio.Event()

    async def decide(self, function: object, request: AlterPartitionRequest) -> Any:
        await super().decide(function, request)
        self.lost.set()
        raise TimeoutError("no answer")


def test_a_proposed_in_sync_set_counts_while_its_answer_is_lost(tmp_path: Path) -> None:
    """The controller may have decided it. Then the joining replica may be the next leader."""
    clock = FakeClock()
    part = may_be_joined(tmp_path, clock)
    controller = LosingAnswers()

    async def asked() -> None:
        changes = started(controller, [part])
        changes.isr_due(part)
        await asyncio.wait_for(controller.lost.wait(), 30)
        changes.close()

    asyncio.run(asked())
    assert controller.asked == [[1, 2, 3]]
    counts_replica_3(part, clock)


class Overtaken(Refusing):
    """A controller that has already made the requested decision, and whose first answer was lost.
    The leader's image does not show the decision yet."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__()
        self.code = code

    async def decide(self, function: object, request: AlterPartitionRequest) -> Any:
        answer = await super().decide(function, request)
        for topic in answer.topics:
            for each in topic.partitions:
                each.error_code = int(self.code)
        return answer


@pytest.mark.parametrize("code", [
    ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID,
])
def test_a_proposed_in_sync_set_counts_until_the_image_shows_what_overtook_it(
    tmp_path: Path, code: ErrorCode
) -> None:
    """The codes say that the controller has made a decision of which the leader has not heard. It
    may be this very proposal, if the first answer was lost; then the joining replica may lead."""
    clock = FakeClock()
    part = may_be_joined(tmp_path, clock)
    controller = Overtaken(code)
    ask(controller, part)
    assert controller.asked == [[1, 2, 3]]
    counts_replica_3(part, clock)


def test_followers_that_lag_are_looked_for_again_after_an_error_that_nobody_has_foreseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A follower that is never removed from the in-sync set would hold up each acks=all until a
    restart."""
    monkeypatch.setattr(continuity, "AGAIN_SECONDS", 0)
    partition = make_partition(tmp_path, FakeClock(), FakeClusterSide())

    class Unready:
        """Replicas over which the first iteration fails."""

        def __init__(self) -> None:
            self.failed, self.looked_through = False, asyncio.Event()

        def __iter__(self) -> Iterator[Partition]:
            if not self.failed:
                self.failed = True
                raise RuntimeError("not foreseen")
            self.looked_through.set()
            return iter([partition])

    async def looked_for() -> None:
        replicas = Unready()
        changes = started(Refusing(), replicas, lag_ms=0)
        await asyncio.wait_for(replicas.looked_through.wait(), 30)
        changes.close()

    asyncio.run(looked_for())
    assert "not foreseen" in caplog.text
