"""A group coordinator that has been replaced, and has not heard of it, gives clients no final
refusal, because the members, epochs and offsets that it remembers may be out of date."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from tests.broker import transactions
from tests.broker.cluster.replacement import (
    OFFSETS,
    RETRIED,
    coordinator,
    replaced,
    retried,
    told_by_the_former,
)
from tests.broker.cluster.running_cluster import RunningCluster, create

GROUP, TOPIC, OK = "g", "t", ErrorCode.NONE


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with RunningCluster(
        tmp_path, 3, offsets_topic_num_partitions=1, offsets_topic_replication_factor=3,
        min_insync_replicas=2, group_initial_rebalance_delay_ms=0,
    ) as running:
        assert create(running, 1, TOPIC, 2, 3) == 0
        with running.client(1) as client:
            transactions.find(client, GROUP, key_type=0)
        running.until(lambda: all(
            OFFSETS in server.metadata_log.image.topics for server in running.servers.values()
        ), "the internal topic")
        yield running


class Member:
    """A member of the classic protocol; each request returns its error code."""

    def __init__(self, instance_id: str | None = None) -> None:
        self.instance_id, self.member_id, self.generation = instance_id, "", -1

    def join(self, client: Any) -> ErrorCode:
        request = JoinGroupRequest(
            group_id=GROUP, session_timeout_ms=30_000, rebalance_timeout_ms=30_000,
            member_id=self.member_id, group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"")],
        )
        answer = client.call(request, 3 if self.instance_id is None else 5)
        if not answer.error_code:
            self.member_id, self.generation = answer.member_id, answer.generation_id
        return ErrorCode(answer.error_code)

    def sync(self, client: Any) -> ErrorCode:
        request = SyncGroupRequest(
            group_id=GROUP, generation_id=self.generation, member_id=self.member_id,
            group_instance_id=self.instance_id,
            assignments=[
                SyncGroupRequest.Assignment(member_id=self.member_id, assignment=b"all")
            ],
        )
        return ErrorCode(client.call(request, 3).error_code)

    def heartbeat(self, client: Any) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=self.generation, member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return ErrorCode(client.call(request, 3).error_code)

    def commit(self, client: Any) -> ErrorCode:
        return commit(client, 5, self.member_id, self.generation, 7, self.instance_id)

    def leave(self, client: Any) -> ErrorCode:
        made = LeaveGroupRequest.Member
        leaving = made(member_id=self.member_id, group_instance_id=self.instance_id)
        answer = client.call(LeaveGroupRequest(group_id=GROUP, members=[leaving]), 3)
        return ErrorCode(
            answer.error_code or (answer.members[0].error_code if answer.members else 0)
        )


class Consumer:
    """A member of the KIP-848 protocol; each request returns its error code."""

    def __init__(self, member_id: str, instance_id: str | None = None) -> None:
        self.member_id, self.instance_id, self.epoch = member_id, instance_id, 0

    def beat(
        self, client: Any, epoch: int | None = None, owned: list[Any] | None = None
    ) -> ErrorCode:
        told = self.epoch if epoch is None else epoch
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=told,
            instance_id=self.instance_id, rebalance_timeout_ms=30_000 if not told else -1,
            subscribed_topic_names=None if told else [TOPIC],
            topic_partitions=owned if told else [],
        )
        answer = client.call(request, 1)
        if not answer.error_code:
            self.epoch = answer.member_epoch
        return ErrorCode(answer.error_code)

    def commit(self, client: Any) -> ErrorCode:
        return commit(client, 5, self.member_id, self.epoch, 9)

    def fetch(self, client: Any) -> ErrorCode:
        made = OffsetFetchRequest.Group
        group = made(
            group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch,
            topics=[made.Topic(name=TOPIC, partition_indexes=[0])],
        )
        return ErrorCode(client.call(OffsetFetchRequest(groups=[group]), 9).groups[0].error_code)


def commit(
    client: Any, offset: int, member_id: str = "", generation: int = -1, version: int = 7,
    instance_id: str | None = None,
) -> ErrorCode:
    made = OffsetCommitRequest.Topic
    request = OffsetCommitRequest(
        group_id=GROUP, generation_id_or_member_epoch=generation, member_id=member_id,
        group_instance_id=instance_id,
        topics=[made(name=TOPIC, partitions=[
            made.Partition(partition_index=0, committed_offset=offset, committed_metadata="")
        ])],
    )
    return ErrorCode(client.call(request, version).topics[0].partitions[0].error_code)


def committed(client: Any, stable: bool, version: int = 7) -> Any:
    """The committed offset, or the error."""
    made = OffsetFetchRequest.Topic
    request = OffsetFetchRequest(
        group_id=GROUP, require_stable=stable, topics=[made(name=TOPIC, partition_indexes=[0])]
    )
    answer = client.call(request, version)
    return ErrorCode(answer.error_code) or int(answer.topics[0].partitions[0].committed_offset)


def delete(client: Any) -> ErrorCode:
    answer = client.call(DeleteGroupsRequest(groups_names=[GROUP]), 2)
    return ErrorCode(answer.results[0].error_code)


def begun(cluster: RunningCluster, node_id: int, *requests: Callable[[Any], Any]) -> None:
    for request in requests:
        assert retried(cluster, node_id, request) is OK


def all_retried(cluster: RunningCluster, former: int, *requests: Callable[[Any], Any]) -> None:
    told = told_by_the_former(cluster, former, *requests)
    assert [each for each in told if each not in RETRIED] == []


def test_a_member_that_the_former_coordinator_does_not_know(cluster: RunningCluster) -> None:
    member, gone = Member(), Member()
    former, now = replaced(cluster, OFFSETS)
    begun(cluster, now, member.join, member.sync)
    gone.member_id, gone.generation = member.member_id, member.generation
    all_retried(
        cluster, former, member.heartbeat, member.sync, member.commit, gone.join, gone.leave, delete
    )
    assert retried(cluster, now, member.heartbeat) is OK, "it is one still"


def test_a_generation_that_the_former_coordinator_has_not_seen(cluster: RunningCluster) -> None:
    member = Member()
    begun(cluster, coordinator(cluster, 1, OFFSETS), member.join, member.sync)
    former, now = replaced(cluster, OFFSETS)
    generation = member.generation
    begun(cluster, now, member.join, member.sync)
    assert member.generation > generation
    all_retried(cluster, former, member.heartbeat, member.sync, member.commit)


def test_a_static_member_is_not_fenced_by_the_former_coordinator(cluster: RunningCluster) -> None:
    before, after = Member("i"), Member("i")
    begun(cluster, coordinator(cluster, 1, OFFSETS), before.join, before.sync)
    former, now = replaced(cluster, OFFSETS)
    begun(cluster, now, after.join, after.sync)
    assert after.member_id != before.member_id
    all_retried(cluster, former, after.heartbeat, after.sync, after.commit, after.leave)
    assert retried(cluster, now, before.heartbeat) is ErrorCode.FENCED_INSTANCE_ID


def test_a_consumer_that_the_former_coordinator_does_not_know(cluster: RunningCluster) -> None:
    known, new = Consumer("known"), Consumer("new")
    begun(cluster, coordinator(cluster, 1, OFFSETS), known.beat)
    epoch = known.epoch
    former, now = replaced(cluster, OFFSETS)
    begun(cluster, now, new.beat, new.beat, known.beat, partial(known.beat, owned=[]))
    assert known.epoch > epoch, "the former one would answer the same epoch at once, and may"
    all_retried(
        cluster, former, new.beat, known.beat, new.commit, known.commit, new.fetch, known.fetch
    )
    begun(cluster, now, new.beat, known.beat)


def test_a_static_consumer_is_not_fenced_by_the_former_coordinator(cluster: RunningCluster) -> None:
    before, after, last = Consumer("a", "i"), Consumer("b", "i"), Consumer("c", "i")
    begun(cluster, coordinator(cluster, 1, OFFSETS), before.beat)
    former, now = replaced(cluster, OFFSETS)
    begun(cluster, now, partial(before.beat, epoch=-2), after.beat, after.beat)
    all_retried(cluster, former, after.beat, last.beat)
    assert retried(cluster, now, last.beat) is ErrorCode.UNRELEASED_INSTANCE_ID
    begun(cluster, now, after.beat)


@pytest.mark.parametrize("version", [7, 8])
def test_exactly_once_begins_from_no_offset_of_the_former_coordinator(
    cluster: RunningCluster, version: int
) -> None:
    begun(cluster, coordinator(cluster, 1, OFFSETS), partial(commit, offset=5))
    former, now = replaced(cluster, OFFSETS)
    begun(cluster, now, partial(commit, offset=8))
    all_retried(cluster, former, partial(stable_offset, version=version))
    assert retried(cluster, now, partial(stable_offset, version=version)) == 8


def stable_offset(client: Any, version: int) -> Any:
    if version < 8:
        return committed(client, True, version)
    made = OffsetFetchRequest.Group
    group = made(group_id=GROUP, topics=[made.Topic(name=TOPIC, partition_indexes=[0])])
    request = OffsetFetchRequest(groups=[group], require_stable=True)
    answer = client.call(request, version).groups[0]
    return ErrorCode(answer.error_code) or int(answer.topics[0].partitions[0].committed_offset)


def test_a_coordinator_in_office_refuses_for_good(cluster: RunningCluster) -> None:
    node_id = coordinator(cluster, 1, OFFSETS)
    member, stranger = Member("i"), Member("i")
    begun(cluster, node_id, member.join, member.sync)
    stranger.member_id, stranger.generation = "another", member.generation
    for request in (stranger.heartbeat, stranger.sync, stranger.commit, stranger.join):
        assert retried(cluster, node_id, request) is ErrorCode.FENCED_INSTANCE_ID
    member.generation += 1
    assert retried(cluster, node_id, member.heartbeat) is ErrorCode.ILLEGAL_GENERATION
    assert retried(cluster, node_id, delete) is ErrorCode.NON_EMPTY_GROUP
    assert retried(cluster, node_id, Consumer("n").fetch) is OK, "classic groups do not check it"
    begun(cluster, node_id, member.leave)
    assert retried(cluster, node_id, member.heartbeat) is ErrorCode.UNKNOWN_MEMBER_ID


def test_below_min_isr_nothing_is_refused_for_good(cluster: RunningCluster) -> None:
    node_id, stranger = coordinator(cluster, 1, OFFSETS), Member()
    stranger.member_id = "another"
    begun(cluster, node_id, partial(commit, offset=5))
    for each in {1, 2, 3} - {node_id}:
        cluster.stop(each)
    image = cluster.servers[node_id].metadata_log
    cluster.until(lambda: image.image.topics[OFFSETS].partitions[0].isr == (node_id,), "alone")
    with cluster.client(node_id) as client:
        assert stranger.heartbeat(client) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert stranger.sync(client) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert committed(client, stable=True) is ErrorCode.NOT_COORDINATOR, "older clients"
        assert committed(client, stable=False) == 5
