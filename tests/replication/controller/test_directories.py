"""Replicas in failed log directories lead nothing, and leave the in-sync set if other replicas have
everything."""

from __future__ import annotations

import pytest

from ottla.replication.controller.brokers import StaleBrokerEpoch, preferred_leaders
from ottla.replication.controller.directories import LOST, UNASSIGNED, assign_replicas
from ottla.replication.controller.elections import leaderless
from ottla.replication.controller.isr import alter_partitions
from ottla.replication.controller.partitions import elect_leaders
from ottla.replication.controller.reassignment import Reassignment, reassign_partitions
from ottla.replication.metadata import PartitionExtra, PartitionState, TopicCreated
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import AlterPartitionRequest, AssignReplicasToDirsRequest
from tests.replication.controller.world import THREE, World


def report(
    world: World, node_id: int, directory_id: bytes = LOST, index: int = 0, topic: bytes = b"t" * 16
) -> int:
    """Report that a replica is in this directory; returns the error code."""
    made = AssignReplicasToDirsRequest.Directory
    item = made.Topic(topic_id=topic, partitions=[made.Topic.Partition(partition_index=index)])
    decision = assign_replicas(world.image, AssignReplicasToDirsRequest(
        broker_id=node_id, broker_epoch=world.image.brokers[node_id].epoch,
        directories=[made(id=directory_id, topics=[item])],
    ))
    world.image = world.image.apply(decision.records)
    (answer,) = decision.result.directories[0].topics[0].partitions
    return answer.error_code


def join(world: World, *nodes: int) -> int:
    """Let the leader propose an in-sync set; returns the error code."""
    made = AlterPartitionRequest.Topic
    row = made.Partition(
        partition_index=0, leader_epoch=world.state.leader_epoch,
        partition_epoch=world.state.partition_epoch,
        new_isr_with_epochs=[
            made.Partition.NewIsrWithEpoch(broker_id=n, broker_epoch=world.image.brokers[n].epoch)
            for n in nodes
        ],
    )
    leader = world.state.leader
    decision = alter_partitions(world.image, AlterPartitionRequest(
        broker_id=leader, broker_epoch=world.image.brokers[leader].epoch,
        topics=[made(topic_id=b"t" * 16, partitions=[row])],
    ))
    world.image = world.image.apply(decision.records)
    return decision.result.topics[0].partitions[0].error_code


def test_a_leader_whose_directory_fails_hands_over_and_leaves_the_in_sync_set() -> None:
    world = World()
    assert report(world, 1) == 0
    assert (world.state.leader, world.state.isr) == (2, (2, 3))
    assert world.state.leader_epoch == THREE.leader_epoch + 1
    assert world.state.partition_epoch == THREE.partition_epoch + 1
    assert world.extra.offline == (1,)
    before = world.state
    assert report(world, 1) == 0 and world.state is before, "told once"
    assert join(world, 2, 3, 1) == ErrorCode.INELIGIBLE_REPLICA
    assert preferred_leaders(world.image).records == []
    (error,) = elect_leaders(world.image, 0, [("t", 0)]).result
    assert error is not None and error.code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_a_follower_whose_directory_fails_leaves_and_what_it_said_of_its_log_no_longer_counts(
) -> None:
    world = World()
    assert report(world, 3) == 0
    assert (world.state.leader, world.state.leader_epoch) == (1, THREE.leader_epoch + 1)
    assert world.state.isr == (1, 2) and world.extra.offline == (3,)


def test_the_only_replica_in_sync_is_waited_for_until_its_directory_is_back() -> None:
    world = World(THREE._replace(isr=(1,)), min_isr=1)
    assert report(world, 1) == 0
    assert (world.state.leader, world.state.isr) == (-1, (1,))
    world.gone(2)
    world.back(2, "crash")
    assert world.state.leader == -1, "another one may lack what was acknowledged"
    world.back(1, "crash")
    # The broker says "crash", as the run record stays on a failed disk. But the image remembers
    # that the directory had failed.
    assert (world.state.leader, world.extra.doubtful, world.extra.offline) == (-1, (1,), ())
    assert list(leaderless(world.image, False)) == [("t", 0, (1, 2, 3), False)]
    assert world.elect({1: (5, 90), 2: (4, 100), 3: (5, 10)}) == 1
    assert (world.state.leader, world.state.isr, world.state.extra) == (1, (1,), None)


def test_a_failed_replica_that_comes_back_is_doubtful_whatever_its_run_record_says() -> None:
    world = World(THREE._replace(isr=(1, 2)))
    assert report(world, 1) == 0
    assert (world.state.leader, world.state.isr, world.extra.elr) == (2, (2,), ())
    world.gone(2)
    world.back(1, "crash")
    assert world.state.leader == -1, "what it had may not be what was written"
    assert world.extra.offline == ()


def test_an_eligible_replica_whose_directory_fails_is_none_any_more() -> None:
    world = World(THREE._replace(isr=(1,), extra=PartitionExtra(elr=(2,))))
    assert report(world, 2) == 0
    assert (world.extra.elr, world.extra.last_elr, world.extra.offline) == ((), (2,), (2,))


