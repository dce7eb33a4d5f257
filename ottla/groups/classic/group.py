"""A classic group: its members, its generation and the votes on its protocol.

                       a member joins, leaves, expires
        Empty ----------> PreparingRebalance <---------------------+
          ^                 |  all joined, or timed out            |
          |                 v                                      |
          +---- nobody -- CompletingRebalance -------------------->+
                            |  the leader's SyncGroup is committed |
                            v                                      |
                          Stable ---------------------------------->

A GroupMetadata record makes a group Stable or Empty and holds its members, their assignment and
their leader; only `replay` applies it. As the protocol intends, a generation that is being formed
exists in memory only. After a restart, the group is in its last recorded generation again. Pending
replies and session deadlines are never recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from ottla.groups.classic import subscription
from ottla.groups.errors import FencedInstance, UnknownMember
from ottla.groups.records import (
    CONVERTED,
    ClassicMemberValue,
    CommittedOffset,
    GroupKey,
    GroupValue,
    Record,
)
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from ottla.groups.result import Answer

log = logging.getLogger("ottla.groups")

CONSUMER_PROTOCOL_TYPE = "consumer"


class ClassicState(StrEnum):
    """The state names in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(slots=True, eq=False)
class ClassicMember:
    """One member; `protocols` are (name, metadata) in the member's order of preference."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    deadline_ms: int = 0
    """When the session ends: monotonic time in ms (`ShardRuntime.tick_ms`). A heartbeat moves this
    deadline, but not the timer. If the timer fires before the deadline, it is set again."""
    awaits_join: Answer | None = None
    awaits_sync: Answer | None = None
    is_new: bool = False
    """Whether the member's first JoinGroup is pending, so that it cannot send heartbeats yet."""

    def metadata(self, protocol: str | None) -> bytes:
        """The member's metadata for this protocol."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def value(self, protocol: str | None, assignment: bytes) -> ClassicMemberValue:
        """The member's entry in the record of a generation that uses this protocol."""
        return ClassicMemberValue(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            assignment,
        )


