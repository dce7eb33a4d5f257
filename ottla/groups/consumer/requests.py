"""The requests that a KIP-848 group serves: those of KIP-848, and those of its classic members."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ottla.groups.classic.requests import ServedClassicGroup
from ottla.groups.consumer import classic_members, heartbeat, migration, offset_access, replay
from ottla.groups.consumer.group import LEFT_FOR_NOW, ConsumerGroup
from ottla.groups.consumer.notes import note_member
from ottla.groups.errors import UnknownMember
from ottla.groups.result import RETRY_MS, Answer, Result, TimerKey
from ottla.wire.errors import ErrorCode, ProtocolError

if TYPE_CHECKING:
    from ottla.groups.classic.messages import Join, Leaving, Sync
    from ottla.groups.consumer.group import ConsumerMember
    from ottla.groups.consumer.heartbeat import Heartbeat, HeartbeatReply, UnchangedHeartbeat
    from ottla.groups.group import Context
    from ottla.groups.offset_requests import Commit

log = logging.getLogger("ottla.groups")


class ServedConsumerGroup(ConsumerGroup):
    """A KIP-848 group that implements `Group` of `groups/group.py`."""

    __slots__ = ()
    keys: ClassVar[tuple[type, ...]] = tuple(replay.EFFECTS)

    def join(self, request: Join, answer: Answer, result: Result, context: Context) -> None:
        """JoinGroup of a classic member, answered at once; an empty group becomes classic."""
        if self.members:
            reply = classic_members.join(
                self, request, result, context.settings, context.cluster, context.new_id
            )
            result.reply(answer, reply)
        else:
            self._become_classic(request, answer, result, context)

    def _become_classic(
        self, request: Join, answer: Answer, result: Result, context: Context
    ) -> None:
        if request.member_id:
            raise UnknownMember(f"group {self.group_id!r} not found")
        successor = ServedClassicGroup(self.group_id, state_ms=result.wall_ms)

        def replayed(error: ProtocolError | None) -> None:
            if error is None:
                context.place(successor)
                return
            for refused in successor.take_answers():
                refused(error)

        try:
            successor.join(request, answer, result, context)
        finally:
            if successor.is_forming:
                result.records[:0] = self.tombstones()
                result.after_replay.append(replayed)

    def sync(self, request: Sync, answer: Answer, result: Result, context: Context) -> None:
        """SyncGroup of a classic member."""
        result.reply(answer, classic_members.sync(self, request, result, context.cluster))

    def heartbeat(
        self, generation: int, member_id: str, instance_id: str | None, tick_ms: int
    ) -> None:
        """Returns None: `heartbeat_turn` serves the request, which may set a timer."""

    def heartbeat_turn(
        self,
        generation: int,
        member_id: str,
        instance_id: str | None,
        result: Result,
        context: Context,
    ) -> ErrorCode:
        """Heartbeat of a classic member."""
        return classic_members.heartbeat(
            self, generation, member_id, instance_id, result, context.cluster
        )

    def leave(
        self, leaving: Sequence[Leaving], result: Result, context: Context
    ) -> list[ErrorCode]:
        """LeaveGroup, which removes KIP-848 members and classic members."""
        codes: list[ErrorCode] = []
        gone: dict[str, ConsumerMember] = {}
        for each in leaving:
            try:
                member = classic_members.leaving_member(self, each.member_id, each.instance_id)
            except ProtocolError as error:
                codes.append(error.code)
                continue
            codes.append(ErrorCode.NONE)
            if member.member_id not in gone:
                gone[member.member_id] = member
                note_member(
                    self.group_id, member.member_id, member.value, "left", result,
                    by_administrator=not each.member_id, reason=each.reason,
                )
        if gone:
            heartbeat.drop(self, gone.values(), result, context.cluster)
        return codes

    def beat(self, request: Heartbeat, result: Result, context: Context) -> HeartbeatReply:
        """ConsumerGroupHeartbeat. Raises the errors of `heartbeat.heartbeat` and
        `heartbeat.leave`."""
        if request.member_epoch in (heartbeat.LEAVE, LEFT_FOR_NOW):
            return heartbeat.leave(self, request, result, context.cluster)
        return heartbeat.heartbeat(self, request, result, context.settings, context.cluster)

    def keep_alive(
        self, request: UnchangedHeartbeat, client: tuple[str, str], tick_ms: int, context: Context
    ) -> int | None:
        """ConsumerGroupHeartbeat without changes."""
        return heartbeat.keep_alive(
            self, request, client, tick_ms, context.settings, context.cluster
        )

    def check_commit(self, request: Commit, result: Result, context: Context) -> None:
        """Check that the client may commit."""
        offset_access.check_commit(self, request, context.cluster)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Check that the client may fetch offsets as this member."""
        offset_access.check_fetch(self, member_id, member_epoch)

    def fire(self, key: TimerKey, result: Result, context: Context) -> None:
        """Called when a timer of the group is due."""
        cluster = context.cluster
        if key.kind == heartbeat.SESSION:
            heartbeat.session_timer_fired(
                self, key.member_id, result, context.settings, cluster
            )
        elif key.kind == heartbeat.REBALANCE:
            heartbeat.rebalance_timer_fired(self, key.member_id, result, cluster)
        elif key.kind == classic_members.REJOIN:
            member = self.members.get(key.member_id)
            if member is not None and member.rejoin_asked:
                heartbeat.remove(
                    self, [member], result, cluster, "did_not_join",
                    timeout_ms=member.value.rebalance_timeout_ms,
                )
                result.set_timer(*key, after_ms=RETRY_MS)
        elif key.kind == migration.DOWNGRADE:
            migration.downgrade(self, result, context.settings, cluster)

    def loaded(self, result: Result, context: Context) -> None:
        """Starts every session and rebalance timeout."""
        heartbeat.arm_all(self, result, context.settings, context.cluster)

    def replay_record(self, key: Any, value: Any, aloud: bool) -> bool:
        """Applies a record of the group, of a member, or of an assignment."""
        if not (aloud and log.isEnabledFor(logging.DEBUG)):
            return replay.replay_consumer(self, key, value)
        before = self.summary if self.epoch else "absent"
        exists = replay.replay_consumer(self, key, value)
        after = self.summary if exists else "absent"
        if after != before:
            log.debug("group %s was %s; now it is %s", self.group_id, before, after)
        return exists
