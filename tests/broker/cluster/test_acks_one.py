"""acks=1 with flush.messages: the answer waits for the leader's disk, and for no other replica."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import pytest

from ottla.replication.partition import Partition
from ottla.wire.errors import ErrorCode
from tests.broker.cluster.running_cluster import RunningCluster, create, leaders
from tests.broker.produce_fetch import batch, code, produce, produce_request
from tests.log.faulty_disk import FaultyDisk


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    """Two brokers, with a partition that has to have two replicas in sync."""
    with RunningCluster(
        tmp_path, 2, {1: FaultyDisk(1), 2: FaultyDisk(2)}, log_dirs="/data",
        min_insync_replicas=2, log_flush_interval_messages=1,
    ) as started:
        assert create(started, 1, "t", 1, 2) == 0
        yield started


def led(cluster: RunningCluster) -> tuple[int, Partition]:
    """The leader, and its replica."""
    (node_id,) = leaders(next(iter(cluster.servers.values())), "t")
    partition = cluster.servers[node_id].replicas.partition("t", 0)
    assert partition is not None
    return node_id, partition


def test_acks_1_is_answered_below_min_insync_replicas(cluster: RunningCluster) -> None:
    node_id, partition = led(cluster)
    cluster.stop(3 - node_id)
    cluster.until(lambda: partition.role.under_min_isr, "too few are in sync")
    with cluster.client(node_id) as client:
        for value in (b"a", b"b"):
            assert produce(client, "t", batch(value), acks=1).error_code == 0
        assert produce(client, "t", batch(b"c")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log.recovery_point == 2 and partition.high_watermark == 0


def test_acks_1_gets_no_error_about_other_replicas(cluster: RunningCluster) -> None:
    node_id, partition = led(cluster)
    release = Event()
    cluster.servers[node_id].flusher.thread.submit(release.wait)
    with ExitStack() as ended, cluster.client(node_id) as client:
        ended.callback(release.set)
        sent = client.send(produce_request("t", batch(b"a"), acks=1), 9)
        cluster.until(lambda: partition.log.log_end_offset == 1, "it is in the log")
        cluster.stop(3 - node_id)
        cluster.until(lambda: partition.role.under_min_isr, "too few are in sync")
        assert partition.log.recovery_point == 0
        release.set()
        assert code(client.answer(sent)) == 0
    assert partition.log.recovery_point == 1