def test_an_eligible_replica_that_takes_over_from_a_failed_one_does_not_make_that_one_eligible(
) -> None:
    """A damaged log is repaired while its broker runs. When it is reported as working, it is
    shorter, but is not marked as doubtful."""
    world = World(THREE._replace(isr=(1,), extra=PartitionExtra(elr=(2,))))
    world.gone(2)
    assert report(world, 1) == 0
    assert (world.state.leader, world.extra.elr, world.extra.offline) == (-1, (2,), (1,))
    world.back(2, "crash")
    assert (world.state.leader, world.state.isr) == (2, (2,))
    assert (world.extra.elr, world.extra.last_elr) == ((), (1,))
    assert report(world, 1, UNASSIGNED) == 0
    world.gone(2)
    assert world.state.leader == -1, "it may lack what was acknowledged"


def test_a_log_that_could_be_opened_after_all_may_join_again() -> None:
    world = World()
    report(world, 3)
    assert report(world, 3, UNASSIGNED) == 0
    assert world.state.extra is None and world.state.isr == (1, 2)
    assert join(world, 1, 2, 3) == 0 and world.state.isr == (1, 2, 3)


def test_an_only_copy_that_works_again_while_its_broker_runs_leads_at_once() -> None:
    world = World(THREE._replace(isr=(1,)), min_isr=1)
    report(world, 1)
    before = world.state
    assert before.leader == -1
    assert report(world, 1, UNASSIGNED) == 0
    assert (world.state.leader, world.state.isr, world.state.extra) == (1, (1,), None)
    assert world.state.leader_epoch == before.leader_epoch + 1
    assert world.state.partition_epoch == before.partition_epoch + 1


def test_a_doubtful_copy_that_works_again_leads_only_by_its_log() -> None:
    world = World(THREE._replace(isr=(1,), extra=PartitionExtra(doubtful=(1,))), min_isr=1)
    report(world, 1)
    assert report(world, 1, UNASSIGNED) == 0
    assert (world.state.leader, world.extra.doubtful, world.extra.offline) == (-1, (1,), ())


def test_nobody_speaks_for_replicas_of_others_or_under_an_old_epoch() -> None:
    world = World(PartitionState(1, 5, (1, 2), (1, 2), 7))
    before = world.image
    assert report(world, 3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert report(world, 1, index=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert report(world, 1, index=-1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert report(world, 1, topic=b"u" * 16) == ErrorCode.UNKNOWN_TOPIC_ID
    for epoch in (0, 2, -1):
        with pytest.raises(StaleBrokerEpoch):
            assign_replicas(
                world.image, AssignReplicasToDirsRequest(broker_id=1, broker_epoch=epoch)
            )
    assert world.image.topics == before.topics


def test_a_replica_that_moves_away_is_offline_no_more() -> None:
    world = World()
    report(world, 1)
    decision = reassign_partitions(world.image, [Reassignment("t", 0, (2, 3))])
    world.image = world.image.apply(decision.records)
    assert (world.state.replicas, world.state.extra) == ((2, 3), None)


def test_each_replica_is_told_once_and_each_topic_has_one_record() -> None:
    world = World()
    other = THREE._replace(leader=2)
    world.image = world.image.apply([TopicCreated("u", b"u" * 16, (other, THREE, other))])
    made = AssignReplicasToDirsRequest.Directory

    def directory(directory_id: bytes, **indexes: int) -> AssignReplicasToDirsRequest.Directory:
        return made(id=directory_id, topics=[
            made.Topic(topic_id=name.encode() * 16,
                       partitions=[made.Topic.Partition(partition_index=index)])
            for name, index in indexes.items()
        ])

    decision = assign_replicas(world.image, AssignReplicasToDirsRequest(
        broker_id=1, broker_epoch=1, directories=[
            directory(LOST, u=2), directory(LOST, u=0, t=0), directory(b"d" * 16, u=2),
            directory(b"d" * 16, u=3), directory(b"d" * 16, x=0), directory(LOST, u=1),
        ],
    ))
    codes = [
        [(topic.topic_id[:1], item.partition_index, item.error_code) for item in topic.partitions]
        for each in decision.result.directories for topic in each.topics
    ]
    assert codes == [
        [(b"u", 2, 0)], [(b"u", 0, 0)], [(b"t", 0, 0)],
        [(b"u", 2, ErrorCode.INVALID_REQUEST)],
        [(b"u", 3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
        [(b"x", 0, ErrorCode.UNKNOWN_TOPIC_ID)], [(b"u", 1, 0)],
    ]
    assert len(decision.records) == 2, "one for each topic"
    after = world.image.apply(decision.records)
    for name in "tu":
        for state in after.topics[name].partitions:
            assert state.extra == PartitionExtra(offline=(1,))


def test_a_replica_that_is_not_there_is_unknown() -> None:
    world = World(THREE._replace(replicas=(1, 2), isr=(1, 2)))
    assert report(world, 3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for index in (-1, 1):
        assert report(world, 1, index=index) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.state.extra is None