@dataclass(slots=True, eq=False)
class ClassicGroup:
    """The state of one group. `members` keeps the order of joining."""

    group_id: str
    generation: int = 0
    protocol_type: str | None = None
    """None until a member joins: offsets may be committed to a group without members."""
    protocol: str | None = None
    leader: str | None = None
    state: ClassicState = ClassicState.EMPTY
    state_ms: int = -1
    came_from_empty: bool = False
    """In PreparingRebalance: the group was empty before, so the initial delay applies."""
    joined_in_delay: bool = False
    """Whether a member has joined since the initial delay began: if so, the delay is extended."""
    members: dict[str, ClassicMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    pending_joins: set[str] = field(default_factory=set)
    """Ids assigned with MEMBER_ID_REQUIRED whose second JoinGroup has not arrived yet."""
    pending_syncs: set[str] = field(default_factory=set)
    must_rejoin: bool = False
    """Whether the group was converted from KIP-848 and has not rebalanced since. Until it
    rebalances, some members may be unaware of the change, and no member owns the partitions of the
    last KIP-848 member."""
    delay_left_ms: int = 0
    """By how many more ms the initial delay may be extended."""
    refused: str = ""
    """Why the log refused the last assignment; "" if it accepted the assignment."""
    pauses: bool = False
    """In PreparingRebalance: the log has just refused an assignment. The next generation waits for
    a timer, because librdkafka joins again at once, a thousand times a second."""
    last_joined: str = ""
    """The member whose JoinGroup came last."""
    _common: set[str] | None = None
    _topics: frozenset[str] | None = None
    _topics_known: bool = False
    type_name = "classic"

    @property
    def is_empty(self) -> bool:
        """Whether a client may delete the group, and the offsets may expire."""
        return self.state is ClassicState.EMPTY

    @property
    def is_unused(self) -> bool:
        """Whether the coordinator may delete the group once the group has no offsets."""
        return self.is_empty and not self.pending_joins

    @property
    def tells_topics(self) -> bool:
        """Whether the members are consumers, so that their topics can be determined."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def state_name(self) -> str:
        """The state in ListGroups and DescribeGroups."""
        return self.state.value

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    @property
    def all_have_joined(self) -> bool:
        """Whether every member, and every client that was assigned a member id, has joined the new
        generation."""
        return not self.pending_joins and all(
            member.awaits_join is not None for member in self.members.values()
        )

    def move(self, state: ClassicState, wall_ms: int) -> None:
        """Begin or continue to form a generation; `replay` of its record completes it."""
        assert state in (ClassicState.PREPARING, ClassicState.COMPLETING)
        assert self.state is not state, "the group is in this state already"
        self._enter(state, wall_ms)

    def _enter(self, state: ClassicState, wall_ms: int, aloud: bool = True) -> None:
        if state is not self.state and aloud:
            log.debug(
                "group %s changes from %s to %s: generation %d, %d members", self.group_id,
                self.state.value, state.value, self.generation, len(self.members),
            )
        self.state, self.state_ms = state, wall_ms

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member that sent a request.

        Raises UnknownMember, and FencedInstance if another member has the instance id.
        """
        if instance_id is not None:
            owner = self.static_members.get(instance_id)
            if owner is None:
                raise UnknownMember(
                    f"group {self.group_id} has no member with instance id {instance_id}")
            if owner != member_id:
                raise FencedInstance(f"instance id {instance_id} now belongs to member {owner}")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(f"group {self.group_id} has no member {member_id!r}")
        return member

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Adds a member; the first one becomes leader and sets the group's protocol type."""
        assert member.member_id not in self.members, "the member was added before"
        if not self.members:
            self.protocol_type = protocol_type
        self.leader = self.leader or member.member_id
        self.members[member.member_id] = member
        if self._common is not None and len(self.members) > 1:
            self._common = self._common & {name for name, _ in member.protocols}
        else:
            self._common = None
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.pending_joins.discard(member.member_id)

    def remove(self, member_id: str) -> ClassicMember | None:
        """Removes a member; if it led the group, the first remaining member becomes leader."""
        self._common = None
        member = self.members.pop(member_id, None)
        if member is not None and self.static_members.get(member.instance_id or "") == member_id:
            del self.static_members[member.instance_id or ""]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)
        return member

    def supports(self, protocol_type: str, protocols: Iterable[tuple[str, bytes]]) -> bool:
        """Whether a member with these protocols may join."""
        names = {name for name, _ in protocols}
        if self.state is ClassicState.EMPTY or not self.members:
            return bool(protocol_type) and bool(names)
        return self.protocol_type == protocol_type and not names.isdisjoint(
            self.common_protocols()
        )

    def common_protocols(self) -> set[str]:
        """The protocols that every member supports."""
        if self._common is None:
            sets = [{name for name, _ in member.protocols} for member in self.members.values()]
            self._common = set.intersection(*sets) if sets else set()
        return self._common

    def replace_static(self, member_id: str, successor: ClassicMember) -> ClassicMember:
        """Replaces a static member by its next incarnation; returns the old one."""
        old = self.members.pop(member_id)
        assert old.instance_id == successor.instance_id, "the successor has another instance id"
        self._common = None
        self.members[successor.member_id] = successor
        if self.leader == member_id:
            self.leader = successor.member_id
        if successor.instance_id is not None:
            self.static_members[successor.instance_id] = successor.member_id
        return old

    def protocols_changed(self) -> None:
        """Called when a member has joined again with other protocols."""
        self._common = None

    def choose_protocol(self) -> str:
        """The common protocol with the most votes; each member votes for the first common protocol
        in its list."""
        return _most_votes(self.members.values(), self.common_protocols())

    def choose_protocol_of(self, members: Collection[ClassicMember]) -> str | None:
        """The protocol that these members would choose; None if they have no common protocol."""
        common = set.intersection(*({name for name, _ in m.protocols} for m in members))
        return _most_votes(members, common) if common else None

    def next_generation(self, wall_ms: int) -> None:
        """Begins the next generation with the members that the group has now: chooses the protocol,
        then waits for the leader's assignment."""
        assert self.state is ClassicState.PREPARING, "the group's state is not PreparingRebalance"
        assert self.members, "the generation would have no members"
        self.generation += 1
        self.pending_syncs.clear()
        self.protocol = self.choose_protocol()
        self.move(ClassicState.COMPLETING, wall_ms)
        self._topics_known = False

    def assignment_refused(self, why: str, wall_ms: int) -> None:
        """The log has refused the leader's assignment: the members have to join again, as in
        Kafka."""
        self.refused, self.pauses, self.came_from_empty = why, True, False
        self.move(ClassicState.PREPARING, wall_ms)

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics of the members; None if the protocol type or the metadata is not a consumer's.

        Computed when first needed, to save time when a broker starts with many groups.
        """
        if not self._topics_known:
            self._topics_known, self._topics = True, None
            if self.protocol_type == CONSUMER_PROTOCOL_TYPE and not self.members:
                self._topics = frozenset()
            elif self.protocol_type == CONSUMER_PROTOCOL_TYPE and self.protocol is not None:
                self._topics = subscription.topics_of(
                    member.metadata(self.protocol) for member in self.members.values()
                )
        return self._topics

    def subscribes_to(self, topic: str) -> bool:
        """Whether a current member reads the topic; True if a subscription cannot be parsed."""
        topics = self.subscribed_topics
        return self.tells_topics if topics is None else topic in topics

    def elect_joined_leader(self) -> bool:
        """Makes another member leader if the leader has not joined the new generation. Returns
        False if no member has joined it."""
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.awaits_join is not None:
            return True
        for member in self.members.values():
            if member.awaits_join is not None:
                self.leader = member.member_id
                return True
        return False

    def emptied(self, wall_ms: int) -> GroupValue:
        """The record of the next generation, which has no members."""
        assert not self.members, "the group still has members"
        return GroupValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation + 1,
            protocol=None,
            leader=None,
            state_ms=wall_ms,
            members=(),
        )

    def with_successor(
        self, member_id: str, successor: ClassicMember, wall_ms: int
    ) -> GroupValue:
        """The record of this generation, with a static member replaced by its next incarnation."""
        members = [m for m in self.members.values() if m.member_id != member_id] + [successor]
        return GroupValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=successor.member_id if self.leader == member_id else self.leader,
            state_ms=wall_ms,
            members=tuple(m.value(self.protocol, m.assignment) for m in members),
        )

    def keep(self, member: ClassicMember) -> None:
        """Puts `member` in the place of the member that the replayed record has created. Only
        `member`, which was made from a JoinGroup, has all protocols and the session's deadline."""
        assert member.member_id in self.members, "the member's record was not replayed"
        self.members[member.member_id] = member
        self._common = None

    def value(self, wall_ms: int, assignments: dict[str, bytes]) -> GroupValue:
        """The record of this generation, with the leader's assignment."""
        assert self.leader in self.members, "the leader is not a member"
        return GroupValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            state_ms=wall_ms,
            members=tuple(
                member.value(self.protocol, assignments.get(member.member_id, b""))
                for member in self.members.values()
            ),
        )

    @property
    def summary(self) -> str:
        """State and size, for the log."""
        return f"{self.state_name}, {counted(len(self.members), 'member')}"

    def expiry_base_ms(self, value: CommittedOffset) -> int | None:
        """The Unix time from which an offset's retention counts; None while it cannot expire."""
        if self.protocol_type is None:
            return value.commit_ms
        if self.state is ClassicState.EMPTY:
            return self.state_ms if self.state_ms >= 0 else value.commit_ms
        if (
            self.state is ClassicState.STABLE
            and self.tells_topics
            and self.subscribed_topics is not None
        ):
            return value.commit_ms
        return None

    def take_answers(self) -> list[Answer]:
        """Remove and return the pending answers of its members."""
        answers = []
        for member in self.members.values():
            answers += [a for a in (member.awaits_join, member.awaits_sync) if a is not None]
            member.awaits_join = member.awaits_sync = None
        return answers

    def tombstones(self) -> list[Record]:
        """Records that remove the group."""
        return [Record(GroupKey(self.group_id), None)]

    def replay(self, value: GroupValue, aloud: bool = True) -> None:
        """Applies a record; members that exist keep their pending requests. `aloud` is set for a
        record that this broker has just written: the change of state is logged."""
        assert not aloud or value.generation >= self.generation, "the generation would fall"
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        self.leader = value.leader
        self.must_rejoin = bool(value.members) and value.state_ms == CONVERTED
        living, self.members = self.members, {}
        self._common = None
        self.static_members = {}
        for stored in value.members:
            member = living.get(stored.member_id)
            # A record that this broker has just written agrees with the member. While the log is
            # loaded, a later generation's record may have another subscription or other timeouts:
            # it replaces the member.
            if member is None or member.value(value.protocol, stored.assignment) != stored:
                member = _restored(stored, value.protocol)
            member.assignment = stored.assignment
            self.members[member.member_id] = member
            if member.instance_id is not None:
                self.static_members[member.instance_id] = member.member_id
        state = ClassicState.STABLE if self.members else ClassicState.EMPTY
        assert not aloud or not self.members or self.leader in self.members, "no member leads"
        self._enter(state, value.state_ms, aloud)
        self._topics_known = False


def _most_votes(members: Iterable[ClassicMember], common: set[str]) -> str:
    votes: dict[str, int] = {}
    for member in members:
        choice = next(name for name, _ in member.protocols if name in common)
        votes[choice] = votes.get(choice, 0) + 1
    return max(votes, key=votes.__getitem__)


def _restored(stored: ClassicMemberValue, protocol: str | None) -> ClassicMember:
    return ClassicMember(
        stored.member_id,
        stored.instance_id,
        stored.client_id,
        stored.client_host,
        stored.session_timeout_ms if stored.rebalance_timeout_ms < 0 else (
            stored.rebalance_timeout_ms
        ),
        stored.session_timeout_ms,
        ((protocol or "", stored.subscription),),
        stored.assignment,
    )
