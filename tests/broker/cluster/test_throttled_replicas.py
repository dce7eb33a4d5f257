"""Replication throttles (KIP-73): a replica that catches up waits for the rate, but a replica that
is in sync does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.wire.messages import IncrementalAlterConfigsRequest
from tests.broker.cluster.running_cluster import RunningCluster, create
from tests.broker.produce_fetch import batch, produce

TOPIC, BROKER = 2, 4
VALUE = b"x" * 50_000


def alter(cluster: RunningCluster, kind: int, name: str, **settings: str | None) -> None:
    made = IncrementalAlterConfigsRequest.Resource
    configs = [
        made.Config(
            name=key.replace("_", "."), value=value, config_operation=1 if value is None else 0
        )
        for key, value in settings.items()
    ]
    resource = made(resource_type=kind, resource_name=name, configs=configs)
    with cluster.client(min(cluster.servers)) as client:
        (answer,) = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == 0, answer.error_message


def end_of(cluster: RunningCluster, node_id: int) -> int:
    partition = cluster.servers[node_id].replicas.partition("t", 0)
    return -1 if partition is None else partition.log.log_end_offset


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_replica_that_catches_up_waits_for_the_rate(side: str, tmp_path: Path) -> None:
    with RunningCluster(
        tmp_path, 3, replica_fetch_max_bytes=60_000, replica_fetch_wait_max_ms=50
    ) as cluster:
        assert create(cluster, 1, "t", 1, 3) == 0
        state = cluster.servers[1].metadata_log.image.topics["t"].partitions[0]
        leader, away = state.leader, state.replicas[1]
        cluster.stop(away)
        with cluster.client(leader) as client:
            for _ in range(40):
                assert produce(client, "t", batch(VALUE)).error_code == 0
        alter(cluster, TOPIC, "t", **{f"{side}_replication_throttled_replicas": "*"})
        # The rate is set for all brokers, because the absent one has to find it when it starts.
        alter(cluster, BROKER, "", **{f"{side}_replication_throttled_rate": "100000"})
        cluster.start(away)
        third = end_of(cluster, away)
        cluster.until(lambda: end_of(cluster, away) > max(third, 0), "it begins to catch up")
        begun, at = cluster.clock.monotonic(), end_of(cluster, away)
        cluster.until(
            lambda: cluster.clock.monotonic() - begun > 2, "two seconds have passed"
        )
        # 2 MB are due at 100 kB a second. Without the throttle they would arrive at once.
        assert end_of(cluster, away) < 20, at
        with cluster.client(leader) as client:
            assert produce(client, "t", batch(b"in sync")).error_code == 0, "the others go on"
        alter(cluster, BROKER, "", **{f"{side}_replication_throttled_rate": None})
        alter(cluster, TOPIC, "t", **{f"{side}_replication_throttled_replicas": None})
        cluster.until(lambda: end_of(cluster, away) == 41, "it has everything")
