"""The change from one generation of a classic group to the next: for which members the coordinator
waits, how long, and why."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.groups.classic.group import ClassicGroup, ClassicMember, ClassicState
from ottla.groups.classic.messages import Join, Joined, Leaving, NewMemberId, Sync, Synced
from ottla.groups.classic.rebalance import (
    JOIN,
    SESSION,
    SYNC,
    complete_if_joined,
    join_timer_fired,
)
from ottla.groups.classic.requests import ServedClassicGroup
from ottla.groups.errors import (
    FencedInstance,
    GroupMaxSizeReached,
    RebalanceInProgress,
    UnknownMember,
)
from ottla.groups.offset_requests import Commit, OffsetToCommit
from ottla.groups.records import GroupKey
from ottla.groups.result import RETRY_MS, Result, TimerKey
from ottla.groups.settings import GroupSettings
from ottla.wire.errors import ErrorCode, ProtocolError
from tests.groups.bench import Workbench

DELAY_MS = 3_000
BYTES = b"range's"


EXPIRY_MS = 600_000
"""The only timer of a shard without groups."""


class Table:
    """A group, and the answers that each of its members got."""

    def __init__(self, delay_ms: int = 0, **settings: Any) -> None:
        self.bench = Workbench(
            group_initial_rebalance_delay_ms=delay_ms, offsets_topic_num_partitions=1, **settings)
        self.answers: dict[str, list[Any]] = {}

    def ask(self, who: str, operation: Any) -> None:
        heard = self.answers.setdefault(who, [])
        try:
            self.bench.runtime.change("g", lambda s, r: operation(s, heard.append, r))
        except ProtocolError as error:
            heard.append(error)

    def join(self, who: str, member_id: str = "", **changes: Any) -> None:
        fields: dict[str, Any] = {
            "instance_id": None, "client_id": who, "client_host": "/h",
            "session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer", "protocols": (("range", BYTES),),
            "needs_member_id": False, **changes,
        }
        request = Join("g", member_id, **fields)
        self.ask(who, lambda s, a, r: s.join(request, a, r))

    def sync(self, who: str, generation: int, **assignments: str) -> None:
        member_id = self.last(who).member_id
        told = tuple((self.last(n).member_id, d.encode()) for n, d in assignments.items())
        request = Sync("g", generation, member_id, assignments=told)
        self.ask(f"{who}'s sync", lambda s, a, r: s.sync(request, a, r))

    def leave(self, *members: str, instance_id: str | None = None) -> Any:
        leaving = [Leaving(each, instance_id) for each in members]
        self.ask("leave", lambda s, a, r: r.reply(a, s.leave("g", leaving, r)))
        return self.last("leave")

    def last(self, who: str) -> Any:
        """The last answer to a member; None if there is none yet."""
        return self.answers[who][-1] if self.answers.get(who) else None

    def wait(self, ms: int) -> None:
        self.bench.wait(ms)

    @property
    def next_ms(self) -> int | None:
        """When the next timer is due."""
        return self.bench.runtime.next_timer_ms()

    @property
    def group(self) -> ClassicGroup:
        group = self.bench.shard().group_of(ServedClassicGroup, "g")
        assert group is not None
        return group


def stable(*names: str, **settings: Any) -> Table:
    """A stable group whose first member leads."""
    table = Table(**settings)
    for name in names:
        table.join(name)
    table.wait(0)
    for name in names[::-1]:
        table.sync(name, 1, **{each: f"of {each}" for each in names})
    return table


@pytest.mark.parametrize(("rebalance_ms", "joins_ms", "begins_ms"), [
    (60_000, (), 3_000), (2_000, (1_000,), 3_000), (3_000, (1_000,), 3_000),
    (3_001, (1_000,), 3_001), (5_000, (1_000,), 5_000), (9_000, (1_000,), 6_000),
    (9_000, (1_000, 4_000), 9_000), (7_000, (1_000, 4_000), 7_000),
    (7_000, (1_000, 4_000, 6_500), 7_000), (9_000, (1_000, 4_000, 6_500), 9_000),
    (12_000, (1_000, 7_000), 6_000),
])
def test_members_that_come_extend_the_initial_delay_up_to_the_rebalance_timeout(
    rebalance_ms: int, joins_ms: tuple[int, ...], begins_ms: int
) -> None:
    table, now_ms = Table(DELAY_MS), 0
    table.join("a", rebalance_timeout_ms=rebalance_ms)
    for at_ms in [each for each in joins_ms if each < begins_ms]:
        table.wait(at_ms - now_ms)
        table.join(f"at {at_ms}", rebalance_timeout_ms=rebalance_ms)
        now_ms = at_ms
    table.wait(begins_ms - 1 - now_ms)
    assert table.last("a") is None
    table.wait(1)
    assert table.last("a").generation == 1


def test_a_group_that_did_not_come_from_empty_has_no_initial_delay() -> None:
    group = ClassicGroup("g")
    group.add(ClassicMember("m", None, "c", "/h", 60_000, 10_000, (("range", b""),)), "consumer")
    group.move(ClassicState.PREPARING, 5)
    result = Result(7, 5)
    complete_if_joined(group, result)
    assert group.generation == 0, "the member has not joined"
    group.members["m"].awaits_join = print
    complete_if_joined(group, result)
    assert (group.generation, group.state) == (1, ClassicState.COMPLETING)
    complete_if_joined(group, result)
    assert group.generation == 1, "it does not wait for joins any more"


def test_an_initial_delay_in_which_nobody_joins_is_not_extended() -> None:
    group = ClassicGroup("g", came_from_empty=True, delay_left_ms=5)
    member = ClassicMember("m", None, "c", "/h", 60_000, 10_000, (("range", b""),))
    member.awaits_join = print
    group.add(member, "consumer")
    group.move(ClassicState.PREPARING, 5)
    join_timer_fired(group, Result(7, 5), GroupSettings())
    assert group.generation == 1


def test_a_new_rebalance_takes_the_assignments_that_were_not_confirmed() -> None:
    table = stable("a", "b")
    b = table.last("b").member_id
    table.join("a", table.last("a").member_id)
    table.join("b", b)
    assert table.group.state is ClassicState.COMPLETING
    assert {each.assignment for each in table.group.members.values()} == {b"of a", b"of b"}
    table.sync("b", 2)
    table.join("c")
    assert {each.assignment for each in table.group.members.values()} == {b""}
    assert isinstance(table.last("b's sync"), RebalanceInProgress)
    assert table.answers["b's sync"].count(table.last("b's sync")) == 1
    table.wait(9_999)
    assert b in table.group.members, "its session began anew with the refusal"


def test_the_members_of_a_generation_have_the_rebalance_timeout_to_ask_for_their_assignment() -> (
    None
):
    table = Table()
    for name in "ab":
        table.join(name, rebalance_timeout_ms=4_000)
    table.wait(0)
    a, b = (table.last(name).member_id for name in "ab")
    table.sync("a", 1, a="x", b="y")
    table.wait(3_999)
    assert list(table.group.members) == [a, b]
    table.wait(1)
    assert list(table.group.members) == [a]
    assert table.group.state is ClassicState.PREPARING
    table.join("a", a, rebalance_timeout_ms=4_000)
    assert table.last("a").generation == 2


def test_who_asked_for_its_assignment_is_not_removed_and_the_wait_ends_with_the_last() -> None:
    table = stable("a", "b", "c")
    table.wait(5_000)
    ids = [table.last(name).member_id for name in "abc"]
    for each in ids:
        assert table.bench.heartbeat("g", 1, each, None) is ErrorCode.NONE
    table.wait(9_999)
    assert list(table.group.members) == ids and table.group.state is ClassicState.STABLE


def test_in_a_full_group_only_those_that_have_joined_count_while_it_rebalances() -> None:
    table = stable("a", "b", group_max_size=2)
    a, b = (table.last(name).member_id for name in "ab")
    table.join("c")
    assert isinstance(table.last("c"), GroupMaxSizeReached)
    table.join("a", a, protocols=(("range", b"new"),))
    assert table.group.state is ClassicState.PREPARING
    table.join("d")
    assert table.last("d") is None, "there is room until b has joined"
    table.join("e")
    assert isinstance(table.last("e"), GroupMaxSizeReached)
    table.join("a", a)
    assert isinstance(table.last("a"), RebalanceInProgress), "the next one took over"
    table.join("b", b)
    assert isinstance(table.last("b"), GroupMaxSizeReached) and b not in table.group.members
    assert table.last("a").generation == table.last("d").generation == 2


def test_a_group_that_waited_only_for_a_member_without_room_goes_on() -> None:
    table = stable("a", "b", group_max_size=2)
    a, b = (table.last(name).member_id for name in "ab")
    table.join("a", a, protocols=(("range", b"new"),))
    table.join("d")
    assert table.last("d") is None, "b is awaited"
    table.join("b", b)
    assert isinstance(table.last("b"), GroupMaxSizeReached)
    assert table.last("a").generation == table.last("d").generation == 2, "not after 60 s"
    assert table.group.state is ClassicState.COMPLETING


def test_a_group_that_waited_only_for_a_new_client_without_room_goes_on() -> None:
    table = stable("a", "b", group_max_size=2)
    a, b = (table.last(name).member_id for name in "ab")
    table.join("a", a, protocols=(("range", b"new"),))
    table.join("c", needs_member_id=True)
    table.join("b", b)
    assert table.last("b").generation == 1, "c is awaited"
    table.join("c", table.last("c").member_id)
    assert isinstance(table.last("c"), GroupMaxSizeReached)
    assert table.last("a").generation == table.last("b").generation == 2


def test_a_member_of_a_full_group_may_join_again() -> None:
    table = stable("a", "b", group_max_size=2)
    b = table.last("b").member_id
    table.join("b", b)
    assert table.last("b").generation == 1 and not table.last("b").members
    table.join("b", b, protocols=(("range", b"new"),))
    assert table.group.state is ClassicState.PREPARING
    assert table.last("b").generation == 1, "it waits for the others"
    table.join("a", table.last("a").member_id)
    assert table.last("b").generation == 2


def test_an_empty_group_has_room() -> None:
    table = Table(group_max_size=1, delay_ms=DELAY_MS)
    table.join("a", needs_member_id=True)
    table.join("b", needs_member_id=True)
    assert all(isinstance(table.last(name), NewMemberId) for name in "ab")
    for name in "ab":
        table.join(name, table.last(name).member_id)
    assert isinstance(table.last("b"), GroupMaxSizeReached)


def test_a_leader_that_joins_a_stable_group_again_makes_it_rebalance() -> None:
    table = stable("a", "b")
    a, b = (table.last(name).member_id for name in "ab")
    table.join("a", a)
    assert table.group.state is ClassicState.PREPARING
    assert table.bench.heartbeat("g", 1, b, None) is ErrorCode.REBALANCE_IN_PROGRESS
    table.join("b", b)
    assert (table.last("a").generation, len(table.last("a").members)) == (2, 2)
    assert (table.last("b").generation, table.last("b").leader) == (2, a)
    table.join("b", b)
    assert table.last("b").generation == 2, "its first reply may have been lost"
    table.join("a", a)
    assert (table.last("a").generation, len(table.last("a").members)) == (2, 2)
    table.join("b", b, protocols=(("range", b"other"),))
    assert table.group.state is ClassicState.PREPARING, "it is not the same request"


def test_a_member_that_joins_again_brings_its_timeouts_and_protocols() -> None:
    table = stable("a")
    a = table.last("a").member_id
    table.join("a", a, session_timeout_ms=20_000, rebalance_timeout_ms=7_000,
               protocols=(("sticky", b"s"), ("range", b"r")))
    member = table.group.members[a]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (20_000, 7_000)
    assert table.last("a").protocol == "sticky"
    assert table.last("a").members[0].metadata == b"s"
    table.sync("a", 2, a="x")
    table.wait(19_999)
    assert a in table.group.members
    table.wait(1)
    assert a not in table.group.members


def test_a_static_member_that_restarts_fences_the_requests_of_its_former_self() -> None:
    table = Table()
    table.join("a", instance_id="one")
    table.join("b", instance_id="two")
    table.wait(0)
    old = table.last("b").member_id
    table.sync("b", 1)
    table.join("b again", instance_id="two")
    assert isinstance(table.last("b's sync"), FencedInstance)
    assert old not in table.group.members and table.group.state is ClassicState.PREPARING
    table.join("b once more", instance_id="two")
    assert isinstance(table.last("b again"), FencedInstance)
    assert table.group.members[table.group.last_joined].deadline_ms == 10_000
    table.join("a", table.last("a").member_id, instance_id="one")
    assert table.last("a").generation == table.last("b once more").generation == 2
    table.sync("a", 2, a="x")
    table.wait(9_999)
    assert len(table.group.members) == 2
    table.wait(1)
    assert not table.group.members, "each has its own session"


def test_static_members_that_have_not_joined_are_kept_until_their_sessions_end() -> None:
    table = Table()
    for name in "ab":
        table.join(name, instance_id=name, rebalance_timeout_ms=2_000)
    table.wait(0)
    table.sync("a", 1, a="x", b="y")
    table.sync("b", 1)
    table.join("c", rebalance_timeout_ms=2_000)
    a = table.last("a").member_id
    table.leave(table.group.last_joined)
    assert isinstance(table.last("c"), UnknownMember)
    table.wait(5_000)
    assert table.group.generation == 1 and a in table.group.members
    assert table.group.state is ClassicState.PREPARING, "nobody has joined who could lead"
    table.join("b", table.last("b").member_id, instance_id="b", rebalance_timeout_ms=2_000)
    table.wait(2_000)
    assert (table.last("b").generation, table.last("b").leader) == (2, table.last("b").member_id)
    assert a in table.group.members


def test_a_member_without_an_answer_to_its_first_join_is_removed_and_told() -> None:
    table = stable("a", group_new_member_join_timeout_ms=3_000)
    table.join("b")
    table.wait(2_999)
    assert table.last("b") is None
    table.wait(1)
    assert isinstance(table.last("b"), UnknownMember)
    assert len(table.answers["b"]) == 1 and len(table.group.members) == 1


def test_a_member_that_waits_for_the_others_is_not_silent() -> None:
    table = stable("a", "b")
    a, b = (table.last(name).member_id for name in "ab")
    table.join("a", a, session_timeout_ms=6_000)
    table.wait(6_000)
    assert table.bench.heartbeat("g", 1, b, None) is ErrorCode.REBALANCE_IN_PROGRESS
    table.wait(4_001)
    assert {*table.group.members} == {a, b}
    table.join("b", b)
    assert table.last("a").generation == 2
    table.sync("b", 2)
    table.wait(9_999)
    assert b in table.group.members and a not in table.group.members


def test_a_client_that_got_an_id_is_awaited_until_its_session_ends_or_it_leaves() -> None:
    table = stable("a")
    a = table.last("a").member_id
    table.join("b", needs_member_id=True)
    table.join("c", needs_member_id=True, session_timeout_ms=7_000)
    table.join("a", a)
    assert table.last("a").generation == 1
    assert table.leave(table.last("b").member_id) == [ErrorCode.NONE]
    table.wait(6_999)
    assert table.last("a").generation == 1
    table.wait(1)
    assert table.last("a").generation == 2
    table.join("c", table.last("c").member_id)
    assert isinstance(table.last("c"), UnknownMember)


def test_the_last_awaited_client_that_leaves_lets_the_others_begin() -> None:
    table = stable("a")
    table.join("b", needs_member_id=True)
    table.join("a", table.last("a").member_id)
    assert table.leave("x", table.last("b").member_id) == [
        ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert table.last("a").generation == 2


def test_a_leave_of_somebody_else_changes_nothing() -> None:
    table = stable("a")
    assert table.leave("x") == table.leave("", instance_id="i") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert table.leave("") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert table.group.state is ClassicState.STABLE
    assert table.leave(table.last("a").member_id) == [ErrorCode.NONE]
    assert not table.group.members and table.group.generation == 2


def test_a_later_sync_takes_the_place_of_an_earlier_one() -> None:
    table = Table()
    for name in "ab":
        table.join(name)
    table.wait(0)
    for _ in range(2):
        table.sync("b", 1)
    assert [type(each) for each in table.answers["b's sync"]] == [RebalanceInProgress]
    table.sync("a", 1, a="x", b="y")
    assert table.last("b's sync") == Synced("consumer", "range", b"y")
    assert table.last("a's sync") == Synced("consumer", "range", b"x")
    assert len(table.answers["b's sync"]) == 2


def test_a_group_that_moves_away_answers_each_of_those_that_wait() -> None:
    table = Table()
    for name in "ab":
        table.join(name)
    table.wait(0)
    table.sync("b", 1)
    table.join("c")
    assert len(table.bench.shard().waiting()) == 1 and table.bench.shard().waiting() == []
    table = Table()
    table.join("a")
    table.join("b")
    table.bench.runtime.unload(table.bench.partition())
    assert [table.last(name).code for name in "ab"] == [ErrorCode.NOT_COORDINATOR] * 2


def test_who_is_gone_leaves_no_timer_behind() -> None:
    table = stable("a", "b")
    for name in "ba":
        table.leave(table.last(name).member_id)
    table.wait(RETRY_MS)
    assert table.next_ms == EXPIRY_MS
    table.join("c", needs_member_id=True)
    table.leave(table.last("c").member_id)
    assert table.next_ms == EXPIRY_MS


def test_who_was_late_or_never_synced_leaves_no_timer_behind() -> None:
    table, times = Table(), {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 2_000}
    for name in "ab":
        table.join(name, **times)
    table.wait(0)
    table.sync("a", 1, a="x", b="y")
    table.sync("b", 1)
    table.join("c", **times)
    table.wait(2_000)
    assert list(table.group.members) == [table.last("c").member_id]
    assert table.next_ms == 4_000, "the end of the wait for syncs"
    table.wait(2_000 + RETRY_MS)
    assert not table.group.members and table.next_ms == EXPIRY_MS


def test_a_static_member_that_was_replaced_leaves_no_timer_behind() -> None:
    table = Table()
    table.join("a", instance_id="one", session_timeout_ms=30_000)
    table.wait(0)
    table.join("again", instance_id="one", session_timeout_ms=30_000)
    assert table.last("again").generation == 2
    table.leave("", instance_id="one")
    table.wait(RETRY_MS)
    assert table.next_ms == EXPIRY_MS


def test_each_wait_of_a_generation_ends_the_one_before_it() -> None:
    table, times = Table(), {"rebalance_timeout_ms": 3_000}
    table.join("a", **times)
    table.wait(0)
    assert table.next_ms == 3_000, "for syncs"
    table.wait(1_000)
    table.join("b", **times)
    assert table.next_ms == 4_000, "for joins"
    table.wait(1_000)
    table.join("a", table.last("a").member_id, **times)
    assert table.next_ms == 5_000, "for syncs"
    table.wait(500)
    table.sync("b", 2)
    assert table.next_ms == 5_000
    table.sync("a", 2)
    assert table.next_ms == 2_500 + RETRY_MS, "for members that join after a refused assignment"
    table.wait(RETRY_MS)
    assert table.next_ms == 12_500, "the sessions, which begin anew with the assignment"


def test_a_wait_that_is_over_does_nothing_when_its_time_comes() -> None:
    table = stable("a")
    for kind in (JOIN, SYNC):
        table.bench.runtime.turn(
            "g", lambda s, r, kind=kind: s.fire(TimerKey(kind, "g"), r)
        )
    assert table.group.state is ClassicState.STABLE and table.group.generation == 1
    table.bench.runtime.turn("g", lambda s, r: s.fire(TimerKey(SESSION, "g", "nobody"), r))
    assert len(table.group.members) == 1


@pytest.mark.parametrize(("who", "generation", "code"), [
    ("", -1, ErrorCode.NONE), ("x", -1, ErrorCode.NONE), ("", 0, ErrorCode.UNKNOWN_MEMBER_ID),
    ("x", 0, ErrorCode.UNKNOWN_MEMBER_ID), ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
])
def test_who_may_commit_to_a_group_without_members(
    who: str, generation: int, code: ErrorCode
) -> None:
    table = stable("a")
    table.leave(table.last("a").member_id)
    request = Commit("g", [OffsetToCommit("t", 0, 5, -1, "")], who, None, generation)
    table.ask("commit", lambda s, a, r: r.reply(a, s.commit(request, r)))
    told = table.last("commit")
    assert (told.code if isinstance(told, ProtocolError) else told[0]) is code


@pytest.mark.parametrize(("who", "generation", "transactional", "code"), [
    ("", -1, False, ErrorCode.UNKNOWN_MEMBER_ID), ("", -1, True, ErrorCode.NONE),
    ("a", 1, False, ErrorCode.NONE), ("a", 1, True, ErrorCode.NONE),
    ("a", 0, False, ErrorCode.ILLEGAL_GENERATION), ("a", 0, True, ErrorCode.ILLEGAL_GENERATION),
    ("a", -1, False, ErrorCode.ILLEGAL_GENERATION), ("a", 2, False, ErrorCode.ILLEGAL_GENERATION),
    ("x", 1, False, ErrorCode.UNKNOWN_MEMBER_ID), ("x", -1, True, ErrorCode.UNKNOWN_MEMBER_ID),
    ("", 1, False, ErrorCode.UNKNOWN_MEMBER_ID),
])
def test_who_may_commit_to_a_group_with_members(
    who: str, generation: int, transactional: bool, code: ErrorCode
) -> None:
    table = stable("a")
    member_id = table.last("a").member_id if who == "a" else who
    offsets = [OffsetToCommit("t", 0, 5, -1, "")]
    request = Commit("g", offsets, member_id, None, generation, transactional=transactional)
    table.ask("commit", lambda s, a, r: r.reply(a, s.commit(request, r)))
    told = table.last("commit")
    assert (told.code if isinstance(told, ProtocolError) else told[0]) is code


@pytest.mark.parametrize("transactional", [False, True])
def test_a_commit_keeps_the_session_alive_unless_it_is_a_producers(transactional: bool) -> None:
    table = stable("a")
    a = table.last("a").member_id
    table.wait(5_000)
    offsets = [OffsetToCommit("t", 0, 5, -1, "")]
    request = Commit("g", offsets, a, None, 1, transactional=transactional)
    table.ask("commit", lambda s, _, r: s.commit(request, r))
    table.wait(9_999)
    assert (a in table.group.members) is not transactional


@pytest.mark.parametrize(("transactional", "refused"), [(False, True), (True, False)])
def test_offsets_are_not_committed_before_the_assignment_is_known(
    transactional: bool, refused: bool
) -> None:
    table = Table()
    table.join("a")
    table.wait(0)
    offsets = [OffsetToCommit("t", 0, 5, -1, "")]
    request = Commit(
        "g", offsets, table.last("a").member_id, None, 1, transactional=transactional
    )
    table.ask("commit", lambda s, a, r: r.reply(a, s.commit(request, r)))
    assert isinstance(table.last("commit"), RebalanceInProgress) is refused


def test_the_record_of_a_generation_is_that_of_the_leaders_assignment() -> None:
    table = stable("a", "b")
    a, b = (table.last(name).member_id for name in "ab")
    (record,) = table.bench.records
    assert record.key == GroupKey("g") and record.value is not None
    assert (record.value.generation, record.value.leader, record.value.protocol) == (
        1, a, "range")
    assert {each.member_id: each.assignment for each in record.value.members} == {
        a: b"of a", b: b"of b"}
    assert {each.subscription for each in record.value.members} == {BYTES}
    assert isinstance(table.last("a"), Joined) and len(table.last("a").members) == 2
    assert table.last("b").members == ()
    table.bench.crash()
    assert table.group.leader == a and table.group.state is ClassicState.STABLE
    table.wait(10_000)
    assert not table.group.members, "sessions begin when the broker starts"
