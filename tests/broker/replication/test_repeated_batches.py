"""Idempotent producers while leaders change and in-sync sets shrink: batches stay in order, and a
batch that is answered as a duplicate is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.replication.metadata import PartitionChanged
from ottla.wire.errors import ErrorCode, ProtocolError
from tests.broker.replication.nodes import TOPIC, NodeCluster, elected
from tests.broker.replication.producing import Sender

Make = Callable[..., NodeCluster]
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
OK = ErrorCode.NONE


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[NodeCluster] = []

    def cluster(**options: Any) -> NodeCluster:
        made.append(NodeCluster(tmp_path, **options))
        return made[-1]

    yield cluster
    for each in made:
        each.close()


def all_are_in_order(cluster: NodeCluster, sender: Sender) -> None:
    """Assert that the second batch is refused until the client has sent the first batch again."""
    assert sender.send(1) is OUT_OF_ORDER
    sender.ask(0)
    sender.ask(1)
    cluster.settle()
    assert [sender.answer(), sender.answer()] == [(OK, 0), (OK, 1)]


def test_no_batch_overtakes_the_first_one_which_too_few_replicas_kept_out(make: Make) -> None:
    cluster = make(min_isr=2)
    for node_id in (2, 3):
        cluster.kill(node_id)
        cluster.gone(node_id)
    cluster.catch_up(1)
    sender = Sender(cluster.nodes[1])
    assert sender.send(0) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert sender.send(1) is ErrorCode.NOT_ENOUGH_REPLICAS
    cluster.start(2)
    cluster.settle()
    assert cluster.image.topics[TOPIC].partitions[0].isr == (1, 2)
    all_are_in_order(cluster, sender)


def test_no_batch_overtakes_the_first_one_which_came_before_its_leader_knew(make: Make) -> None:
    cluster = make()
    cluster.decide([PartitionChanged(
        TOPIC, 0, elected(cluster.image.topics[TOPIC].partitions[0], 2)
    )])
    sender = Sender(cluster.nodes[2])
    assert sender.send(0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    for node_id in (1, 2, 3):
        cluster.catch_up(node_id)
    all_are_in_order(cluster, sender)


def test_no_batch_overtakes_the_first_one_whose_coordinator_did_not_answer(make: Make) -> None:
    refusals = [ProtocolError("nobody coordinates it", ErrorCode.NOT_ENOUGH_REPLICAS)]

    def check(*_: object) -> None:
        if refusals:
            raise refusals.pop()

    cluster = make()
    sender = Sender(cluster.nodes[1], "t", check)
    assert sender.send(0) is ErrorCode.NOT_ENOUGH_REPLICAS
    all_are_in_order(cluster, sender)


def test_a_repeated_batch_whose_offset_is_forgotten_is_told_to_be_there_once_it_is_committed(
    make: Make,
) -> None:
    """After a restart, a replica knows only the last batch of each producer. If a client repeats an
    earlier batch, it takes DUPLICATE_SEQUENCE_NUMBER for the acknowledgement."""
    cluster = make()
    first = Sender(cluster.nodes[1])
    for sequence in (0, 1):
        first.ask(sequence)
    cluster.fetch(2, 1)
    cluster.fetch(2, 1)
    cluster.stop(2)
    cluster.start(2, "clean")                   # 2 has both records; 3 has nothing yet
    for node_id in (1, 2):
        cluster.catch_up(node_id)
    first.ask(2)
    for _ in range(4):
        cluster.time.now += 0.3
        cluster.fetch(2, 1)
        cluster.propose(1)
        cluster.catch_up(1)
    state = cluster.image.topics[TOPIC].partitions[0]
    assert set(state.isr) == {1, 2, 3}
    cluster.kill(1)
    cluster.gone(1)
    cluster.catch_up(2)
    leader = cluster.nodes[2].partition()
    assert leader is not None and leader.led_here
    assert (leader.log.log_end_offset, leader.high_watermark) == (3, 0)
    second = Sender(cluster.nodes[2])
    assert second.send(0) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    cluster.settle()
    assert leader.high_watermark == 3
    assert second.send(0) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
