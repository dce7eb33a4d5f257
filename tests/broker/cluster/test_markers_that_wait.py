"""A marker that is not replicated in its partition delays no other transaction."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ottla.broker.api.transaction_admin import COMMIT_SECONDS
from ottla.groups.records import Producer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import CreateTopicsRequest
from tests.broker import transactions
from tests.broker.cluster.replacement import coordinator, retried
from tests.broker.cluster.running_cluster import RunningCluster, clustered

STATE, HELD, FREE, OK = "__transaction_state", "held", "free", ErrorCode.NONE


def create(cluster: RunningCluster, replicas: dict[str, list[int]]) -> None:
    """Create topics with one partition each, on these brokers."""
    made = CreateTopicsRequest.Topic
    topics = [
        made(name=name, num_partitions=-1, replication_factor=-1, configs=[],
             assignments=[made.Assignment(partition_index=0, broker_ids=nodes)])
        for name, nodes in replicas.items()
    ]
    with cluster.client(1) as client:
        answer = client.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5)
    assert [each.error_code for each in answer.topics] == [0] * len(topics)
    cluster.until(lambda: all(
        replicas.keys() <= server.metadata_log.image.topics.keys()
        for server in cluster.servers.values()
    ), "the topics are seen")


def test_a_transaction_ends_while_the_marker_of_another_one_is_not_taken(tmp_path: Path) -> None:
    """The same leader writes both markers. The follower of one partition does not fetch, but stays
    in the in-sync set, as it does without ZooKeeper."""
    with RunningCluster(
        tmp_path, 3, transaction_state_log_num_partitions=1,
        transaction_state_log_replication_factor=1, replica_lag_time_max_ms=600_000,
    ) as cluster:
        with cluster.client(1) as client:
            transactions.find(client, "x")
        cluster.until(lambda: all(
            STATE in server.metadata_log.image.topics for server in cluster.servers.values()
        ), "the internal topic")
        at = coordinator(cluster, 1)
        leader, follower = at % 3 + 1, (at + 1) % 3 + 1
        create(cluster, {HELD: [leader, follower], FREE: [leader]})

        def ask(request: Any, *arguments: Any) -> Any:
            return retried(cluster, at, lambda client: request(client, *arguments))

        producers = {}
        for key, topic in (("x", HELD), ("y", FREE)):
            producers[key] = ask(transactions.init, key)
            assert ask(transactions.add, key, producers[key], topic, 0) == [OK]
        held, free = (
            cluster.servers[leader].replicas.partition(topic, 0) for topic in (HELD, FREE)
        )
        assert held is not None and free is not None

        async def stand() -> None:
            fetchers = clustered(cluster.servers[follower]).fetchers
            assert fetchers is not None
            fetchers.close()

        cluster.run(stand())
        with ThreadPoolExecutor(2) as threads:
            first = threads.submit(ask, transactions.end, "x", producers["x"], True)
            cluster.until(lambda: held.log.log_end_offset == 1, "the marker waits for its replica")
            second = threads.submit(ask, transactions.end, "y", producers["y"], True)
            shard = cluster.servers[at].coordinators.transactions.runtime.shard
            cluster.until(lambda: shard("y").describe("y").is_ending, "its end is decided")
            assert not first.done() and not second.done()
            cluster.leap(COMMIT_SECONDS)
            assert isinstance(second.result(), Producer)
            assert isinstance(first.result(), Producer), "its end is decided, too"
        assert free.high_watermark == 1
        assert held.high_watermark == 0 and held.isr == (leader, follower)
