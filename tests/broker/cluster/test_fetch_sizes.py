"""How many bytes one reply to a fetch has, to a consumer and to a follower."""

from __future__ import annotations

from pathlib import Path

from tests.broker.cluster.running_cluster import RunningCluster, create
from tests.broker.produce_fetch import batch, fetch, produce, values


def test_the_limit_for_consumers_does_not_apply_to_followers(tmp_path: Path) -> None:
    """In an earlier version, a low fetch.max.bytes made replication slow."""
    with RunningCluster(tmp_path, 2, fetch_max_bytes=1024) as cluster:
        assert create(cluster, 1, "t", 1, 2) == 0
        leader = cluster.servers[1].metadata_log.image.topics["t"].partitions[0].leader
        with cluster.client(leader) as client:
            for _ in range(5):
                assert produce(client, "t", batch(bytes(1000))).error_code == 0
            assert len(values(fetch(client, "t"))) == 1
            assert len(values(fetch(client, "t", replica_id=3 - leader))) == 5
            assert len(values(fetch(client, "t", replica_id=3 - leader, max_bytes=1024))) == 1
