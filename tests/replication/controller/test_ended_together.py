"""Replicas stop at the same moment while another broker lives. The replica whose session ends last
does not lead before the replicas whose sessions ended shortly before have reported their logs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.controller.brokers import (
    brokers_gone,
    outlived,
    repair,
    unregister_broker,
)
from ottla.replication.controller.elections import leaderless, unclean_elections
from ottla.replication.controller.reassignment import Reassignment, reassign_partitions
from ottla.replication.metadata import (
    BrokerLeaving,
    MetadataImage,
    PartitionExtra,
    PartitionState,
    RecentlyGone,
    TopicDeleted,
)
from ottla.replication.standalone import snapshot_records
from ottla.wire.errors import ProtocolError
from tests.replication.controller.world import THREE, World

TWO = PartitionState(1, 5, (1, 2), (1, 2), 7)


def both_gone(min_isr: int = 1) -> World:
    """Brokers 1 and 2 lose power at the same moment; broker 3 lives."""
    world = World(TWO, min_isr)
    world.gone(1)
    world.gone(2, company=(1,))
    assert (world.state.leader, world.state.isr) == (-1, (2,))
    return world


@pytest.mark.parametrize("min_isr", [1, 2])
def test_the_last_one_in_sync_waits_for_those_that_ended_with_it(min_isr: int) -> None:
    world = both_gone(min_isr)
    world.back(2, "machine")
    assert (world.state.leader, world.extra.doubtful, world.extra.awaited) == (-1, (2,), (1,))
    assert not list(leaderless(world.image, False))
    assert world.elect({2: (5, 10)}) == 0
    before = world.image
    world.back(1, "machine")
    assert list(leaderless(world.image, False)) == [("t", 0, (1, 2), False)]
    assert world.elect({2: (5, 10)}) == 0, "1 has not answered"
    assert world.elect({1: (5, 12), 2: (5, 10)}) == 1
    assert (world.state.leader, world.state.isr, world.state.extra) == (1, (1,), None)
    if min_isr == 1:
        assert unclean_elections(before, world.image, ["t"]) == 0


def test_in_the_other_order_of_their_return_the_longest_log_leads_as_well() -> None:
    world = both_gone()
    world.back(1, "machine")
    assert not list(leaderless(world.image, False)), "2 may have acknowledged records alone"
    world.back(2, "machine")
    assert world.elect({2: (5, 10)}) == 0
    assert world.elect({1: (5, 10), 2: (5, 10)}) == 1
    assert world.state.leader == 2, "it was in sync: it wins a tie"


@pytest.mark.parametrize("stop", ["crash", "clean"])
def test_one_that_is_trusted_waits_for_nobody(stop: str) -> None:
    world = both_gone()
    world.back(2, stop)
    assert (world.state.leader, world.state.isr, world.state.extra) == (2, (2,), None)


def test_one_that_outlived_the_other_waits_for_nobody() -> None:
    world = World(TWO, min_isr=1)
    world.gone(1)
    world.gone(2)
    world.back(2, "machine")
    assert (world.state.leader, world.state.isr) == (2, (2,))


def test_one_that_had_gone_before_it_goes_again_with_the_last_one_is_waited_for() -> None:
    """The replica returned in between, but did not get in sync again. Its log may be longer."""
    world = World(PartitionState(2, 5, (1, 2), (1, 2), 7), min_isr=1)
    world.gone(1)
    world.back(1, "crash")
    assert world.state.isr == (2,), "nobody led whom it could have copied"
    epochs = {node: broker.epoch for node, broker in world.image.brokers.items()}
    world.image = world.image.apply(brokers_gone(world.image, epochs).records)
    assert world.image.company[2] == (1,)
    world.back(2, "machine")
    assert world.state.leader == -1 and world.extra.awaited == (1,)
    world.back(1, "crash")
    assert world.elect({1: (5, 100), 2: (5, 90)}) == 1 and world.state.leader == 1


def test_an_end_is_recent_until_all_have_outlived_it_and_nobody_has_gone_meanwhile() -> None:
    world = World(TWO)
    world.gone(1)
    seen = world.image
    assert seen.recently_gone == {1}
    assert outlived(seen, [1, 2], seen).records == [RecentlyGone()]
    world.back(1, "crash")
    assert not outlived(world.image, [1], seen).records, "it may have gone again since"
    assert not outlived(world.image, [2], world.image).records
    assert outlived(world.image, [1], world.image).records == [RecentlyGone()]


def test_of_three_each_is_waited_for() -> None:
    world = World(min_isr=1)
    world.gone(1)
    world.gone(2, company=(1,))
    world.gone(3, company=(1, 2))
    world.back(3, "machine")
    world.back(2, "machine")
    assert (world.state.leader, world.extra.awaited) == (-1, (1, 2))
    assert not list(leaderless(world.image, False))
    world.back(1, "crash")
    assert world.elect({1: (5, 12), 2: (5, 11), 3: (5, 10)}) == 1
    assert world.state.leader == 1


def test_eligible_ones_are_waited_for_before_and_their_company_with_the_last_one() -> None:
    world = World(min_isr=2)
    world.gone(1)
    world.gone(2, company=(1,))
    world.gone(3, company=(1, 2))
    assert (world.state.isr, world.extra.elr) == ((3,), (2,))
    world.back(2, "machine")
    world.back(3, "machine")
    assert (world.extra.elr, world.extra.awaited) == ((), (1, 2))
    assert not list(leaderless(world.image, False))
    world.back(1, "machine")
    assert list(leaderless(world.image, False)) == [("t", 0, (1, 2, 3), False)]


def test_who_is_waited_for_is_known_after_a_snapshot_and_further_deaths() -> None:
    world = both_gone()

    def from_a_snapshot() -> MetadataImage:
        image = MetadataImage.empty("c").apply(list(snapshot_records(world.image)))
        return replace(image, offset=world.image.offset)

    world.image = from_a_snapshot()
    assert world.image.company == {2: (1,)}
    world.back(2, "machine")
    world.image = from_a_snapshot()
    world.gone(2)
    world.back(2, "crash")
    assert (world.state.leader, world.extra.awaited) == (-1, (1,)), "it has led nothing since"
    world.gone(2, company=(3,))
    world.back(2, "machine")
    assert world.extra.awaited == (1,)


def test_one_that_is_back_has_to_stay_until_it_has_reported() -> None:
    world = both_gone()
    world.back(1, "machine")
    world.gone(1)
    world.back(2, "machine")
    assert not list(leaderless(world.image, False))
    world.back(1, "machine")
    leaving = world.image.apply([BrokerLeaving(1)])
    assert list(leaderless(world.image, False)) and not list(leaderless(leaving, False))


def test_only_replicas_of_the_partition_are_waited_for() -> None:
    world = World(PartitionState(2, 5, (2,), (2,)), min_isr=1)
    world.gone(1)
    world.gone(2, company=(1,))
    world.back(2, "machine")
    assert (world.state.leader, world.state.extra) == (2, None)


def test_one_that_the_partition_moves_away_from_is_not_waited_for() -> None:
    world = both_gone()
    world.back(2, "machine")
    decision = reassign_partitions(world.image, [Reassignment("t", 0, (2,))])
    assert decision.result == [None]
    world.image = world.image.apply(decision.records)
    world.image = world.image.apply(repair(world.image).records)
    assert (world.state.leader, world.state.isr, world.state.extra) == (2, (2,), None)


def test_an_unclean_election_waits_for_nobody() -> None:
    world = both_gone()
    world.back(2, "machine")
    assert list(leaderless(world.image, True)) == [("t", 0, (2,), True)]
    assert world.elect({2: (5, 10)}, unclean=True) == 1
    assert (world.state.leader, world.state.extra) == (2, None)


@pytest.mark.parametrize("returned", [False, True])
def test_one_that_is_unregistered_is_not_waited_for(returned: bool) -> None:
    world = both_gone()
    if returned:
        world.back(2, "machine")
    world.image = world.image.apply(unregister_broker(world.image, 1, 3).records)
    if not returned:
        world.back(2, "machine")
    world.image = world.image.apply(repair(world.image).records)
    assert (world.state.leader, world.state.extra) == (2, None)
    assert world.image.last_known(1) is not None, "should it return, it is not taken for a new one"
    assert unregister_broker(world.image, 1, 3).records == []
    with pytest.raises(ProtocolError):
        unregister_broker(world.image, 9, 3)


def test_a_deleted_topic_waits_for_nobody() -> None:
    world = both_gone()
    world.image = world.image.apply([TopicDeleted("t")])
    world.back(2, "machine")
    assert not list(leaderless(world.image, False))


def test_a_log_that_is_missing_is_the_operators_case_as_before() -> None:
    world = both_gone()
    world.back(2, "lost")
    world.back(1, "crash")
    assert (world.state.leader, world.extra.lost) == (-1, (2,))
    assert not list(leaderless(world.image, False))


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["gone", "gone", "machine", "machine", "crash", "lost", "elect", "leave"]),
        st.integers(1, 3), st.sets(st.integers(1, 3), max_size=2),
    ),
    max_size=14,
)


@given(st.sampled_from([TWO, THREE]), st.sampled_from([1, 2]), EVENTS)
def test_whatever_comes_and_goes_nobody_is_waited_for_without_need(
    state: PartitionState, min_isr: int, events: list[tuple[str, int, set[int]]]
) -> None:
    world = World(state, min_isr)
    for kind, node, company in events:
        if kind == "gone" and node in world.image.brokers:
            gone = company - world.image.brokers.keys() - {node}
            world.gone(node, company=tuple(sorted(gone)))
        elif kind == "leave" and node in world.image.brokers:
            world.image = world.image.apply([BrokerLeaving(node)])
            world.image = world.image.apply(repair(world.image).records)
        elif kind == "elect":
            world.elect({n: (5, n) for n in world.image.brokers})
        elif kind in ("machine", "crash", "lost"):
            world.back(node, kind)
        extra = world.state.extra or PartitionExtra()
        assert set(extra.awaited) <= set(world.state.replicas) - set(world.state.isr)
        assert not extra.awaited or (extra.doubtful and world.state.leader == -1)
    for node in (1, 2, 3):
        world.back(node, "machine")
    if world.state.leader == -1 and not world.extra.lost:
        assert world.elect({n: (5, n) for n in (1, 2, 3)}) == 1, "all are back"
