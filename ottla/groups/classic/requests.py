"""The requests that a classic group serves, of its own protocol and of KIP-848."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ottla.groups.classic import join, rebalance, session
from ottla.groups.classic.group import ClassicGroup, ClassicState
from ottla.groups.consumer import heartbeat as consumer_heartbeat
from ottla.groups.consumer import migration
from ottla.groups.consumer.replay import upgraded
from ottla.groups.errors import (
    GroupIdNotFound,
    IllegalGeneration,
    RebalanceInProgress,
    UnknownMember,
)
from ottla.groups.records import GroupKey
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.groups.classic.messages import Join, Leaving, Sync
    from ottla.groups.consumer.heartbeat import Heartbeat, HeartbeatReply, UnchangedHeartbeat
    from ottla.groups.group import Context
    from ottla.groups.offset_requests import Commit
    from ottla.groups.result import Answer, Result, TimerKey

EMPTY, PREPARING = ClassicState.EMPTY, ClassicState.PREPARING
COMPLETING = ClassicState.COMPLETING
NONE, REBALANCE_IN_PROGRESS = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS
"""Global names, since every heartbeat and commit uses them: to look up `ErrorCode.NONE` takes
longer."""


class ServedClassicGroup(ClassicGroup):
    """A classic group that implements `Group` of `groups/group.py`."""

    __slots__ = ()
    keys: ClassVar[tuple[type, ...]] = (GroupKey,)

    @property
    def is_forming(self) -> bool:
        """Whether the group has members, or clients that were assigned a member id."""
        return bool(self.members or self.pending_joins)

    def join(self, request: Join, answer: Answer, result: Result, context: Context) -> None:
        """JoinGroup; the reply is sent when all members have joined."""
        join.join(self, request, answer, result, context.settings, context.new_id)

    def sync(self, request: Sync, answer: Answer, result: Result, context: Context) -> None:
        """SyncGroup."""
        session.sync(self, request, answer, result)

    def heartbeat(
        self, generation: int, member_id: str, instance_id: str | None, tick_ms: int
    ) -> ErrorCode:
        """Keep a member's session alive; REBALANCE_IN_PROGRESS makes the member join again.

        Raises UnknownMember, FencedInstance, IllegalGeneration.
        """
        member = self.check_member(member_id, instance_id)
        if generation != self.generation:
            raise IllegalGeneration(
                f"the group is in generation {self.generation}, but the request has generation"
                f" {generation}"
            )
        # The timer is not moved here. When it fires, it is set again to the new deadline.
        member.deadline_ms = tick_ms + member.session_timeout_ms
        return REBALANCE_IN_PROGRESS if self.state is PREPARING else NONE

    def heartbeat_turn(
        self,
        generation: int,
        member_id: str,
        instance_id: str | None,
        result: Result,
        context: Context,
    ) -> ErrorCode:
        """Do the same as `heartbeat`: in a classic group, a heartbeat sets no timer."""
        return self.heartbeat(generation, member_id, instance_id, result.tick_ms)

    def leave(
        self, leaving: Sequence[Leaving], result: Result, context: Context
    ) -> list[ErrorCode]:
        """LeaveGroup."""
        return session.leave(self, leaving, result, context.settings)

    def beat(self, request: Heartbeat, result: Result, context: Context) -> HeartbeatReply:
        """A KIP-848 member joins: an empty group is replaced, a group with members is upgraded.

        Raises GroupIdNotFound for a heartbeat that does not join, and the errors of
        `migration.upgrade` and `heartbeat.heartbeat`.
        """
        if request.member_epoch != consumer_heartbeat.JOIN:
            raise GroupIdNotFound(f"consumer group {self.group_id!r} not found")
        settings, cluster = context.settings, context.cluster
        if self.members:
            migration.upgrade(self, result, settings, cluster)
            result.note(self.group_id, "upgraded", member=request.member_id)
            group = upgraded(self.group_id, result)
            consumer_heartbeat.arm_all(group, result, settings, cluster)
        else:
            if self.protocol_type is not None:
                result.records.extend(self.tombstones())
            group = consumer_heartbeat.first_group(request)
        return consumer_heartbeat.heartbeat(group, request, result, settings, cluster)

    def keep_alive(
        self, request: UnchangedHeartbeat, client: tuple[str, str], tick_ms: int, context: Context
    ) -> None:
        """Returns None: `beat` serves or refuses the heartbeat."""

    def check_commit(self, request: Commit, result: Result, context: Context) -> None:
        """Check that the client may commit; a member's commit also keeps its session alive.

        Raises UnknownMember, FencedInstance, IllegalGeneration, RebalanceInProgress.
        """
        generation = request.generation
        if generation < 0 and self.state is EMPTY:
            return  # a client that assigns partitions itself, or an administrator
        if generation < 0 and not request.member_id and request.instance_id is None:
            if not request.transactional:
                raise UnknownMember(
                    f"group {self.group_id} has members, so only they may commit its offsets"
                )
            return
        member = self.check_member(request.member_id, request.instance_id)
        if generation != self.generation:
            raise IllegalGeneration(
                f"the group is in generation {self.generation}, but the request has generation"
                f" {generation}"
            )
        if request.transactional:
            return
        if self.state is COMPLETING:
            raise RebalanceInProgress(
                "the group's leader has not sent the assignment of this generation yet")
        member.deadline_ms = result.tick_ms + member.session_timeout_ms

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Any client may fetch."""

    def fire(self, key: TimerKey, result: Result, context: Context) -> None:
        """Called when a timer of the group is due."""
        settings = context.settings
        if key.kind == rebalance.SESSION:
            rebalance.session_timer_fired(self, key.member_id, result, settings)
        elif key.kind == rebalance.JOIN:
            rebalance.join_timer_fired(self, result, settings)
        elif key.kind == rebalance.SYNC:
            rebalance.sync_timer_fired(self, result, settings)
        elif key.kind == migration.REJOIN_ALL:
            self.loaded(result, context)
            rebalance.rebalance(self, result, settings)

    def loaded(self, result: Result, context: Context) -> None:
        """Starts every member's session, and a rebalance if one is due after a conversion."""
        for member in self.members.values():
            rebalance.arm_session(self, member, result)
        if self.must_rejoin:
            result.note(self.group_id, "downgraded")
            rebalance.rebalance(self, result, context.settings)

    def replay_record(self, key: GroupKey, value: Any, aloud: bool) -> bool:
        """Applies a GroupMetadata record."""
        if value is not None:
            self.replay(value, aloud)
        return value is not None
