"""`ottla reassign plan`: only replicas on retired brokers move, and racks stay balanced."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ottla.client.errors import ClientError, Refused
from ottla.tools.admin.offsets import Place
from ottla.tools.admin.partitions import Moving
from ottla.tools.admin.retirement import moved_off
from ottla.tools.admin.topics import Partition
from ottla.tools.cli.reassign import refuse, wanted_replicas
from tests.tools.cli.ottla_command import Ottla

NO_RACKS = dict.fromkeys((1, 2, 3, 4))


def of(*assigned: list[int]) -> dict[Place, list[int]]:
    return {("t", index): replicas for index, replicas in enumerate(assigned)}


def test_only_what_is_on_the_broker_moves_and_the_others_keep_their_places() -> None:
    assigned = of([1, 2, 3], [4, 1, 2], [2, 4, 3], [1, 3, 2])
    assert moved_off(assigned, NO_RACKS, {4}) == {
        ("t", 1): [3, 1, 2], ("t", 2): [2, 1, 3],
    }
    assert moved_off(assigned, NO_RACKS, {9}) == {}


def test_a_broker_that_is_gone_is_retired_as_well() -> None:
    assert moved_off(of([4, 1]), {1: None, 2: None}, {4}) == {("t", 0): [2, 1]}


def test_the_broker_with_the_fewest_takes_and_preferred_leaders_are_spread() -> None:
    assigned = of([1], [1], [2], [3], [4], [4], [4])
    assert moved_off(assigned, NO_RACKS, {4}) == {("t", 4): [2], ("t", 5): [3], ("t", 6): [1]}
    assigned = of([1, 4], [1, 4], [2, 1])
    assert moved_off(assigned, NO_RACKS, {4}) == {("t", 0): [1, 3], ("t", 1): [1, 2]}


def test_a_rack_that_has_no_replica_comes_before_a_broker_that_has_few() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    assert moved_off(of([1, 4], [1, 3], [2, 3]), racks, {4}) == {("t", 0): [1, 3]}
    # There are fewer racks than replicas, so a rack gets two; no replica is given up.
    assert moved_off(of([1, 3, 4]), racks, {4}) == {("t", 0): [1, 3, 2]}


def test_several_brokers_leave_at_once() -> None:
    assert moved_off(of([3, 4], [1, 3]), NO_RACKS, {3, 4}) == {("t", 0): [2, 1], ("t", 1): [1, 2]}


def test_more_replicas_than_brokers_that_stay_are_refused() -> None:
    with pytest.raises(ClientError, match=r"t:0 has 3 replicas, too many for .*: 1,2$"):
        moved_off(of([1, 2, 3]), dict.fromkeys((1, 2, 3)), {3})
    with pytest.raises(ClientError, match=r"t:0 has 1 replica, too many for .*: none$"):
        moved_off(of([1]), {1: None}, {1})


def test_a_partition_that_is_being_moved_is_planned_from_where_it_goes() -> None:
    part = Partition(0, 1, 0, [2, 3, 1, 4], [1, 4])
    assert wanted_replicas(part, Moving([2, 3, 1, 4], [2, 3], [1, 4])) == [2, 3]
    assert wanted_replicas(part, None) == [2, 3, 1, 4]


BROKERS = st.dictionaries(
    st.integers(0, 20), st.sampled_from(["a", "b", "c", None]), min_size=2, max_size=8
)


@given(BROKERS, st.data())
def test_any_plan_moves_as_little_as_possible_and_keeps_the_racks_apart(
    racks: dict[int, str | None], data: st.DataObject
) -> None:
    leaving = data.draw(st.sets(st.sampled_from(sorted(racks)), min_size=1))
    most = len(racks) - len(leaving)
    assume(most)
    replicas = st.lists(st.sampled_from(sorted(racks)), min_size=1, max_size=most, unique=True)
    assigned = of(*data.draw(st.lists(replicas, max_size=12)))
    plan = moved_off(assigned, racks, leaving)
    assert plan.keys() == {place for place, nodes in assigned.items() if leaving & {*nodes}}
    for place, after in plan.items():
        before = assigned[place]
        assert len(after) == len({*after}) == len(before) and not leaving & {*after}
        assert [a for a, b in zip(after, before, strict=True) if b not in leaving] == [
            b for b in before if b not in leaving
        ]
        # A new replica's rack has at most one replica more than any rack that still has room.
        used = Counter(racks[node] for node in after)
        new = [node for node in after if node not in before]
        room = {racks[node] for node in racks.keys() - leaving - {*after}}
        assert all(used[racks[node]] - 1 <= used[rack] for node in new for rack in room)


def test_a_broker_that_nobody_has_heard_of_is_a_mistake_and_none_is_too(ottla: Ottla) -> None:
    ottla("topic create orders")
    done = ottla("reassign plan --without 9")
    assert done.status == 1 and not done.out and "broker 9 is not running" in done.err, done
    done = ottla("reassign plan")
    assert done.status == 2 and "--without is required" in done.err, done
    done = ottla("reassign plan nobody --without 0")
    assert done.status == 1 and "topic 'nobody'" in done.err, done
    done = ottla("reassign plan --without 0")
    assert done.status == 1 and "too many for the remaining brokers: none" in done.err, done


def test_what_was_refused_is_said_and_that_the_rest_was_not() -> None:
    with pytest.raises(Refused, match="t:0"):
        refuse({("t", 0): (39, "no")})
    refuse({("t", 0): (0, None)})
    results: dict[Place, tuple[int, str | None]] = {("t", n): (39, f"no {n}") for n in range(7)}
    with pytest.raises(ClientError) as said:
        refuse({**results, ("u", 0): (0, None)})
    assert str(said.value) == (
        "the change was refused for 7 of 8 partitions (and accepted for the others): t:0: no 0;"
        " t:1: no 1; t:2: no 2; t:3: no 3; t:4: no 4; and 2 others"
    )
