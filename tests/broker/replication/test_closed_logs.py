"""Followers that have not opened their logs since a clean stop, and whose disk refuses to open
them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.log.files.clock import Clock
from ottla.log.files.disk import Disk
from ottla.log.partition import loading
from ottla.replication.metadata import PartitionsChanged
from tests.broker.replication.nodes import TOPIC, NodeCluster, elected, records_of

Make = Callable[..., NodeCluster]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[NodeCluster] = []

    def cluster(**options: int) -> NodeCluster:
        made.append(NodeCluster(tmp_path, **options))
        return made[-1]

    yield cluster
    for each in made:
        each.close()


def test_a_cut_that_lacks_descriptors_for_now_is_tried_again(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The truncation is the first operation that needs the log's files, so it has to open them."""
    cluster = make(nodes=2)
    cluster.append(1)
    cluster.settle()
    old = cluster.nodes[1].partition()
    assert old is not None
    cluster.append(1)
    cluster.stop(1)
    cluster.gone(1)
    cluster.catch_up(2)
    cluster.settle()
    partition = elected(cluster.image.topics[TOPIC].partitions[0], 2)
    cluster.decide([PartitionsChanged(TOPIC, ((0, partition),))])
    cluster.start(1, "clean")
    for node_id in (1, 2):
        cluster.catch_up(node_id)
    cluster.append(2)

    def none_left(*_: object) -> None:
        raise OSError(errno.EMFILE, "no descriptors are left")

    with monkeypatch.context() as lacking:
        lacking.setattr("ottla.log.partition.loading.load", none_left)
        for _ in range(4):
            cluster.fetch(1, 2)
    cluster.settle()
    assert records_of(cluster, 1) == records_of(cluster, 2) != b""


def test_a_log_that_cannot_be_opened_holds_up_no_other_partition(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Applying the leader's log start to the partition opens its log, which fails. An earlier
    version closed the connection because of the error. Each new connection got the same answer, so
    the follower never fetched what came after that partition."""
    cluster = make(nodes=2, partitions=2)
    for index in (0, 1):
        cluster.append(1, index)
    cluster.settle()
    cluster.stop(2)
    cluster.gone(2)
    cluster.settle()
    leader = cluster.nodes[1].partition()
    assert leader is not None
    leader.log.delete_before(1)
    cluster.append(1, 1)
    cluster.start(2, "clean")
    cluster.catch_up(2)
    load = loading.load

    def refused(disk: Disk, clock: Clock, directory: str, *rest: Any) -> Any:
        if directory.endswith("t-0"):
            raise OSError(errno.EIO, "the disk refuses", directory)
        return load(disk, clock, directory, *rest)

    with monkeypatch.context() as failing:
        failing.setattr("ottla.log.partition.loading.load", refused)
        for _ in range(6):
            cluster.fetch(2, 1)
        assert records_of(cluster, 2, 1) == records_of(cluster, 1, 1) != b""
    cluster.settle()
    follower = cluster.nodes[2].partition()
    assert follower is not None and follower.log.log_start_offset == 1
