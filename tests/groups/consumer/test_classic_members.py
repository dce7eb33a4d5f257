"""Classic members of a KIP-848 group, and how a group changes from one protocol to the other."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.groups.classic.messages import Join, Joined, Leaving, NewMemberId, Sync
from ottla.groups.classic.requests import ServedClassicGroup
from ottla.groups.classic.subscription import (
    Subscription,
    read_assignment,
    write_assignment,
    write_subscription,
)
from ottla.groups.consumer.heartbeat import LEAVE, Heartbeat, HeartbeatReply
from ottla.groups.errors import (
    FencedInstance,
    GroupIdNotFound,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentProtocol,
    RebalanceInProgress,
    UnknownMember,
)
from ottla.groups.records import ConsumerGroupKey, GroupKey, MemberState, TopicPartition
from ottla.groups.result import RETRY_MS
from ottla.wire.errors import ErrorCode, ProtocolError
from tests.groups.bench import Workbench

T = b"t".ljust(16, b".")
NONE, REBALANCE = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS
EXPIRY_MS = 600_000


def parts(*indexes: int) -> frozenset[TopicPartition]:
    """Partitions of topic t."""
    return frozenset((T, index) for index in indexes)


class Mixed:
    """A group that has members of both protocols."""

    def __init__(self, **settings: Any) -> None:
        self.bench = Workbench(
            offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=0, **settings)
        self.bench.cluster.make("t", 2)

    def ask(self, operation: Any) -> Any:
        """Run an operation; returns its answer or its refusal. None if there is no answer yet."""
        heard: list[Any] = []
        self.bench.records.clear()
        try:
            self.bench.runtime.change("g", lambda s, r: operation(s, heard.append, r))
        except ProtocolError as error:
            return error
        return heard[0] if heard else None

    def beat(self, name: str, epoch: int = 0, **changes: Any) -> Any:
        joins: dict[str, Any] = {
            "rebalance_timeout_ms": 60_000, "topics": frozenset("t"), "owned": frozenset(),
        }
        request = Heartbeat("g", name, epoch, **{**(joins if epoch == 0 else {}), **changes})
        return self.ask(lambda s, a, r: r.reply(a, s.beat(request, r)))

    def join(self, member_id: str = "", owned: tuple[int, ...] = (), **changes: Any) -> Any:
        """Send a JoinGroup; returns its answer or its refusal. None if there is no answer yet."""
        heard = self.join_later(member_id, owned, **changes)
        return heard[0] if heard else None

    def join_later(
        self, member_id: str = "", owned: tuple[int, ...] = (), **changes: Any
    ) -> list[Any]:
        """Send a JoinGroup; returns a list to which its answer is added when it comes."""
        data = write_subscription(
            Subscription(tuple(changes.pop("topics", "t")), owned={"t": owned} if owned else {}), 1)
        names = changes.pop("names", ("range",))
        fields: dict[str, Any] = {
            "instance_id": None, "client_id": "c", "client_host": "/h",
            "session_timeout_ms": 10_000, "rebalance_timeout_ms": 20_000,
            "protocol_type": "consumer", "protocols": tuple((name, data) for name in names),
            "needs_member_id": False, **changes,
        }
        heard: list[Any] = []
        self.bench.records.clear()
        request = Join("g", member_id, **fields)
        try:
            self.bench.runtime.change("g", lambda s, r: s.join(request, heard.append, r))
        except ProtocolError as error:
            heard.append(error)
        return heard

    def sync(self, member_id: str, generation: int, **changes: Any) -> Any:
        """Send a SyncGroup; returns the assigned partitions of t, or the refusal. None if there is
        no answer yet."""
        request = Sync("g", generation, member_id, **changes)
        told = self.ask(lambda s, a, r: s.sync(request, a, r))
        if told is None or isinstance(told, ProtocolError):
            return told
        return {*read_assignment(told.assignment).get("t", ())}

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> Any:
        try:
            return self.bench.heartbeat("g", generation, member_id, instance_id)
        except ProtocolError as error:
            return error

    def leave(self, member_id: str, instance_id: str | None = None) -> Any:
        leaving = [Leaving(member_id, instance_id)]
        return self.ask(lambda s, a, r: r.reply(a, s.leave("g", leaving, r)))

    @property
    def type_name(self) -> str:
        return self.bench.shard().group("g").type_name

    @property
    def next_ms(self) -> int | None:
        return self.bench.runtime.next_timer_ms()


def mixed(**settings: Any) -> Mixed:
    """A group in which `m` speaks KIP-848 and member 1 is classic. Both are at epoch 3 and have one
    partition."""
    group = Mixed(**settings)
    group.beat("m")
    assert group.join().generation == 3
    group.beat("m", 2, owned=parts(0, 1))
    kept = group.bench.consumers().targets["m"]
    assert group.beat("m", 2, owned=kept).member_epoch == 3
    assert group.heartbeat("1", 3) is REBALANCE, "its partition is free now"
    assert group.join("1").generation == 3
    assert len(group.sync("1", 3)) == 1
    return group


def test_a_classic_member_is_asked_to_join_only_if_that_changes_something() -> None:
    group = mixed()
    assert group.heartbeat("1", 3) is NONE
    group.bench.cluster.make("u", 1)
    assert group.heartbeat("1", 3) is NONE
    group.bench.cluster.make("t", 4)
    assert group.heartbeat("1", 3) is REBALANCE
    assert group.join("1", (1,)).generation == 4
    assert len(group.sync("1", 4)) == 2
    assert group.heartbeat("1", 4) is NONE


def test_a_classic_member_waits_for_what_others_hold_without_being_asked() -> None:
    group = Mixed()
    group.beat("m")
    group.join()
    member = group.bench.consumers().members["1"]
    assert member.current.state == MemberState.UNRELEASED_PARTITIONS
    assert group.heartbeat("1", 3) is NONE
    assert group.sync("1", 3) == set()
    group.beat("m", LEAVE)
    assert group.heartbeat("1", 3) is REBALANCE


def test_the_members_of_each_protocol_are_told_apart() -> None:
    group = mixed()
    assert isinstance(group.heartbeat("m", 3), UnknownMember)
    assert isinstance(group.sync("m", 3), UnknownMember)
    assert isinstance(group.heartbeat("x", 3), UnknownMember)
    for generation in (2, 4):
        assert isinstance(group.heartbeat("1", generation), IllegalGeneration)
        assert isinstance(group.sync("1", generation), IllegalGeneration)
    assert isinstance(group.sync("1", 3, protocol="sticky"), InconsistentProtocol)
    assert isinstance(group.sync("1", 3, protocol_type="connect"), InconsistentProtocol)
    assert len(group.sync("1", 3, protocol="range", protocol_type="consumer")) == 1


def test_who_may_join_as_a_classic_member() -> None:
    group = mixed(group_consumer_max_size=3)
    assert isinstance(group.join(protocol_type="connect"), InconsistentProtocol)
    assert isinstance(group.join(names=()), InconsistentProtocol)
    assert isinstance(group.join(names=("sticky",)), InconsistentProtocol)
    assert isinstance(group.join(protocols=(("range", b"?"),)), InconsistentProtocol)
    assert isinstance(group.join("x"), Joined), "an id of its own is taken"
    assert isinstance(group.join(names=("sticky", "range")), GroupMaxSizeReached)
    assert isinstance(group.join("x", names=("sticky", "range")), Joined)
    group.leave("x")
    told = group.join(needs_member_id=True)
    assert isinstance(told, NewMemberId) and told.member_id not in group.bench.consumers().members
    assert isinstance(group.join("1", names=("sticky",)), Joined), "nobody else is classic"


@pytest.mark.parametrize("policy", ["disabled", "upgrade", "downgrade", "bidirectional"])
def test_a_policy_says_which_members_may_join_and_what_becomes_of_a_group(policy: str) -> None:
    group = Mixed(group_consumer_migration_policy=policy)
    group.beat("m")
    assert isinstance(group.join(), InconsistentProtocol if policy == "disabled" else Joined)
    if policy != "disabled":
        group.beat("m", LEAVE)
        group.bench.wait(1)
        classic = policy in ("downgrade", "bidirectional")
        assert group.type_name == ("classic" if classic else "consumer")
    group = Mixed(group_consumer_migration_policy=policy)
    group.join()
    upgraded = isinstance(group.beat("m"), HeartbeatReply)
    assert upgraded is (policy in ("upgrade", "bidirectional"))
    assert group.type_name == ("consumer" if upgraded else "classic")


@pytest.mark.parametrize(("largest", "upgraded"), [(1, False), (2, False), (3, True)])
def test_a_group_that_is_too_large_stays_classic(largest: int, upgraded: bool) -> None:
    group = Mixed(group_consumer_max_size=largest)
    group.join()
    group.join()
    told = group.beat("m")
    assert isinstance(told, HeartbeatReply) is upgraded
    if not upgraded:
        error = GroupIdNotFound if largest == 1 else GroupMaxSizeReached
        assert isinstance(told, error)


@pytest.mark.parametrize(("largest", "downgraded"), [(1, False), (2, True)])
def test_a_group_that_is_too_large_does_not_become_classic(
    largest: int, downgraded: bool
) -> None:
    group = Mixed(group_max_size=largest)
    group.beat("m")
    group.join()
    group.join()
    group.beat("m", LEAVE)
    group.bench.wait(1)
    assert (group.type_name == "classic") is downgraded


def test_an_upgrade_keeps_the_assignment_and_tells_those_that_wait() -> None:
    group = Mixed()
    first = group.join_later()
    group.bench.wait(0)
    assert first[0].generation == 1
    member_id = first[0].member_id
    data = write_assignment({"t": [0, 1], "gone": [0]}, 1)
    assert group.sync(member_id, 1, assignments=((member_id, data),)) == {0, 1}
    waiting = group.join_later()
    assert waiting == []
    reply = group.beat("m")
    assert [type(each) for each in waiting] == [RebalanceInProgress]
    assert group.type_name == "consumer" and reply.member_epoch == 2
    consumers = group.bench.consumers()
    assert consumers.members[member_id].epoch == 1
    assert consumers.owners == dict.fromkeys(parts(0, 1), member_id)
    assert consumers.static_members == {} and len(consumers.members) == 3
    group.bench.crash()
    assert group.type_name == "consumer" and len(group.bench.consumers().members) == 3
    group.bench.wait(9_999)
    assert member_id in group.bench.consumers().members
    group.bench.wait(1)
    assert [*group.bench.consumers().members] == ["m"], "classic sessions are shorter"


def test_a_downgrade_keeps_the_assignment_and_has_all_join_again() -> None:
    group = mixed()
    owned = group.sync("1", 3)
    group.beat("m", LEAVE)
    assert group.type_name == "consumer"
    group.bench.wait(0)
    assert group.type_name == "classic"
    classic = group.bench.shard().group_of(ServedClassicGroup, "g")
    assert classic is not None and classic.generation == 3 and classic.leader == "1"
    assert {*read_assignment(classic.members["1"].assignment)["t"]} == owned
    assert classic.state_name == "PreparingRebalance"
    assert group.heartbeat("1", 3) is REBALANCE
    group.bench.crash()
    log = group.bench.logs[0]
    # Compaction may have removed the tombstones of the KIP-848 group, so the classic group's record
    # must be enough.
    group.bench.logs[0] = [entry for entry in log if entry == log[-1]]
    group.bench.crash()
    classic = group.bench.shard().group_of(ServedClassicGroup, "g")
    assert classic is not None and classic.state_name == "PreparingRebalance"
    assert group.join("1").generation == 4


def test_a_member_of_kip_848_that_joins_meanwhile_keeps_the_group_as_it_is() -> None:
    group = mixed()
    group.beat("m", LEAVE)
    assert isinstance(group.beat("n"), HeartbeatReply)
    group.bench.wait(1_000)
    assert group.type_name == "consumer" and {*group.bench.consumers().members} == {"1", "n"}


def test_a_classic_member_that_changes_its_protocol_counts_as_the_other_kind() -> None:
    group = mixed()
    assert isinstance(group.beat("1", topics=frozenset("t")), HeartbeatReply)
    assert group.bench.consumers().members["1"].value.classic is None
    group.beat("m", LEAVE)
    group.bench.wait(1_000)
    assert group.type_name == "consumer"


def test_who_is_asked_to_join_again_has_its_rebalance_timeout_from_the_first_time() -> None:
    group = mixed()
    group.bench.cluster.make("t", 4)
    assert group.heartbeat("1", 3) is REBALANCE
    for _ in range(2):
        group.bench.wait(7_000)
        assert group.heartbeat("1", 3) is REBALANCE
        group.beat("m", group.bench.consumers().members["m"].epoch)
    group.bench.wait(5_999)
    assert "1" in group.bench.consumers().members
    group.bench.wait(1)
    assert "1" not in group.bench.consumers().members


def test_who_has_joined_again_has_no_such_timeout_any_more() -> None:
    group = mixed()
    group.bench.cluster.make("t", 4)
    group.heartbeat("1", 3)
    generation = group.join("1", session_timeout_ms=40_000).generation
    assert generation == 4
    group.bench.wait(39_999)
    group.beat("m", 3)
    assert "1" in group.bench.consumers().members
    group.bench.wait(1)
    assert "1" not in group.bench.consumers().members


def test_a_classic_members_session_lasts_from_its_last_request() -> None:
    group = mixed()
    for step in (
        lambda: group.heartbeat("1", 3) is NONE, lambda: group.sync("1", 3),
        lambda: group.join("1", (0, 1)), lambda: group.heartbeat("1", 3) is NONE,
    ):
        group.bench.wait(9_999)
        assert step() and isinstance(group.beat("m", 3), HeartbeatReply)
    group.bench.wait(9_999)
    assert "1" in group.bench.consumers().members
    group.bench.wait(1)
    assert "1" not in group.bench.consumers().members


def test_the_last_member_of_kip_848_and_a_classic_one_leave_no_timer_behind() -> None:
    group = mixed()
    group.bench.cluster.make("t", 4)
    group.heartbeat("1", 3)
    group.join("1", (0, 1))
    assert group.leave("1") == [NONE]
    group.beat("m", LEAVE)
    group.bench.wait(RETRY_MS)
    assert group.next_ms == EXPIRY_MS


def test_a_static_classic_member_is_known_by_its_instance() -> None:
    group = Mixed()
    group.beat("m")
    first = group.join(instance_id="i")
    second = group.join(instance_id="i")
    assert first.member_id != second.member_id and second.generation == first.generation
    old, new = first.member_id, second.member_id
    assert isinstance(group.heartbeat(old, 3, "i"), FencedInstance)
    assert isinstance(group.join(old, instance_id="i"), FencedInstance)
    assert isinstance(group.join(new, instance_id="j"), UnknownMember)
    assert isinstance(group.sync(old, 3, instance_id="i"), FencedInstance)
    assert group.heartbeat(new, 3, "i") is NONE
    assert group.leave(old, "i") == [ErrorCode.FENCED_INSTANCE_ID]
    assert group.leave("", "j") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert group.leave("", "i") == [NONE]
    assert [*group.bench.consumers().members] == ["m"]
    assert group.leave("m") == [NONE], "whichever protocol it uses"


def test_an_empty_group_of_kip_848_becomes_classic_with_its_first_classic_member() -> None:
    group = Mixed()
    group.beat("m")
    group.beat("m", LEAVE)
    assert isinstance(group.join("x"), UnknownMember)
    assert group.type_name == "consumer"
    told = group.join(needs_member_id=True)
    assert isinstance(told, NewMemberId) and group.type_name == "classic"
    assert [type(record.key) for record in group.bench.records][-1] is ConsumerGroupKey
    assert all(record.value is None for record in group.bench.records)
    assert group.join(told.member_id) is None
    group.bench.wait(0)
    group.sync(told.member_id, 1, assignments=((told.member_id, b""),))
    assert [type(record.key) for record in group.bench.records] == [GroupKey]


def test_an_empty_classic_group_is_replaced_by_one_of_kip_848() -> None:
    group = Mixed()
    group.join()
    group.bench.wait(0)
    group.leave("c-1")
    assert isinstance(group.beat("m", 1), GroupIdNotFound)
    assert group.beat("m").member_epoch == 2
    assert group.type_name == "consumer"
    assert group.bench.records[0].key == GroupKey("g") and group.bench.records[0].value is None
    group.bench.crash()
    assert group.type_name == "consumer"


def test_members_that_leave_in_one_request_have_their_own_reasons() -> None:
    group = mixed()
    leaving = [Leaving("1", reason="scaled down"), Leaving("x", reason="?"),
               Leaving("m", reason="deployed"), Leaving("1", reason="again")]
    codes = group.ask(lambda s, a, r: r.reply(a, s.leave("g", leaving, r)))
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE, ErrorCode.NONE]
    events = [each.fields for each in group.bench.runtime.history.events("g")
              if each.kind == "left"]
    assert [(each["member"], each["reason"], each["by_administrator"]) for each in events] == [
        ("1", "scaled down", False), ("m", "deployed", False)]
