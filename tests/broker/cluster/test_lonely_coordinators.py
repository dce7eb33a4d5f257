"""What a group's coordinator answers below min.insync.replicas, and without ZooKeeper."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import FindCoordinatorRequest, OffsetCommitRequest, OffsetFetchRequest
from tests.broker.cluster.running_cluster import RunningCluster, clustered, create

SETTINGS = {"min_insync_replicas": 2, "offsets_topic_num_partitions": 1,
            "offsets_topic_replication_factor": 3}


def coordinator(cluster: RunningCluster, asked: int) -> int:
    """The group's coordinator, once there is one."""
    found: list[int] = []

    def known() -> bool:
        image = cluster.servers[asked].metadata_log.image
        topic = image.topics.get("__consumer_offsets")
        found[:] = [] if topic is None else [topic.partitions[0].leader]
        return bool(found) and found[0] > 0

    with cluster.client(asked) as client:
        client.call(FindCoordinatorRequest(key="g"), 3)
    cluster.until(known, "a coordinator")
    return found[0]


def commit(cluster: RunningCluster, node: int, offset: int) -> int:
    made = OffsetCommitRequest.Topic
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="",
        topics=[made(name="t", partitions=[
            made.Partition(partition_index=0, committed_offset=offset, committed_metadata="")
        ])],
    )
    with cluster.client(node) as client:
        return int(client.call(request, 7).topics[0].partitions[0].error_code)


def committed(cluster: RunningCluster, node: int) -> tuple[int, int]:
    """The error code and the committed offset that a broker returns."""
    made = OffsetFetchRequest.Topic
    request = OffsetFetchRequest(group_id="g", topics=[made(name="t", partition_indexes=[0])])
    with cluster.client(node) as client:
        answer = client.call(request, 5)
    part = answer.topics[0].partitions[0]
    return int(answer.error_code or part.error_code), int(part.committed_offset)


def until_committed(cluster: RunningCluster, node: int, offset: int) -> None:
    """Retry a commit, as clients do, until it succeeds."""
    for _ in range(200):
        if commit(cluster, node, offset) == 0:
            return
        cluster.leap(0.1)
    raise AssertionError("no commit")


def test_below_min_isr_offsets_are_read_and_not_written(tmp_path: Path) -> None:
    with RunningCluster(tmp_path, **SETTINGS) as cluster:
        assert create(cluster, 1, "t", 1, 3) == 0
        node = coordinator(cluster, 1)
        until_committed(cluster, node, 5)
        others = [each for each in (1, 2, 3) if each != node]
        for each in others:
            cluster.stop(each)
        image = cluster.servers[node].metadata_log
        cluster.until(
            lambda: image.image.topics["__consumer_offsets"].partitions[0].isr == (node,), "alone"
        )
        assert committed(cluster, node) == (0, 5)
        assert commit(cluster, node, 6) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert committed(cluster, node) == (0, 5), "nothing that a fail-over could take back"
        cluster.start(others[0])
        until_committed(cluster, node, 7)
        assert committed(cluster, node) == (0, 7)


def test_a_commit_that_no_replica_takes_holds_its_connection_for_a_while_only(
    tmp_path: Path,
) -> None:
    """A heartbeat on the same connection is answered only after the commit."""
    with RunningCluster(tmp_path, **SETTINGS) as cluster:
        assert create(cluster, 1, "t", 1, 3) == 0
        node = coordinator(cluster, 1)
        until_committed(cluster, node, 5)

        async def stand() -> None:
            for server in cluster.servers.values():
                clustered(server).fetchers.close()

        cluster.run(stand())
        partition = cluster.servers[node].replicas.partition("__consumer_offsets", 0)
        assert partition is not None
        end = partition.log.log_end_offset
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(commit, cluster, node, 6)
            cluster.until(lambda: partition.log.log_end_offset > end, "it is appended")
            cluster.leap(5)
            assert waiting.result() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert len(partition.isr) == 3, "long before a follower leaves the in-sync set"


def test_without_zookeeper_a_coordinator_goes_on_until_another_one_leads(tmp_path: Path) -> None:
    with RunningCluster(tmp_path, **SETTINGS) as cluster:
        assert create(cluster, 1, "t", 1, 3) == 0
        node = coordinator(cluster, 1)
        until_committed(cluster, node, 5)
        witness = node % 3 + 1

        async def cut() -> None:
            cluster.sessions[node].cut()

        cluster.run(cut())
        until_committed(cluster, node, 6)           # the partition has no later leader epoch yet
        assert committed(cluster, node) == (0, 6)
        cluster.expire(node)
        seen = cluster.servers[witness].metadata_log
        cluster.until(
            lambda: seen.image.topics["__consumer_offsets"].partitions[0].leader
            not in (-1, node), "another one leads",
        )
        after = coordinator(cluster, witness)
        until_committed(cluster, after, 8)
        older(cluster, node, after)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(commit, cluster, node, 7)  # no replica copies it from here now
            joined(cluster, node)
            assert waiting.result() != 0
        log = cluster.servers[node].metadata_log
        cluster.until(
            lambda: log.image.topics["__consumer_offsets"].partitions[0].leader == after,
            "it hears of its successor",
        )
        assert commit(cluster, node, 9) == ErrorCode.NOT_COORDINATOR
        assert committed(cluster, after) == (0, 8)


def older(cluster: RunningCluster, node: int, after: int) -> None:
    """Check that the former coordinator returns an error or an offset that was once committed."""
    code, offset = committed(cluster, node)
    assert code or offset in (6, 8)
    assert committed(cluster, after) == (0, 8)


def joined(cluster: RunningCluster, node: int) -> None:
    async def join() -> None:
        cluster.sessions[node].join()

    cluster.run(join())
