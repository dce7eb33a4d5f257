"""A classic group's members, leader, votes and topics, apart from its requests."""

from __future__ import annotations

import pytest

from ottla.groups.classic.group import ClassicGroup, ClassicMember, ClassicState
from ottla.groups.classic.subscription import Subscription, write_subscription
from ottla.groups.errors import FencedInstance, UnknownMember


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
    old = group.replace_static("a", member("c", instance="i"))
    assert old.member_id == "a" and group.leader == "c" and group.static_members == {"i": "c"}
    assert list(group.members) == ["b", "c"]
    group.replace_static("b", member("d"))
    assert group.leader == "c" and group.static_members == {"i": "c"}
