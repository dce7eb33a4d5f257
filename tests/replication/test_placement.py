"""Where replicas are placed: leaders go round the brokers, and the replicas of a partition are on
different racks, as far as there are enough racks (KIP-36)."""

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
from ottla.replication.metadata import (
    NO_LEADER,
    BrokerImage,
    BrokerLeaving,
    BrokerRegistered,
    ConfigSet,
    Endpoint,
    MetadataImage,
    PartitionState,
)
from ottla.replication.placement import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    Rotation,
    cordoned,
    new_partition,
    require_assignment,
    spread,
    turn_of,
)
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
    """As in Apache Kafka, so that topics can be created during a rolling restart."""
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
    """A list of nodes that counts how often one of them is looked at."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:
        self.looks += 1
        return super().__getitem__(at)


def test_few_of_many_brokers_are_looked_at_for_a_partition() -> None:
    """Thousands of partitions of a topic are placed at once, while other requests wait."""
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


CORDON = "cordoned.log.dirs"


@pytest.mark.parametrize(("directories", "text", "closed"), [
    (("d1", "d2"), "*", True),
    ((), "*", True),
    (("d1", "d2"), "/a,/b", True),
    (("d1", "d2"), " /a , /b,", True),
    (("d1", "d2"), "/a,/b,/removed", True),
    (("d1", "d2"), "/a", False),
    (("d1", "d2"), "/a,,/a", False),
    (("d1", "d2"), "", False),
    ((), "/a", False),
])
def test_a_broker_is_closed_once_all_its_log_directories_are_cordoned(
    directories: tuple[str, ...], text: str, closed: bool
) -> None:
    broker = BrokerImage(1, 1, (), None, "i", directories)
    image = MetadataImage.empty("c").apply([
        BrokerRegistered(broker), BrokerRegistered(broker._replace(node_id=2)),
        ConfigSet("broker", "1", CORDON, text),
    ])
    assert cordoned(image) == ({1} if closed else set())


def test_a_closed_broker_gets_no_new_partition() -> None:
    image = registered({1: None, 2: None, 3: None}).apply([ConfigSet("broker", "2", CORDON, "*")])
    assert {node for each in spread(image, 6, 2, 0) for node in each.replicas} == {1, 3}
    assert spread(image, 2, 1, 0) != spread(image, 2, 1, 1), "leaders go round the others"
    with pytest.raises(InvalidReplicationFactor, match=r"only 2 .* directory that is not cordoned"):
        spread(image, 1, 3, 0)
    none = image.apply([ConfigSet("broker", node, CORDON, "*") for node in ("1", "3")])
    with pytest.raises(InvalidReplicationFactor, match="all their log directories cordoned"):
        spread(none, 1, 1, 0)
    with pytest.raises(InvalidReplicationFactor, match=r"only 0 broker\(s\) are registered\."):
        spread(MetadataImage.empty(), 1, 1, 0)


def test_all_partitions_of_a_single_broker_have_one_state() -> None:
    """So ten thousand equal states are written and read as fast as one."""
    first, *others = spread(registered({5: None}), 3, 1, 7)
    assert first == PartitionState(5, 0, (5,), (5,))
    assert len(others) == 2 and all(each is first for each in others)


@pytest.mark.parametrize(("replicas", "leader", "isr"), [
    ((1, 2, 3), 1, (1, 3)),
    ((2, 3), 3, (3,)),
    ((2,), 2, (2,)),
    ((9, 2), 2, (2,)),
    ((9, 3, 1), 3, (3, 1)),
    ((9,), NO_LEADER, ()),
])
def test_a_new_partition_is_led_by_a_broker_that_stays(
    replicas: tuple[int, ...], leader: int, isr: tuple[int, ...]
) -> None:
    """Broker 2 is shutting down, and broker 9 is away."""
    image = registered({1: None, 2: None, 3: None}).apply([BrokerLeaving(2)])
    assert new_partition(replicas, image) == PartitionState(leader, 0, replicas, isr)


@pytest.mark.parametrize(("replicas", "factor", "reason"), [
    ((), None, "empty replica list"),
    ((1, 9), None, "broker 9, but no such broker"),
    ((1, 3), None, "broker 3, but all its log directories are cordoned"),
    ((2, 1, 2), None, "the broker 2 more than once"),
    ((1,), 2, r"with 1 replica\(s\).*2 replica"),
    ((1, 2), 1, r"with 2 replica\(s\).*1 replica"),
])
def test_an_assignment_that_is_not_possible_is_refused(
    replicas: tuple[int, ...], factor: int | None, reason: str
) -> None:
    with pytest.raises(InvalidReplicaAssignment, match=reason):
        require_assignment(replicas, {1, 2, 3}, factor, {3})


def test_a_possible_assignment_is_accepted() -> None:
    require_assignment((2, 1), {1, 2, 3}, None, {3})
    require_assignment((2, 1), {1, 2, 3}, 2, {3})
    require_assignment((3,), {1, 2, 3}, 1)


def test_new_partitions_continue_where_their_broker_leads() -> None:
    image = registered({1: "a", 2: "a", 3: "b"})
    brokers = image.brokers
    assert [turn_of(brokers, node) for node in (1, 3, 2)] == [0, 1, 2]
    assert turn_of(brokers, 17) == 17
    for node in brokers:
        assert spread(image, 1, 2, turn_of(brokers, node))[0].leader == node
