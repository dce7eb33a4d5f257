"""When a broker ends, the metadata name the brokers that ended shortly before it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.cluster.recent_ends import LEARNED_WITHIN, SESSION_LASTS, RecentEnds
from ottla.replication.coordination import SessionState
from ottla.replication.metadata import (
    BrokerGone,
    BrokerImage,
    BrokerRegistered,
    ConfigSet,
    MetadataImage,
    MetadataRecord,
    RecentlyGone,
)
from ottla.wire.messages import UnregisterBrokerRequest
from tests.broker.cluster.running_cluster import RunningCluster

OUTLIVED_SECONDS = 9.0 * (SESSION_LASTS + LEARNED_WITHIN)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with RunningCluster(tmp_path, 4) as running:
        yield running
        hear(running, *running.servers)


def hear(cluster: RunningCluster, *nodes: int) -> None:
    """Connect brokers to ZooKeeper again."""

    async def join() -> None:
        for node_id in nodes:
            cluster.sessions[node_id].join()

    cluster.run(join())


def falls_silent(cluster: RunningCluster, node_id: int) -> None:
    """Cut a broker off from ZooKeeper, and end its session."""

    async def cut() -> None:
        cluster.sessions[node_id].cut()

    cluster.run(cut())
    cluster.expire(node_id)


def is_gone(cluster: RunningCluster, node_id: int) -> MetadataImage:
    """Wait until all brokers that are connected to ZooKeeper have read that a broker was removed;
    returns the metadata."""
    there = [
        cluster.servers[n] for n, session in cluster.sessions.items()
        if session.state is SessionState.CONNECTED
    ]
    cluster.until(
        lambda: all(node_id not in s.metadata_log.image.brokers for s in there), "it is removed"
    )
    return there[0].metadata_log.image


def recent_ends(cluster: RunningCluster, node_id: int) -> RecentEnds:
    member = cluster.servers[node_id].member
    assert member is not None
    return member.controller.recent_ends


def others(cluster: RunningCluster) -> list[int]:
    return [node_id for node_id in cluster.servers if node_id != cluster.controller]


def test_who_was_gone_shortly_before_is_written(cluster: RunningCluster) -> None:
    one, other, third = others(cluster)
    falls_silent(cluster, one)
    assert is_gone(cluster, one).company == {}
    falls_silent(cluster, other)
    assert is_gone(cluster, other).company == {other: (one,)}
    hear(cluster, one)
    server = cluster.servers[third]
    cluster.until(lambda: one in server.metadata_log.image.brokers, "it is registered again")
    falls_silent(cluster, third)
    image = cluster.servers[cluster.controller].metadata_log
    cluster.until(lambda: third not in image.image.brokers, "it is removed")
    assert image.image.company == {other: (one,), third: tuple(sorted((one, other)))}


def test_any_broker_is_told_that_another_one_will_not_return(cluster: RunningCluster) -> None:
    one, other, third = others(cluster)
    for node_id in (one, other):
        falls_silent(cluster, node_id)
        is_gone(cluster, node_id)
    with cluster.client(third) as client:
        assert client.call(UnregisterBrokerRequest(broker_id=one), 0).error_code == 0
        assert client.call(UnregisterBrokerRequest(broker_id=77), 0).error_code != 0
    server = cluster.servers[cluster.controller]
    assert server.metadata_log.image.company == {}


def test_those_that_are_removed_one_right_after_the_other_know_of_each_other(
    cluster: RunningCluster,
) -> None:
    one, other, _ = others(cluster)
    controller = cluster.servers[cluster.controller].member
    assert controller is not None

    async def refused() -> None:
        for node_id in (one, other):
            cluster.sessions[node_id].cut()
            controller.controller.refused(node_id)

    cluster.run(refused())
    assert is_gone(cluster, other).company == {other: (one,)}


def test_who_was_gone_long_before_is_not(cluster: RunningCluster) -> None:
    one, other, _ = others(cluster)
    falls_silent(cluster, one)
    is_gone(cluster, one)
    ends = recent_ends(cluster, cluster.controller)
    cluster.leap(OUTLIVED_SECONDS)
    cluster.until(lambda: not ends.removed_at, "all have outlived it")
    falls_silent(cluster, other)
    assert is_gone(cluster, other).company == {}


def test_what_is_noticed_late_may_have_happened_early(cluster: RunningCluster) -> None:
    """The controller is cut off from ZooKeeper for longer than a removal stays recent."""
    one, other, _ = others(cluster)
    controller = cluster.controller
    falls_silent(cluster, one)
    is_gone(cluster, one)

    async def silence() -> None:
        for node_id in cluster.servers:
            cluster.sessions[node_id].cut()

    cluster.run(silence())
    cluster.expire(other)
    ends = recent_ends(cluster, controller)
    asked = cluster.loop.time() + 2 * OUTLIVED_SECONDS
    cluster.leap(2 * OUTLIVED_SECONDS)
    cluster.until(lambda: cluster.loop.time() > asked + 0.2, "it would ask")
    assert list(ends.removed_at) == [one]
    hear(cluster, *(node_id for node_id in cluster.servers if node_id not in (one, other)))
    assert is_gone(cluster, other).company == {other: (one,)}


def test_the_next_controller_knows_it_as_well(cluster: RunningCluster) -> None:
    former = cluster.controller
    one = others(cluster)[0]
    falls_silent(cluster, one)
    is_gone(cluster, one)
    falls_silent(cluster, former)
    assert is_gone(cluster, former).company == {former: (one,)}


@pytest.mark.parametrize("later", [False, True], ids=["at once", "long after"])
def test_a_controller_that_has_just_begun_knows_it_as_well(
    cluster: RunningCluster, later: bool
) -> None:
    """Seed 11 of the simulation, with three brokers: a machine stopped, and the controller removed
    its broker and stopped right afterwards. The next controller's process had started after the
    removal."""
    one, other, third = others(cluster)
    for node_id in (other, third):
        cluster.stop(node_id)
        is_gone(cluster, node_id)
    former = cluster.controller
    ends = recent_ends(cluster, former)
    cluster.until(lambda: len(ends.removed_at) == 2, "it knows of both")
    cluster.leap(OUTLIVED_SECONDS)
    cluster.until(lambda: not ends.removed_at, "all have outlived them")
    falls_silent(cluster, one)
    assert is_gone(cluster, one).recently_gone == {one}
    cluster.until(lambda: ends.removed_at, "it knows of it")
    if later:
        cluster.leap(OUTLIVED_SECONDS)
        cluster.until(lambda: not ends.removed_at, "all have outlived it")
    falls_silent(cluster, former)
    image = cluster.start(other).metadata_log
    cluster.until(lambda: former not in image.image.brokers, "it is removed")
    assert image.image.company.get(former, ()) == (() if later else (one,))


def test_a_removal_that_is_no_longer_recent_is_so_for_everybody(cluster: RunningCluster) -> None:
    one, other, _ = others(cluster)
    falls_silent(cluster, one)
    assert is_gone(cluster, one).recently_gone == {one}
    for node_id in (n for n in cluster.servers if n != one):
        ends = recent_ends(cluster, node_id)
        cluster.until(lambda ends=ends: ends.removed_at, "it knows of it")
    cluster.leap(OUTLIVED_SECONDS)
    for node_id in cluster.servers:
        if node_id != one:
            log = cluster.servers[node_id].metadata_log
            cluster.until(lambda log=log: not log.image.recently_gone, "all have outlived it")
            ends = recent_ends(cluster, node_id)
            cluster.until(lambda ends=ends: not ends.removed_at, "it knows of that, too")
    hear(cluster, one)
    image = cluster.servers[other].metadata_log
    cluster.until(lambda: one in image.image.brokers, "it is registered again")
    assert not image.image.recently_gone


class Known:
    """A RecentEnds with images and a session that a test controls."""

    def __init__(self) -> None:
        self.image, self.now = MetadataImage.empty("c"), 0.0
        self.coordination: Any = SimpleNamespace(listen=lambda told: setattr(self, "told", told))
        loop: Any = SimpleNamespace(time=lambda: self.now)
        metadata: Any = SimpleNamespace(
            image=self.image, subscribe=lambda follow: setattr(self, "follow", follow))
        self.ends = RecentEnds(self.coordination, metadata, loop)

    def sees(self, now: float, *records: MetadataRecord) -> dict[int, float]:
        """Make records visible together; returns `removed_at`."""
        old, self.image, self.now = self.image, self.image.apply(records), now
        self.follow(old, self.image, ())
        return self.ends.removed_at

    told: Callable[[SessionState], None]
    follow: Callable[[MetadataImage, MetadataImage, Collection[str]], None]


def there(epoch: int) -> BrokerRegistered:
    return BrokerRegistered(BrokerImage(1, epoch, (), None, f"1-{epoch}"))


def test_a_second_end_is_the_one_that_counts_even_if_its_return_was_not_seen() -> None:
    known = Known()
    assert known.sees(10, there(1)) == {}
    assert known.sees(20, BrokerGone(1)) == {1: 20}
    assert known.sees(30, ConfigSet("group", "g", "a", "b")) == {1: 20}
    assert known.sees(40, there(2), BrokerGone(1)) == {1: 40}
    assert known.sees(50, there(3)) == {1: 50}, "it may go again"
    assert known.sees(60, RecentlyGone()) == {}


def test_ends_are_counted_anew_after_each_new_connection() -> None:
    """After an election in ZooKeeper, the sessions of dead brokers last for another timeout."""
    known = Known()
    known.sees(10, there(1), BrokerGone(1))
    known.now = 20
    known.told(SessionState.SUSPENDED)
    assert known.ends.removed_at == {1: 10}
    known.told(SessionState.CONNECTED)
    assert known.ends.removed_at == {1: 20}
