"""AlterPartition: which changes a leader may propose, and which epochs are refused."""

from __future__ import annotations

import pytest

from ottla.replication.controller.brokers import StaleBrokerEpoch
from ottla.replication.controller.isr import alter_partitions
from ottla.replication.metadata import (
    BrokerImage,
    BrokerLeaving,
    BrokerRegistered,
    MetadataImage,
    PartitionChanged,
    PartitionExtra,
    PartitionState,
    TopicCreated,
)
from ottla.wire.messages import AlterPartitionRequest

TOPIC_ID = b"\x05" * 16
IMAGE = MetadataImage.empty("c").apply([
    *(BrokerRegistered(BrokerImage(node, 100 + node, (), None, f"i{node}")) for node in (1, 2, 3)),
    TopicCreated("t", TOPIC_ID, (PartitionState(1, 4, (1, 2, 3), (1, 2), 7),)),
])
Members = tuple[tuple[int, int], ...]


def asked(
    members: Members = ((1, 101), (2, 102), (3, 103)), broker: tuple[int, int] = (1, 101),
    leader_epoch: int = 4, partition_epoch: int = 7, index: int = 0, topic_id: bytes = TOPIC_ID,
    image: MetadataImage = IMAGE,
) -> tuple[int, MetadataImage]:
    """Propose an in-sync set; returns the error code and the image afterwards."""
    made = AlterPartitionRequest.Topic
    row = made.Partition(
        partition_index=index, leader_epoch=leader_epoch, partition_epoch=partition_epoch,
        new_isr_with_epochs=[
            made.Partition.NewIsrWithEpoch(broker_id=node, broker_epoch=epoch)
            for node, epoch in members
        ],
    )
    request = AlterPartitionRequest(
        broker_id=broker[0], broker_epoch=broker[1],
        topics=[made(topic_id=topic_id, partitions=[row])],
    )
    decision = alter_partitions(image, request)
    answer = decision.result.topics[0].partitions[0]
    after = image.apply(decision.records)
    if answer.error_code == 0:
        state = after.topics["t"].partitions[0]
        assert (answer.isr, answer.partition_epoch) == (list(state.isr), state.partition_epoch)
        assert (answer.leader_id, answer.leader_epoch) == (1, 4)
    else:
        assert after is image or after == image
    return answer.error_code, after


def test_replicas_join_and_leave_under_a_new_partition_epoch() -> None:
    code, after = asked()
    assert (code, after.topics["t"].partitions[0]) == (
        0, PartitionState(1, 4, (1, 2, 3), (1, 2, 3), 8))
    code, after = asked(((1, 101),), partition_epoch=8, image=after)
    assert (code, after.topics["t"].partitions[0].isr) == (0, (1,))


def test_what_is_so_already_changes_nothing() -> None:
    code, after = asked(((1, 101), (2, 102)))
    assert (code, after.topics["t"].partitions[0].partition_epoch) == (0, 7)


@pytest.mark.parametrize(("options", "code"), [
    ({"topic_id": b"\x06" * 16}, 100),
    ({"index": 1}, 3),
    ({"leader_epoch": 5}, 41),                      # the leader knows a newer controller's decision
    ({"partition_epoch": 8}, 41),
    ({"leader_epoch": 3}, 74),
    ({"broker": (2, 102)}, 42),                     # not the leader
    ({"partition_epoch": 6}, 95),
    ({"members": ((2, 102), (3, 103))}, 42),        # without its leader
    ({"members": ((1, 101), (4, 104))}, 42),        # no replica
    ({"members": ((1, 101), (3, 103), (3, 103))}, 42),
    ({"members": ((1, 101), (3, 99))}, 107),        # a former incarnation (KIP-903)
    ({"members": ((1, 101), (3, 99)), "partition_epoch": 6}, 95),   # its epoch is tested first
])  # fmt: skip
def test_refused(options: dict[str, object], code: int) -> None:
    assert asked(**options)[0] == code              # type: ignore[arg-type]


def test_a_replica_whose_broker_is_shutting_down_does_not_join() -> None:
    assert asked(image=IMAGE.apply([BrokerLeaving(3)]))[0] == 107
    assert asked(((1, 101), (2, 102)), image=IMAGE.apply([BrokerLeaving(2)]))[0] == 0


def test_a_broker_of_another_epoch_is_not_listened_to() -> None:
    for broker in ((1, 100), (9, 1)):
        with pytest.raises(StaleBrokerEpoch):
            asked(broker=broker)


def test_a_leader_of_an_earlier_version_names_topics_and_knows_no_epochs() -> None:
    """Versions 0 and 1 have topic names. Versions up to 2 have no broker epochs of the members."""
    assert asked(((1, -1), (2, -1), (3, -1)))[0] == 0
    for epoch in (-2, 0):
        assert asked(((1, 101), (3, epoch)))[0] == 107
    made = AlterPartitionRequest.Topic
    row = made.Partition(partition_index=0, leader_epoch=4, partition_epoch=7, new_isr=[1, 3])
    request = AlterPartitionRequest(
        broker_id=1, broker_epoch=101, topics=[made(topic_name="t", partitions=[row])])
    decision = alter_partitions(IMAGE, request)
    [topic] = decision.result.topics
    assert (topic.topic_name, topic.partitions[0].error_code) == ("t", 0)
    assert IMAGE.apply(decision.records).topics["t"].partitions[0].isr == (1, 3)


@pytest.mark.parametrize("index", [-1, 1])
def test_a_partition_that_is_not_there_is_unknown(index: int) -> None:
    assert asked(index=index)[0] == 3


def test_a_member_in_a_failed_directory_does_not_join_but_may_stay() -> None:
    failed = PartitionState(1, 4, (1, 2, 3), (1, 2), 7, PartitionExtra(offline=(2, 3)))
    image = IMAGE.apply([PartitionChanged("t", 0, failed)])
    assert asked(image=image)[0] == 107
    assert asked(((1, 101), (2, 102)), image=image)[0] == 0
