"""At debug level `ottla.groups` logs each change of a group's state."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ottla.client.cluster import ClusterClient
from ottla.client.errors import Refused, check
from ottla.tools.admin import topics
from ottla.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tests.broker.running import RunningBroker


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "ottla.groups"]


def classic_life(cluster: ClusterClient) -> None:
    protocol = JoinGroupRequest.Protocol(name="range", metadata=b"")
    join = JoinGroupRequest(
        group_id="classic", session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
        protocol_type="other", protocols=[protocol],
    )
    joined = cluster.coordinator("classic").call(join, 3)
    check(joined.error_code)
    sync = SyncGroupRequest(
        group_id="classic", generation_id=joined.generation_id, member_id=joined.member_id,
        assignments=[SyncGroupRequest.Assignment(member_id=joined.member_id, assignment=b"")],
    )
    check(cluster.coordinator("classic").call(sync, 1).error_code)
    leave = LeaveGroupRequest(group_id="classic", member_id=joined.member_id)
    check(cluster.coordinator("classic").call(leave, 1).error_code)


def modern_life(cluster: ClusterClient) -> None:
    def beat(epoch: int) -> None:
        check(cluster.coordinator("modern").call(ConsumerGroupHeartbeatRequest(
            group_id="modern", member_id="m", member_epoch=epoch, rebalance_timeout_ms=10_000,
            subscribed_topic_names=["t"], topic_partitions=[],
        ), 0).error_code)

    beat(0)
    beat(-1)


def test_each_change_of_state_is_said_once_and_none_of_the_past_at_a_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "ottla.groups")
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with RunningBroker(tmp_path, **settings) as broker:
        with ClusterClient(f"127.0.0.1:{broker.port}") as cluster:
            topics.create(cluster, "t", partitions=1)
            cluster.with_retries(lambda: classic_life(cluster))
            modern_life(cluster)
    said = lines(caplog)
    assert [line.partition(" from")[2].partition(":")[0] for line in said if "classic" in line] == [
        " Empty to PreparingRebalance", " PreparingRebalance to CompletingRebalance",
        " CompletingRebalance to Stable", " Stable to PreparingRebalance",
        " PreparingRebalance to Empty",
    ]
    modern = [line for line in said if "modern" in line]
    assert modern[0].startswith("group modern was absent; now it is ")
    assert any("now it is Reconciling, epoch 2, 1 member" in line for line in modern)
    assert modern[-1].endswith("0 members")
    caplog.clear()
    with RunningBroker(tmp_path, **settings) as broker:
        with ClusterClient(f"127.0.0.1:{broker.port}") as cluster:
            with pytest.raises(Refused):
                cluster.with_retries(lambda: modern_life_of_nobody(cluster))
    assert lines(caplog) == []


def modern_life_of_nobody(cluster: ClusterClient) -> None:
    """Send the heartbeat of an unknown member. It is refused once the group's shard is loaded."""
    request = ConsumerGroupHeartbeatRequest(
        group_id="modern", member_id="unknown", member_epoch=7, topic_partitions=[])
    check(cluster.coordinator("modern").call(request, 0).error_code)
