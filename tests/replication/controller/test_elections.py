"""Who leads: a trusted replica, an eligible one (KIP-966), or the one with the longest log if no
replica is trusted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.replication.controller.brokers import (
    controlled_shutdown,
    distrust,
    repair,
    unregister_broker,
)
from ottla.replication.controller.elections import (
    LogEnd,
    leaderless,
    unclean_elections,
)
from ottla.replication.controller.partitions import elect_longest
from ottla.replication.metadata import (
    ConfigSet,
    MetadataImage,
    PartitionExtra,
    PartitionState,
)
from tests.replication.controller.world import THREE, World


def test_who_leaves_below_min_isr_is_eligible_until_it_is_reached_again() -> None:
    world = World()
    world.gone(1)
    assert world.state.isr == (2, 3) and world.state.extra is None
    world.gone(2)
    assert (world.state.leader, world.state.isr, world.extra.elr) == (3, (3,), (2,))
    world.gone(3)
    assert (world.state.leader, world.state.isr, world.extra.elr) == (-1, (3,), (2,))
    world.back(1, "crash")
    assert world.state.leader == -1, "it left while the others went on"
    world.back(2, "crash")
    assert (world.state.leader, world.state.isr, world.extra.elr) == (2, (2,), (3,))


def test_an_eligible_replica_whose_machine_failed_is_only_known_to_have_been_one() -> None:
    world = World()
    world.gone(1, 2, 3)
    world.back(2, "machine")
    assert (world.state.leader, world.extra.elr, world.extra.last_elr) == (-1, (), (2,))
    world.back(3, "crash")
    assert (world.state.leader, world.state.isr) == (3, (3,))


def test_a_replica_whose_machine_failed_leaves_where_a_trusted_one_is_live() -> None:
    world = World()
    world.back(1, "machine")
    assert (world.state.leader, world.state.isr) == (2, (2, 3))


def test_after_a_power_cut_of_all_the_longest_log_leads_once_all_are_back() -> None:
    world = World(min_isr=1)
    world.gone(1, 2, 3)
    assert world.state.isr == (3,) and world.state.extra is None
    world.back(3, "machine")
    assert (world.state.leader, world.state.isr) == (3, (3,)), "nobody else could know better"
    world = World(THREE._replace(leader=-1), min_isr=1)
    world.image = replace(world.image, brokers={}, former=world.image.brokers)
    world.back(2, "machine")
    assert world.extra.doubtful == (2,) and list(leaderless(world.image, True))
    assert not list(leaderless(world.image, False)), "1 and 3 may be trusted when they come"
    world.back(1, "machine")
    world.back(3, "machine")
    assert list(leaderless(world.image, False)) == [("t", 0, (1, 2, 3), False)]
    assert world.elect({1: (5, 90), 2: (5, 100)}) == 0, "3 has not answered"
    assert world.elect({1: (5, 90), 2: (5, 100), 3: (4, 200)}) == 1
    assert (world.state.leader, world.state.isr, world.state.extra) == (2, (2,), None)


def test_nobody_takes_over_from_the_only_one_in_sync_while_it_stops() -> None:
    alone = PartitionExtra(doubtful=(3,))
    world = World(THREE._replace(leader=-1, isr=(3,), replicas=(3, 1), extra=alone), min_isr=1)
    before = world.state
    decision = controlled_shutdown(world.image, 3, world.image.brokers[3].epoch)
    world.image = world.image.apply(decision.records)
    assert world.state == before, "3 acknowledged records alone, 1 does not have them"
    assert not list(leaderless(world.image, False))
    world.back(1, "crash")
    assert world.state == before
    world.back(3, "clean")
    assert list(leaderless(world.image, False)) == [("t", 0, (3, 1), False)]


def test_the_stop_of_a_follower_moves_no_leader() -> None:
    """Leadership does not move to the preferred replica either. Only leader rebalancing does this,
    if it is enabled."""
    world = World(THREE._replace(leader=2))
    decision = controlled_shutdown(world.image, 3, 1)
    assert decision.result
    state = world.image.apply(decision.records).topics["t"].partitions[0]
    assert (state.leader, state.leader_epoch, state.isr) == (2, 5, (1, 2))


def test_a_live_leader_keeps_its_partition_whoever_comes_and_goes() -> None:
    world = World(THREE._replace(leader=2))
    for isr, happens in (
        ((1, 2), lambda: world.gone(3)), ((2,), lambda: world.gone(1)),
        ((2,), lambda: world.back(1, "crash")), ((2,), lambda: world.back(3, "machine")),
    ):  # fmt: skip
        happens()
        assert (world.state.leader, world.state.leader_epoch, world.state.isr) == (2, 5, isr)


def test_a_stop_leaves_no_gone_leader_alone_in_sync() -> None:
    """If a gone broker led many partitions, their repair takes several decisions. Before the last
    of these decisions, the last live broker that has everything may stop, too."""
    world = World(THREE._replace(isr=(1, 3)), min_isr=1)
    others = {node: broker for node, broker in world.image.brokers.items() if node != 1}
    world.image = replace(world.image, brokers=others)
    image = world.image.apply(controlled_shutdown(world.image, 3, 1).records)
    assert 3 in image.topics["t"].partitions[0].isr
    image = image.apply(repair(image).records)
    assert image.topics["t"].partitions[0].isr == (3,)


def test_one_trusted_replica_is_better_than_any_long_log() -> None:
    world = World(THREE._replace(leader=-1), min_isr=1)
    world.image = replace(world.image, brokers={}, former=world.image.brokers)
    world.back(1, "machine")
    world.back(2, "machine")
    world.back(3, "crash")
    assert (world.state.leader, world.state.isr, world.state.extra) == (3, (3,), None)


def test_a_missing_log_leads_only_by_an_unclean_election() -> None:
    world = World(PartitionState(1, 0, (1,), (1,)), min_isr=1)
    world.back(1, "clean", lost=("t-0",))
    assert (world.state.leader, world.extra.lost) == (-1, (1,))
    world.back(1, "clean")
    assert (world.state.leader, world.extra.lost) == (-1, (1,)), "what is there began after that"
    assert list(leaderless(world.image, False)) == []
    assert list(leaderless(world.image, True)) == [("t", 0, (1,), True)]
    assert world.elect({1: (-1, 0)}, unclean=True) == 1
    assert (world.state.leader, world.state.extra) == (1, None)


def test_a_missing_log_leaves_an_in_sync_set_though_the_others_are_away() -> None:
    world = World()
    world.gone(3)
    world.image = replace(world.image, brokers={}, former=world.image.brokers)
    world.back(1, "lost")
    assert (world.state.leader, world.state.isr) == (-1, (2,))
    assert 1 not in world.extra.elr
    world.back(2, "crash")
    assert (world.state.leader, world.state.isr) == (2, (2,))


@pytest.mark.parametrize("stop", ["clean", "crash"])
def test_after_a_backup_of_the_metadata_the_longest_log_of_all_replicas_leads(stop: str) -> None:
    """The in-sync sets are those of the backup, and their members may have left them since."""
    world = World(THREE._replace(isr=(1,)), min_isr=1)
    world.image = replace(world.image, brokers={}, former=world.image.brokers)
    world.back(1, stop, adopts=True)
    assert (world.state.leader, world.extra.doubtful, world.extra.awaited) == (-1, (1,), (2, 3))
    world.back(2, stop, adopts=True)
    assert not list(leaderless(world.image, False))
    world.back(3, stop, adopts=True)
    assert list(leaderless(world.image, False)) == [("t", 0, (1, 2, 3), False)]
    assert world.elect({1: (5, 10), 2: (6, 30), 3: (6, 20)}) == 1
    assert (world.state.leader, world.state.isr, world.state.extra) == (2, (2,), None)


def test_a_replica_that_does_not_return_after_a_backup_can_be_given_up() -> None:
    world = World(THREE._replace(isr=(1,)), min_isr=1)
    world.image = replace(world.image, brokers={}, former=world.image.brokers)
    world.back(1, "clean", adopts=True)
    for node_id in (2, 3):
        assert world.state.leader == -1
        world.image = world.image.apply(unregister_broker(world.image, node_id, 1).records)
    world.image = world.image.apply(repair(world.image).records)
    assert (world.state.leader, world.state.isr) == (1, (1,))


def test_an_answer_of_a_former_broker_epoch_does_not_count() -> None:
    world = World(PartitionState(-1, 0, (1, 2, 3), (3,)), min_isr=1)
    ends = {1: LogEnd(0, 9, 9), 2: LogEnd(1, 1, 1)}
    decision = elect_longest(world.image, [("t", 0, ends, True)])
    assert world.image.apply(decision.records).topics["t"].partitions[0].leader == 2


def test_a_new_session_of_the_same_process_is_not_doubted() -> None:
    world = World()
    known = world.image.brokers[1]
    world.gone(1)
    again = known._replace(epoch=9)
    assert distrust(world.image, again, "machine", ()).records == []


@pytest.mark.parametrize(("setting", "expected"), [(None, 0), ("true", 1), ("false", 0)])
def test_unclean_elections_follow_the_topics_setting(setting: str | None, expected: int) -> None:
    world = World(PartitionState(-1, 0, (1, 2, 3), (3,)), min_isr=1)
    world.gone(3)
    world.image = world.image.apply(
        [ConfigSet("topic", "t", "unclean.leader.election.enable", setting)]
    )
    assert len(list(leaderless(world.image, False))) == expected


def test_only_leaders_that_were_not_trusted_are_counted_as_unclean() -> None:
    def counted(before: MetadataImage) -> int:
        return unclean_elections(before, world.image, ["t", "missing"])

    world = World(PartitionState(-1, 0, (1, 2, 3), (3,)), min_isr=1)
    world.gone(3)
    before = world.image
    assert world.elect({1: (1, 5), 2: (1, 7)}, unclean=True) == 1
    assert (world.state.leader, counted(before), counted(world.image)) == (2, 1, 0)
    world = World()
    before = world.image
    for node in (1, 2):
        world.gone(node)
        assert world.state.leader == node + 1 and counted(before) == 0
