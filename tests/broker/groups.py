"""Requests of the group APIs that several tests make."""

from __future__ import annotations

from typing import Any

from ottla.wire.messages import (
    FindCoordinatorRequest,
    MetadataRequest,
    OffsetCommitRequest,
)
from tests.broker.running import WireClient


def find(client: WireClient, group: str, version: int) -> Any:
    if version < 4:
        return client.call(FindCoordinatorRequest(key=group), version)
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group, group + "2"])
    answer = client.call(request, version)
    assert [each.key for each in answer.coordinators] == [group, group + "2"]
    return answer.coordinators[0]


def topic_id(client: WireClient, topic: str) -> bytes:
    request = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)])
    answer: bytes = client.call(request, 12).topics[0].topic_id
    return answer


def commit_request(topic: str, known_id: bytes, group: str, version: int, **more: Any) -> Any:
    made = OffsetCommitRequest.Topic
    partition = made.Partition(partition_index=1, committed_offset=7, committed_metadata="m")
    if version >= 6:
        partition.committed_leader_epoch = 0
    named = made(topic_id=known_id) if version >= 10 else made(name=topic)
    named.partitions = [partition]
    return OffsetCommitRequest(group_id=group, topics=[named], **more)
