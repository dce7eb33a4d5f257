"""If a full disk cannot take the records of group requests, clients retry instead of failing."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.groups.classic import session
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetDeleteRequest,
    SyncGroupRequest,
)
from tests.broker.groups import commit_request, find, topic_id
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create
from tests.log.faulty_disk import FaultyDisk

AGAIN = ErrorCode.NOT_COORDINATOR
"""After this code consumers look for the coordinator again, and go on. After KAFKA_STORAGE_ERROR,
`poll` of Java's consumers fails."""
CLASSIC, MODERN, EMPTY = "classic", "modern", "empty"


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def client(disk: FaultyDisk) -> Iterator[WireClient]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with (
        RunningBroker(Path("/a"), disk, **settings) as broker,
        WireClient(broker.address) as client,
    ):
        create(client, "t", 2)
        find(client, CLASSIC, 6)
        try:
            yield client
        finally:
            disk.errors = {}


def commit(client: WireClient) -> None:
    request = commit_request("t", topic_id(client, "t"), EMPTY, 5)
    assert client.call(request, 5).topics[0].partitions[0].error_code == 0


def fill(disk: FaultyDisk) -> None:
    disk.failing, disk.errors = "/a/__consumer_offsets-", {"write": errno.ENOSPC}


def join(client: WireClient, member_id: str = "") -> tuple[str, int]:
    request = JoinGroupRequest(
        group_id=CLASSIC, member_id=member_id,
        session_timeout_ms=30_000, rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"")],
    )
    answer = client.call(request, 3)
    assert answer.error_code == 0
    return answer.member_id, answer.generation_id


def sync(client: WireClient, member_id: str, generation: int) -> Any:
    made = SyncGroupRequest.Assignment
    return client.call(SyncGroupRequest(
        group_id=CLASSIC, generation_id=generation, member_id=member_id,
        assignments=[made(member_id=member_id, assignment=b"all")],
    ), 3)


def beat(client: WireClient) -> int:
    request = ConsumerGroupHeartbeatRequest(
        group_id=MODERN, member_id="m", member_epoch=0, rebalance_timeout_ms=30_000,
        subscribed_topic_names=["t"], topic_partitions=[],
    )
    return int(client.call(request, 1).error_code)


def test_members_of_groups_look_for_the_coordinator_again(
    client: WireClient, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "RETRY_MS", 50)
    member_id, generation = join(client)
    fill(disk)
    assert sync(client, member_id, generation).error_code == AGAIN
    assert beat(client) == AGAIN
    leave = LeaveGroupRequest(group_id=CLASSIC, member_id=member_id)
    disk.errors = {}
    assert sync(client, member_id, generation).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert join(client, member_id) == (member_id, generation + 1)
    generation += 1
    assert sync(client, member_id, generation).assignment == b"all"
    assert beat(client) == 0
    fill(disk)
    assert client.call(leave, 2).error_code == AGAIN


def test_administrators_look_for_the_coordinator_again(
    client: WireClient, disk: FaultyDisk
) -> None:
    commit(client)
    fill(disk)
    made = OffsetDeleteRequest.Topic
    offsets = OffsetDeleteRequest(group_id=EMPTY, topics=[
        made(name="t", partitions=[made.Partition(partition_index=1)])
    ])
    group = DeleteGroupsRequest(groups_names=[EMPTY])
    assert client.call(offsets, 0).error_code == AGAIN
    assert client.call(group, 2).results[0].error_code == AGAIN
    disk.errors = {}
    assert client.call(group, 2).results[0].error_code == 0
