"""Where replicas are placed: leaders go round the brokers, and each replica of a partition is on
another rack as far as there are racks (KIP-36)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ottla.replication.controller.topics import (
    MorePartitions,
    NewTopic,
    TopicDefaults,
    create_partitions,
    create_topics,
)
from ottla.replication.metadata import BrokerImage, BrokerRegistered, Endpoint, MetadataImage
from ottla.replication.placement import InvalidReplicationFactor, Rotation, spread
from tests.replication.images import numbered_ids

Racks = Mapping[int, str | None]
RACKS = st.dictionaries(
    st.integers(0, 50), st.sampled_from(["a", "b", "c", "d", None]), min_size=1, max_size=12
)
STARTS = st.integers(0, 10_000)


def registered(racks: Racks) -> MetadataImage:
    return MetadataImage(brokers={
        node: BrokerImage(node, 1, (), rack) for node, rack in racks.items()
    })


def placed(racks: Racks, count: int, factor: int, start: int) -> list[tuple[int, ...]]:
    return [state.replicas for state in spread(registered(racks), count, factor, start)]


@given(RACKS, st.integers(1, 30), st.integers(1, 12), STARTS)
def test_a_partition_is_on_as_many_racks_as_it_can_be(
    racks: Racks, count: int, factor: int, start: int
) -> None:
    assume(factor <= len(racks))
    sizes = Counter(racks.values())
    for replicas in placed(racks, count, factor, start):
        assert len(replicas) == len(set(replicas)) == factor
        of = Counter(racks[node] for node in replicas)
        assert len(of) == min(len(sizes), factor)
        with_room = [of[rack] for rack in sizes if of[rack] < sizes[rack]]
        assert max(of.values()) - min(with_room, default=factor) <= 1, "racks are used evenly"


@given(RACKS, st.integers(1, 30), st.integers(1, 12), STARTS, st.integers(0, 4))
def test_brokers_that_are_away_get_what_those_that_are_there_cannot_have(
    racks: Racks, count: int, factor: int, start: int, absent: int
) -> None:
    """As in Apache Kafka: topics are created during a rolling restart, too."""
    address = (Endpoint("PLAINTEXT", "h", 1),)
    image = replace(registered(racks), former={
        node: BrokerImage(node, 1, address if node < 100 + absent else (), None)
        for node in range(100, 100 + absent + 1)        # the last one was unregistered
    })
    if factor > len(racks) + absent:
        with pytest.raises(InvalidReplicationFactor, match=f"only {len(racks) + absent} broker"):
            spread(image, count, factor, start)
        return
    for state in spread(image, count, factor, start):
        there, away = state.replicas[:len(racks)], state.replicas[len(racks):]
        assert len(set(state.replicas)) == factor and set(there) <= set(racks)
        assert set(away) <= {*range(100, 100 + absent)} and state.isr == there
        assert state.leader == there[0]


class CountedNodes(list[int]):
    """Nodes, and how often one of them was looked at."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:
        self.looks += 1
        return super().__getitem__(at)


def test_few_of_many_brokers_are_looked_at_for_a_partition() -> None:
    """Thousands of partitions of a topic are placed at a time, and others wait meanwhile."""
    rotation = Rotation({node: "abc"[node % 3] for node in range(900)})
    nodes = rotation.nodes = CountedNodes(rotation.nodes)
    for turn in range(1000):
        rotation.replicas(turn, turn // 900, 3)
    assert nodes.looks < 10 * 1000


@given(RACKS, st.integers(1, 40), st.integers(1, 12), STARTS)
def test_leaders_are_spread_evenly(racks: Racks, count: int, factor: int, start: int) -> None:
    assume(factor <= len(racks))
    led = Counter(replicas[0] for replicas in placed(racks, count, factor, start))
    numbers = [led[node] for node in racks]
    assert max(numbers) - min(numbers) <= 1


@given(st.integers(2, 4), st.integers(1, 4), st.integers(1, 3), st.data())
def test_whole_rounds_over_racks_of_one_size_give_each_broker_as_many_replicas(
    racks_count: int, size: int, rounds: int, data: st.DataObject
) -> None:
    racks = {node: f"rack-{node % racks_count}" for node in range(racks_count * size)}
    factor = data.draw(st.integers(1, len(racks)))
    found = placed(racks, rounds * len(racks), factor, data.draw(STARTS))
    held = Counter(node for replicas in found for node in replicas)
    assert set(held.values()) == {rounds * factor}


@given(RACKS, st.integers(1, 20), STARTS, st.randoms())
def test_the_same_start_places_the_same(
    racks: Racks, count: int, start: int, chance: random.Random
) -> None:
    factor = min(3, len(racks))
    shuffled = list(racks.items())
    chance.shuffle(shuffled)
    assert placed(racks, count, factor, start) == placed(dict(shuffled), count, factor, start)


@given(st.sampled_from([None, "a"]), st.integers(1, 12), st.integers(1, 40), STARTS)
def test_without_racks_the_others_follow_at_a_distance_that_grows_with_each_round(
    rack: str | None, size: int, count: int, start: int
) -> None:
    factor = min(3, size)
    expected = []
    for turn in range(start, start + count):
        first, rounds = turn % size, turn // size
        others = [
            (first + 1 + (rounds + step) % (size - 1)) % size for step in range(factor - 1)
        ]
        expected.append((first, *others))
    assert placed(dict.fromkeys(range(size), rack), count, factor, start) == expected


def test_a_lost_leaders_partitions_fall_to_all_brokers_of_other_racks() -> None:
    racks = {node: "abc"[node % 3] for node in range(9)}
    second = {replicas[1] for replicas in placed(racks, 9 * 9, 2, 0) if replicas[0] == 0}
    assert second == {1, 2, 4, 5, 7, 8}


def test_brokers_without_a_rack_are_one_rack_together() -> None:
    racks = {1: "a", 2: None, 3: None, 4: "a"}
    for replicas in placed(racks, 12, 2, 5):
        assert {racks[node] for node in replicas} == {"a", None}


def test_a_factor_above_the_number_of_brokers_is_refused() -> None:
    with pytest.raises(InvalidReplicationFactor, match=r"3 time\(s\): only 2"):
        placed({1: "a", 2: "b"}, 1, 3, 0)


def test_topics_and_their_later_partitions_go_over_the_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    image = MetadataImage.empty("cluster").apply(
        BrokerRegistered(broker) for broker in registered(racks).brokers.values()
    )
    wanted = [NewTopic("t", 6, 3)]
    made = create_topics(image, wanted, TopicDefaults(), numbered_ids())
    image = image.apply(made.records)
    grown = create_partitions(image, [MorePartitions("t", 12)])
    image = image.apply(grown.records)
    partitions = image.topics["t"].partitions
    assert len(partitions) == 12
    for state in partitions:
        assert {racks[node] for node in state.replicas} == {"a", "b", "c"}
    assert set(Counter(state.leader for state in partitions).values()) == {2}
    assert set(Counter(n for state in partitions for n in state.replicas).values()) == {6}
