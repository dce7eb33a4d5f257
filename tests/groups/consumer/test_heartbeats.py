"""What a ConsumerGroupHeartbeat changes, records and returns, and which timeouts members have."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.groups.consumer.draft import preferred_assignor, subscription_changed
from ottla.groups.consumer.group import LEFT_FOR_NOW
from ottla.groups.consumer.heartbeat import LEAVE, Heartbeat
from ottla.groups.errors import (
    FencedInstance,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    UnknownMember,
    UnreleasedInstance,
)
from ottla.groups.records import (
    ConsumerGroupKey,
    ConsumerMemberKey,
    ConsumerMemberValue,
    CurrentMemberKey,
    MemberState,
    RegularExpressionKey,
    TargetEpochKey,
    TargetMemberKey,
    TopicPartition,
)
from ottla.groups.result import RETRY_MS
from tests.groups.bench import Workbench

SESSION_MS, EXPIRY_MS = 45_000, 600_000
T = b"t".ljust(16, b".")


def parts(*indexes: int) -> frozenset[TopicPartition]:
    """Partitions of topic t."""
    return frozenset((T, index) for index in indexes)


class Party:
    """A KIP-848 group whose members send the fields that a test gives; those that join send
    defaults for the other fields."""

    def __init__(self, partitions: int = 2, **settings: Any) -> None:
        self.bench = Workbench(offsets_topic_num_partitions=1, **settings)
        self.bench.cluster.make("t", partitions)

    def beat(self, name: str, epoch: int = 0, **changes: Any) -> Any:
        joins: dict[str, Any] = {
            "rebalance_timeout_ms": 60_000, "topics": frozenset("t"), "owned": frozenset(),
        }
        fields = {"client_id": "c", "client_host": "/h", **(joins if epoch == 0 else {}), **changes}
        request = Heartbeat("g", name, epoch, **fields)
        self.bench.records.clear()
        return self.bench.ask(lambda s, r: s.beat(request, r))

    def fast(self, name: str, epoch: int, **changes: Any) -> int | None:
        request, now_ms = Heartbeat("g", name, epoch, **changes), self.bench.runtime.tick_ms()
        return self.bench.shard().keep_alive("g", request, ("c", "/h"), now_ms)

    @property
    def kinds(self) -> list[type]:
        """The key types of the records of the last heartbeat."""
        return [type(record.key) for record in self.bench.records]

    @property
    def next_ms(self) -> int | None:
        return self.bench.runtime.next_timer_ms()


def pair() -> Party:
    """A group with the members `a` and `b`, both at epoch 3 with one partition."""
    party = Party()
    party.beat("a")
    party.beat("b")
    assert party.beat("a", 2, owned=parts(0, 1)).assignment == parts(0)
    assert party.beat("a", 2, owned=parts(0)).member_epoch == 3
    assert party.beat("b", 3).assignment == parts(1)
    return party


def test_a_first_member_is_recorded_with_its_group_its_target_and_what_it_owns() -> None:
    party = Party()
    reply = party.beat("a")
    assert (reply.member_id, reply.member_epoch, reply.interval_ms, reply.assignment) == (
        "a", 2, 5_000, parts(0, 1))
    assert party.kinds == [
        ConsumerMemberKey, ConsumerGroupKey, TargetMemberKey, TargetEpochKey, CurrentMemberKey]
    group = party.bench.consumers()
    assert (group.epoch, group.target_epoch, group.target_ms) == (2, 2, party.bench.clock.now_ms())
    assert group.targets == {"a": parts(0, 1)} and group.owners == dict.fromkeys(parts(0, 1), "a")
    assert party.next_ms == SESSION_MS


def test_a_heartbeat_without_news_records_nothing_and_says_all_if_it_is_full() -> None:
    party = pair()
    reply = party.beat("a", 3)
    assert (reply.member_epoch, reply.assignment, party.kinds) == (3, None, [])
    full = {"rebalance_timeout_ms": 60_000, "topics": frozenset("t"), "owned": parts(0)}
    assert (party.beat("a", 3, **full).assignment, party.kinds) == (parts(0), [])
    assert (party.beat("a", 3, owned=parts(0)).assignment, party.kinds) == (None, [])
    reply = party.beat("a", 3, **{**full, "rebalance_timeout_ms": 7_000})
    assert (reply.assignment, party.kinds) == (parts(0), [ConsumerMemberKey])
    assert party.bench.consumers().members["a"].value.rebalance_timeout_ms == 7_000


def test_a_session_lasts_from_the_last_heartbeat_whatever_kind_it_was() -> None:
    party = Party()
    party.beat("a")
    for step in (
        lambda: party.beat("a", 2), lambda: party.fast("a", 2),
        lambda: party.beat("a", 2, rebalance_timeout_ms=7_000),
        lambda: party.beat("a", 2, owned=parts(0, 1)), lambda: party.beat("a"),
    ):
        party.bench.wait(SESSION_MS - 1)
        assert step()
    party.bench.wait(SESSION_MS - 1)
    assert "a" in party.bench.consumers().members
    party.bench.wait(1)
    assert not party.bench.consumers().members


@pytest.mark.parametrize(("changes", "epoch", "recorded"), [
    ({}, 3, False), ({"client_id": "d"}, 3, True), ({"client_host": "/i"}, 3, True),
    ({"rebalance_timeout_ms": 5}, 3, True), ({"rebalance_timeout_ms": 60_000}, 3, False),
    ({"topics": frozenset("t")}, 3, False), ({"topics": frozenset("tu")}, 4, True),
    ({"assignor": "range"}, 4, True), ({"rack_id": "r"}, 4, True), ({"pattern": ""}, 3, False),
    ({"pattern": "t"}, 4, True),
])
def test_a_changed_description_is_recorded_and_a_changed_subscription_assigns_anew(
    changes: dict[str, Any], epoch: int, recorded: bool
) -> None:
    party = pair()
    party.beat("a", 3, **changes)
    assert (ConsumerMemberKey in party.kinds) is recorded
    assert party.bench.consumers().epoch == party.bench.consumers().target_epoch == epoch
    value = party.bench.consumers().members["a"].value
    for name, told in changes.items():
        assert getattr(value, name) == (told or None)
    party.beat("a", party.bench.consumers().members["a"].epoch)
    again = party.bench.consumers().members["a"].value
    assert (again.topics, again.rack_id, again.assignor, again.pattern) == (
        value.topics, value.rack_id, value.assignor, value.pattern), "None means unchanged"


def test_which_changes_of_a_description_need_a_new_assignment() -> None:
    before = ConsumerMemberValue("c", "/h", "i", "r", frozenset("t"), "p", 5, "range")
    for changes, changed in (
        ({}, False), ({"client_id": "d"}, False), ({"rebalance_timeout_ms": 6}, False),
        ({"topics": frozenset("u")}, True), ({"pattern": None}, True),
        ({"assignor": "uniform"}, True), ({"rack_id": "s"}, True),
    ):
        fields = {name: getattr(before, name) for name in before.__slots__} | changes
        assert subscription_changed(before, ConsumerMemberValue(**fields)) is changed


@pytest.mark.parametrize(("votes", "chosen"), [
    ([], "uniform"), ([None], "uniform"), (["range"], "range"), (["range", None, None], "range"),
    (["range", "uniform"], "range"), (["uniform", "range", "uniform"], "uniform"),
    (["gone"], "uniform"), (["gone", "gone", "range"], "range"),
])
def test_the_assignor_with_the_most_votes_assigns(votes: list[str | None], chosen: str) -> None:
    values = [ConsumerMemberValue("c", "/h", assignor=vote) for vote in votes]
    assert preferred_assignor(values, ("uniform", "range")) == chosen


@pytest.mark.parametrize(("epoch", "owned", "refused"), [
    (4, None, True), (3, None, False), (3, parts(0, 1), False), (2, None, True),
    (2, parts(0), False), (2, parts(), False), (2, parts(0, 1), True), (1, parts(0), True),
])
def test_an_older_epoch_counts_only_with_what_a_lost_reply_explains(
    epoch: int, owned: Any, refused: bool
) -> None:
    party = pair()
    assert isinstance(party.beat("a", epoch, owned=owned), FencedMemberEpoch) is refused


def test_a_full_group_takes_its_own_members_again() -> None:
    party = Party(group_consumer_max_size=2)
    party.beat("a")
    assert party.beat("b").member_epoch == 3
    assert isinstance(party.beat("c"), GroupMaxSizeReached)
    assert party.beat("b").member_epoch == 3
    party.beat("b", LEAVE)
    assert party.beat("c").member_epoch == 5


def test_who_leaves_is_forgotten_and_its_partitions_are_free_for_the_next_heartbeat() -> None:
    party = pair()
    assert party.beat("b", LEAVE).member_epoch == LEAVE
    assert party.kinds == [CurrentMemberKey, TargetMemberKey, ConsumerMemberKey, ConsumerGroupKey]
    group = party.bench.consumers()
    assert (group.epoch, group.target_epoch, [*group.members]) == (4, 3, ["a"])
    assert group.targets == {"a": parts(0)} and group.owners == {(T, 0): "a"}
    assert group.state_name == "Assigning"
    reply = party.beat("a", 3, owned=parts(0))
    assert (reply.member_epoch, reply.assignment) == (4, parts(0, 1))
    assert group.state_name == "Stable"
    party.beat("a", LEAVE)
    assert (group.epoch, group.target_epoch, group.state_name) == (5, 5, "Empty")
    party.bench.wait(RETRY_MS)
    assert party.next_ms == EXPIRY_MS, "nobody's timers are left"
    assert isinstance(party.beat("a", LEAVE), UnknownMember)


def test_who_has_to_give_up_partitions_has_its_rebalance_timeout_for_that() -> None:
    party = Party()
    party.beat("a", rebalance_timeout_ms=5_000)
    party.bench.wait(7_000)
    party.beat("b")
    assert party.beat("a", 2, owned=parts(0, 1)).assignment == parts(0)
    group = party.bench.consumers()
    assert group.members["a"].current.state == MemberState.UNREVOKED_PARTITIONS
    party.bench.wait(3_000)
    party.beat("a", 2, owned=parts(0, 1))
    party.bench.wait(1_999)
    assert "a" in group.members, "the time counts from the first request to give up"
    party.bench.wait(1)
    assert [*group.members] == ["b"] and group.owners == {}
    assert party.beat("b", 3).assignment == parts(0, 1)


def test_who_gave_up_its_partitions_in_time_stays() -> None:
    party = Party()
    party.beat("a", rebalance_timeout_ms=5_000)
    party.bench.wait(7_000)
    party.beat("b")
    party.beat("a", 2, owned=parts(0, 1))
    party.bench.wait(4_999)
    assert party.beat("a", 2, owned=parts(0)).member_epoch == 3
    party.bench.wait(10_000)
    assert [*party.bench.consumers().members] == ["a", "b"]


def test_the_rebalance_timeout_begins_anew_when_the_broker_starts() -> None:
    party = Party()
    party.beat("a", rebalance_timeout_ms=5_000)
    party.bench.wait(7_000)
    party.beat("b")
    party.beat("a", 2, owned=parts(0, 1))
    party.bench.wait(4_000)
    party.bench.crash()
    party.bench.wait(4_999)
    assert "a" in party.bench.consumers().members
    party.bench.wait(1)
    assert "a" not in party.bench.consumers().members
    party.bench.wait(SESSION_MS - 5_001)
    assert "b" in party.bench.consumers().members
    party.bench.wait(1)
    assert not party.bench.consumers().members


def test_a_static_member_is_known_by_its_instance() -> None:
    party = Party()
    party.beat("a", instance_id="i")
    assert isinstance(party.beat("b", instance_id="i"), UnreleasedInstance)
    assert party.beat("a", instance_id="i").member_epoch == 2, "its first reply was lost"
    assert isinstance(party.beat("b", 2, instance_id="i"), FencedInstance)
    assert isinstance(party.beat("b", LEAVE, instance_id="i"), FencedInstance)
    assert isinstance(party.beat("a", 2, instance_id="j"), UnknownMember)
    assert isinstance(party.beat("a", LEAVE, instance_id="j"), UnknownMember)
    assert party.beat("a", 2).member_epoch == 2 and party.fast("a", 2, instance_id="i") == 5_000
    party.beat("a", LEAVE)
    assert party.bench.consumers().static_members == {}
    assert party.beat("b", instance_id="i").member_epoch == 4


@pytest.mark.parametrize("successor", ["a", "b"])
def test_a_static_member_that_left_for_now_comes_back_to_its_partitions(successor: str) -> None:
    party = Party()
    party.beat("a", instance_id="i")
    assert party.beat("a", LEFT_FOR_NOW, instance_id="i").member_epoch == LEFT_FOR_NOW
    assert party.kinds == [CurrentMemberKey]
    group = party.bench.consumers()
    assert group.members["a"].epoch == LEFT_FOR_NOW and group.owners == dict.fromkeys(
        parts(0, 1), "a")
    reply = party.beat(successor, instance_id="i")
    assert (reply.member_epoch, reply.assignment) == (2, parts(0, 1))
    assert [*group.members] == [successor] and group.static_members == {"i": successor}
    assert group.owners == dict.fromkeys(parts(0, 1), successor)
    assert (group.epoch, group.state_name) == (2, "Stable"), "nothing was assigned anew"
    party.bench.wait(SESSION_MS - 1)
    assert group.members
    party.bench.wait(1)
    assert not group.members


def test_partitions_are_free_when_their_holder_is_gone() -> None:
    party = Party()
    party.beat("a")
    assert party.beat("b").assignment == frozenset()
    member = party.bench.consumers().members["b"]
    assert member.current.state == MemberState.UNRELEASED_PARTITIONS
    party.beat("a", LEAVE)
    assert party.beat("b", 3).assignment == parts(0, 1)


def test_new_partitions_are_assigned_at_the_next_heartbeat_and_other_topics_change_nothing() -> (
    None
):
    party = pair()
    party.bench.cluster.make("u", 3)
    assert party.fast("a", 3) is None, "the metadata has to be looked at"
    assert (party.beat("a", 3).member_epoch, party.kinds) == (3, [])
    assert party.fast("a", 3) == party.fast("b", 3) == 5_000
    party.bench.cluster.make("t", 4)
    reply = party.beat("a", 3)
    assert (reply.member_epoch, len(reply.assignment)) == (4, 2)
    assert ConsumerGroupKey in party.kinds and ConsumerMemberKey not in party.kinds
    assert party.bench.consumers().epoch == 4
    party.beat("a", 4)
    assert party.kinds == [] and party.fast("a", 4) == 5_000


def test_a_pattern_is_recorded_with_its_topics_and_forgotten_with_its_last_member() -> None:
    party = Party()
    party.bench.cluster.make("tu", 1)
    pattern: dict[str, Any] = {"topics": None, "pattern": "t.*"}
    assert len(party.beat("a", **pattern).assignment) == 3
    assert RegularExpressionKey in party.kinds
    group = party.bench.consumers()
    assert group.patterns["t.*"].topics == {"t", "tu"}
    party.beat("b", **pattern)
    assert RegularExpressionKey not in party.kinds, "it is known"
    party.bench.cluster.make("tv", 1)
    party.beat("b", 2)
    assert group.patterns["t.*"].topics == {"t", "tu", "tv"}
    party.bench.cluster.make("x", 1)
    party.beat("b", 3)
    assert RegularExpressionKey not in party.kinds, "its topics are the same"
    party.beat("a", LEAVE)
    party.beat("b", 3, pattern="t")
    assert [*group.patterns] == ["t"] and group.patterns["t"].topics == {"t"}
    assert group.subscribes_to("t") and not group.subscribes_to("tu")


def test_a_pattern_that_only_some_may_see_is_resolved_by_who_has_it() -> None:
    party = Party()
    party.bench.cluster.make("tu", 1)
    mine: dict[str, Any] = {"topics": None, "pattern": "t.*", "sees": "t".__eq__}
    assert party.beat("a", **mine).assignment == parts(0, 1)
    party.beat("a", 1, sees="t".__eq__)
    other: dict[str, Any] = {"topics": None, "pattern": "t.*", "sees": lambda name: True}
    party.beat("b", **other)
    assert party.bench.consumers().patterns["t.*"].topics == {"t"}, "it was resolved just now"
    party.bench.cluster.make("tv", 1)
    party.beat("b", 2, sees=lambda name: True)
    assert party.bench.consumers().patterns["t.*"].topics == {"t", "tu", "tv"}
    party.beat("c", sees=lambda name: True)
    assert party.bench.consumers().patterns["t.*"].topics == {"t", "tu", "tv"}
