"""Answers to clients older than Kafka 0.10 while one broker of the cluster is down."""

from __future__ import annotations

from pathlib import Path

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import MetadataRequest
from tests.broker.cluster.running_cluster import RunningCluster, create


def test_metadata_0_names_no_replica_whose_broker_it_does_not_list(tmp_path: Path) -> None:
    """The Scala clients of 0.8 fail if a replica is not among the brokers of the answer."""
    with RunningCluster(tmp_path, 3, ottla_unavailable_broker_listed_ms=0) as cluster:
        assert create(cluster, 1, "t", 1, 3) == 0
        server = cluster.servers[1]
        with cluster.client(1) as client:
            (topic,) = client.call(MetadataRequest(), 0).topics
            assert topic.partitions[0].error_code == 0
            assert sorted(topic.partitions[0].replica_nodes) == [1, 2, 3]
        cluster.stop(3)
        cluster.until(lambda: 3 not in server.metadata_log.image.brokers, "it is gone")
        with cluster.client(1) as client:
            for version in (1, 0, 1):                   # answers are kept for later requests
                told = client.call(MetadataRequest(topics=None if version else []), version)
                (partition,) = told.topics[0].partitions
                assert {broker.node_id for broker in told.brokers} == {1, 2}
                assert sorted(partition.isr_nodes) == [1, 2]
                if version == 0:
                    assert partition.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
                    assert sorted(partition.replica_nodes) == [1, 2]
                else:
                    assert partition.error_code == 0
                    assert sorted(partition.replica_nodes) == [1, 2, 3]
