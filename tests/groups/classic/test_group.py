"""A classic group's members, leader, votes and topics, apart from its requests."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.groups.classic.group import ClassicGroup, ClassicMember, ClassicState
from ottla.groups.classic.subscription import Subscription, write_subscription
from ottla.groups.errors import FencedInstance, UnknownMember
from ottla.groups.records import (
    ClassicMemberValue,
    CommittedOffset,
    GroupKey,
    GroupValue,
    Record,
)


def member(
    name: str, *protocols: str, instance: str | None = None, topics: str = ""
) -> ClassicMember:
    data = write_subscription(Subscription(tuple(topics)), 0)
    named = tuple((each, data) for each in protocols or ("range",))
    return ClassicMember(name, instance, "client", "/h", 60_000, 10_000, named)


def group_of(*members: ClassicMember) -> ClassicGroup:
    group = ClassicGroup("g")
    for each in members:
        group.add(each, "consumer")
    return group


def forming(*members: ClassicMember) -> ClassicGroup:
    group = group_of(*members)
    group.move(ClassicState.PREPARING, 5)
    return group


def test_the_first_member_leads_and_the_next_one_follows_it() -> None:
    group = group_of(member("a"), member("b", instance="i"), member("c"))
    assert (group.leader, group.protocol_type, list(group.members)) == (
        "a", "consumer", ["a", "b", "c"])
    group.pending_syncs = {"a", "b"}
    group.pending_joins = {"a", "x"}
    removed = group.remove("a")
    assert removed is not None and removed.member_id == "a"
    assert (group.leader, group.pending_syncs, group.pending_joins) == ("b", {"b"}, {"x"})
    assert group.remove("none") is None and group.leader == "b"
    group.remove("b")
    assert group.static_members == {} and group.leader == "c"
    group.remove("c")
    assert group.leader is None
    group.add(member("d"), "connect")
    assert (group.leader, group.protocol_type) == ("d", "connect")


def test_a_member_is_known_by_its_id_and_its_instance() -> None:
    group = group_of(member("a"), member("b", instance="i"))
    assert group.check_member("a", None).member_id == "a"
    assert group.check_member("b", "i").member_id == group.check_member("b", None).member_id == "b"
    for name, instance in (("x", None), ("", None), ("a", "j"), ("b", "j")):
        with pytest.raises(UnknownMember):
            group.check_member(name, instance)
    with pytest.raises(FencedInstance):
        group.check_member("a", "i")


def test_protocols_are_those_of_all_members() -> None:
    group = group_of(member("a", "x", "y"), member("b", "y", "x"), member("c", "y", "z"))
    assert group.common_protocols() == {"y"}
    group.add(member("d", "y"), "consumer")
    assert group.common_protocols() == {"y"}
    group.remove("c")
    group.remove("d")
    assert group.common_protocols() == {"x", "y"} and group.choose_protocol() == "x"
    group.add(member("e", "y", "x"), "consumer")
    assert group.choose_protocol() == "y", "two votes of three"
    assert group.choose_protocol_of([member("p", "x"), member("q", "y")]) is None
    assert group.choose_protocol_of([member("p", "x", "y"), member("q", "y", "z")]) == "y"
    group.members["a"].protocols = member("a", "y").protocols
    assert group.common_protocols() == {"x", "y"}
    group.protocols_changed()
    assert group.common_protocols() == {"y"}
    assert ClassicGroup("g").common_protocols() == set()


def test_who_may_join_has_a_protocol_that_all_have() -> None:
    group = ClassicGroup("g")
    assert group.supports("consumer", [("x", b"")])
    assert not group.supports("", [("x", b"")]) and not group.supports("consumer", [])
    group = forming(member("a", "x", "y"), member("b", "y"))
    assert group.supports("consumer", [("y", b""), ("z", b"")])
    assert not group.supports("consumer", [("x", b"")])
    assert not group.supports("connect", [("y", b"")])


def test_a_generation_begins_with_those_that_have_joined() -> None:
    group = forming(member("a", topics="t"), member("b", topics="tu"))
    group.pending_joins = {"x"}
    assert not group.all_have_joined
    for each in group.members.values():
        each.awaits_join = print
    assert not group.all_have_joined
    group.pending_joins.clear()
    assert group.all_have_joined
    group.pending_syncs = {"a"}
    group.next_generation(7)
    assert (group.generation, group.protocol, group.state, group.state_ms) == (
        1, "range", ClassicState.COMPLETING, 7)
    assert group.pending_syncs == set() and group.subscribed_topics == {"t", "u"}
    assert group.rebalance_timeout_ms == 60_000 and ClassicGroup("g").rebalance_timeout_ms == 0


def test_a_leader_that_has_not_joined_is_replaced_by_one_that_has() -> None:
    group = forming(member("a"), member("b"), member("c"))
    assert not group.elect_joined_leader() and group.leader == "a"
    group.members["b"].awaits_join = group.members["c"].awaits_join = print
    assert group.elect_joined_leader() and group.leader == "b"
    group.members["a"].awaits_join = print
    assert group.elect_joined_leader() and group.leader == "b", "it has joined"


def test_a_group_reads_the_topics_of_its_consumers() -> None:
    group = ClassicGroup("g")
    assert group.subscribed_topics is None and not group.subscribes_to("t")
    group = forming(member("a", topics="t"))
    group.next_generation(1)
    assert group.subscribes_to("t") and not group.subscribes_to("u") and group.tells_topics
    other = forming(member("a"))
    other.members["a"].protocols = (("range", b"else"),)
    other.next_generation(1)
    assert other.subscribed_topics is None and other.subscribes_to("any")
    connect = ClassicGroup("g")
    connect.add(member("a", topics="t"), "connect")
    assert not connect.tells_topics and not connect.subscribes_to("t")


def test_a_group_is_unused_if_nobody_is_in_it_nor_about_to_join() -> None:
    group = ClassicGroup("g")
    assert group.is_empty and group.is_unused and group.state_name == "Empty"
    group.pending_joins = {"x"}
    assert group.is_empty and not group.is_unused
    assert not forming(member("a")).is_empty


def test_the_record_of_an_empty_group_is_of_the_next_generation() -> None:
    group = ClassicGroup("g", generation=4, protocol_type="consumer")
    value = group.emptied(9)
    assert (value.generation, value.state_ms, value.members, value.leader) == (5, 9, (), None)


def test_a_static_member_is_replaced_by_its_next_incarnation() -> None:
    group = group_of(member("a", instance="i"), member("b"))
    group.generation, group.protocol = 3, "range"
    value = group.with_successor("a", member("c", instance="i"), 9)
    assert (value.generation, value.leader) == (3, "c")
    assert [each.member_id for each in value.members] == ["b", "c"]
    assert group.with_successor("b", member("d"), 9).leader == "a"
    assert group.common_protocols() == {"range"}
    old = group.replace_static("a", member("c", "range", "sticky", instance="i"))
    assert old.member_id == "a" and group.leader == "c" and group.static_members == {"i": "c"}
    assert list(group.members) == ["b", "c"]
    group.replace_static("b", member("d", "sticky"))
    assert group.common_protocols() == {"sticky"}
    assert group.leader == "c" and group.static_members == {"i": "c"}


def stored(*members: ClassicMemberValue, leader: str | None = "a", **changes: Any) -> GroupValue:
    fields = {"protocol_type": "consumer", "generation": 3, "protocol": "range", "state_ms": 8}
    return GroupValue(**{**fields, **changes}, leader=leader, members=members)


def of_member(name: str, rebalance_ms: int = 60_000, instance: str | None = None) -> Any:
    return ClassicMemberValue(
        name, instance, "client", "/h", rebalance_ms, 10_000, b"data", b"owns")


def test_a_group_that_is_read_is_stable_with_the_members_of_its_record() -> None:
    group = ClassicGroup("g", must_rejoin=True)
    group.replay(stored(of_member("a"), of_member("b", -1, "i")), aloud=False)
    assert (group.state, group.state_ms, group.generation, group.protocol, group.leader) == (
        ClassicState.STABLE, 8, 3, "range", "a")
    assert not group.must_rejoin and group.static_members == {"i": "b"}
    assert [each.assignment for each in group.members.values()] == [b"owns"] * 2
    assert group.members["a"].protocols == (("range", b"data"),)
    assert group.members["a"].rebalance_timeout_ms == 60_000
    assert group.members["b"].rebalance_timeout_ms == 10_000, "as long as its session"
    kept = group.members["a"]
    group.replay(stored(of_member("a")), aloud=False)
    assert group.members == {"a": kept} and group.static_members == {}
    group.replay(stored(of_member("a", 5)), aloud=False)
    assert group.members["a"] is not kept and group.members["a"].rebalance_timeout_ms == 5
    group.replay(stored(leader=None, protocol_type="", protocol=None, generation=4))
    assert (group.state, group.protocol_type, group.generation) == (ClassicState.EMPTY, None, 4)


def test_what_a_group_reads_is_looked_up_again_after_each_record() -> None:
    group = forming(member("a", topics="t"))
    group.next_generation(1)
    assert group.subscribes_to("t") and group.common_protocols() == {"range"}
    data = write_subscription(Subscription(("u",)), 0)
    group.replay(stored(ClassicMemberValue("a", None, "client", "/h", 5, 5, data, b""),
                        protocol="sticky"))
    assert group.subscribes_to("u") and not group.subscribes_to("t")
    assert group.common_protocols() == {"sticky"}
    group.replay(stored(leader=None))
    assert group.subscribed_topics == frozenset()


@pytest.mark.parametrize(("fields", "base_ms"), [
    ({"protocol_type": None}, 7), ({"state_ms": 9}, 9), ({"state_ms": 0}, 0), ({"state_ms": -1}, 7),
    ({"state": ClassicState.STABLE, "protocol": "range"}, 7),
    ({"state": ClassicState.PREPARING, "protocol": "range"}, None),
    ({"state": ClassicState.STABLE, "protocol": None}, None),
    ({"state": ClassicState.STABLE, "protocol": "range", "protocol_type": "connect"}, None),
])
def test_offsets_expire_after_the_last_use_of_their_group(
    fields: dict[str, Any], base_ms: int | None
) -> None:
    group = group_of(member("a", topics="t"))
    for name, value in {"protocol_type": "consumer", **fields}.items():
        setattr(group, name, value)
    assert group.expiry_base_ms(CommittedOffset(1, commit_ms=7)) == base_ms


def test_a_member_that_is_kept_has_all_protocols_of_its_join() -> None:
    group = ClassicGroup("g")
    group.replay(stored(of_member("a")), aloud=False)
    assert group.common_protocols() == {"range"}
    joined = member("a", "range", "sticky")
    group.keep(joined)
    assert group.members["a"] is joined and group.common_protocols() == {"range", "sticky"}


def test_the_record_of_a_generation_has_each_member_with_its_assignment() -> None:
    group = forming(member("a", "x", "y", topics="t"), member("b", "y", instance="i"))
    group.next_generation(5)
    value = group.value(9, {"b": b"all"})
    assert (value.generation, value.protocol, value.leader, value.state_ms) == (1, "y", "a", 9)
    a, b = value.members
    assert (a.assignment, b.assignment, b.instance_id) == (b"", b"all", "i")
    assert (b.rebalance_timeout_ms, b.session_timeout_ms) == (60_000, 10_000)
    assert a.subscription == group.members["a"].metadata("y") != b""
    assert group.members["a"].metadata("z") == b""
    assert group.tombstones() == [Record(GroupKey("g"), None)]
    assert group.summary == "CompletingRebalance, 2 members"


def test_pending_answers_are_taken_once() -> None:
    group = group_of(member("a"), member("b"))
    group.members["a"].awaits_join, group.members["b"].awaits_sync = print, repr
    assert group.take_answers() == [print, repr] and group.take_answers() == []
