"""The groups of one partition of `__consumer_offsets`: finds the group, asks its state machine.

Nothing here touches the log: methods put what they want into a `Result`, and `replay` takes in
the records once `runtime` has appended them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.groups import classic_join, classic_rebalance, classic_session, offset_requests
from ottla.groups.classic import ClassicGroup
from ottla.groups.classic_messages import Join, Leaving, Sync
from ottla.groups.errors import (
    GroupIdNotFound,
    IllegalGeneration,
    InvalidGroupId,
    InvalidSessionTimeout,
    NonEmptyGroup,
    UnknownMember,
)
from ottla.groups.offset_requests import Commit, FetchedOffset
from ottla.groups.offsets import Offsets
from ottla.groups.records import GroupKey, OffsetKey, Record
from ottla.groups.result import Answer, Result, TimerKey
from ottla.groups.settings import GroupSettings
from ottla.wire.errors import ErrorCode


class Shard:
    """One partition's groups and their offsets."""

    def __init__(
        self, partition: int, settings: GroupSettings, new_id: Callable[[], str]
    ) -> None:
        self.partition = partition
        self.settings = settings
        self.offsets = Offsets()
        self.groups: dict[str, ClassicGroup] = {}
        self._new_id = new_id

    def group(self, group_id: str) -> ClassicGroup:
        """The group, of whatever type. Raises GroupIdNotFound."""
        group = self.groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"there is no group {group_id!r}")
        return group

    # Classic groups

    def classic(self, group_id: str) -> ClassicGroup:
        """The living classic group. Raises UnknownMember: without a group, no member."""
        group = self.groups.get(group_id)
        if group is None:
            raise UnknownMember(f"there is no group {group_id!r}")
        return group

    def join(self, request: Join, answer: Answer, result: Result) -> None:
        """JoinGroup. Raises InvalidGroupId, InvalidSessionTimeout, and what `join` does."""
        settings = self.settings
        _need_group_id(request.group_id)
        smallest, largest = (
            settings.group_min_session_timeout_ms,
            settings.group_max_session_timeout_ms,
        )
        if not smallest <= request.session_timeout_ms <= largest:
            raise InvalidSessionTimeout(f"session.timeout.ms may be {smallest} to {largest}")
        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                raise UnknownMember(f"there is no group {request.group_id!r}")
            group = ClassicGroup(request.group_id)
            group.state_ms = result.wall_ms
            group_is_new = True
        else:
            group_is_new = False
        try:
            classic_join.join(group, request, answer, result, settings, self._new_id)
        finally:
            if group_is_new and (group.members or group.pending_joins):
                self.groups[request.group_id] = group

    def sync(self, request: Sync, answer: Answer, result: Result) -> None:
        """SyncGroup. Raises what `classic_session.sync` does, InvalidGroupId."""
        _need_group_id(request.group_id)
        classic_session.sync(self.classic(request.group_id), request, answer, result)

    def heartbeat(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None, tick_ms: int
    ) -> ErrorCode:
        """Heartbeat. Raises what `classic_session.heartbeat` does, InvalidGroupId."""
        _need_group_id(group_id)
        group = self.classic(group_id)
        return classic_session.heartbeat(group, generation, member_id, instance_id, tick_ms)

    def leave(self, group_id: str, leaving: Sequence[Leaving], result: Result) -> list[ErrorCode]:
        """LeaveGroup: a code for each member. Raises UnknownMember, InvalidGroupId."""
        _need_group_id(group_id)
        return classic_session.leave(self.classic(group_id), leaving, result, self.settings)

    # Offsets

    def commit(self, request: Commit, result: Result) -> list[ErrorCode]:
        """OffsetCommit and TxnOffsetCommit: a code for each partition.

        Raises GroupIdNotFound (IllegalGeneration below version 9) for a member of no group, and
        what `classic_session.check_commit` does.
        """
        group = self.groups.get(request.group_id)
        if group is None:
            if request.generation >= 0:
                error = GroupIdNotFound if request.version >= 9 else IllegalGeneration
                raise error(f"there is no group {request.group_id!r}")
        else:
            classic_session.check_commit(
                group,
                request.member_id,
                request.instance_id,
                request.generation,
                request.transactional,
            )
            member = group.members.get(request.member_id)
            if member is not None and not request.transactional:
                member.deadline_ms = result.tick_ms + member.session_timeout_ms
        return offset_requests.commit_records(request, result, self.settings)

    def fetch_offsets(
        self,
        group_id: str,
        wanted: Sequence[tuple[str, int]] | None,
        require_stable: bool,
    ) -> list[FetchedOffset]:
        """OffsetFetch of one group."""
        return offset_requests.fetch_offsets(self.offsets, group_id, wanted, require_stable)

    def delete_offsets(
        self, group_id: str, wanted: Sequence[tuple[str, int]], result: Result
    ) -> list[ErrorCode]:
        """OffsetDelete: a code for each partition. Raises GroupIdNotFound, NonEmptyGroup."""
        group = self.group(group_id)
        if not group.is_empty and not group.tells_topics:
            raise NonEmptyGroup("its members do not say which topics they read")
        codes = []
        for topic, partition in wanted:
            if group.subscribes_to(topic):
                codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            if self.offsets.find(group_id, topic, partition) is not None:
                result.records.append(Record(OffsetKey(group_id, topic, partition), None))
            codes.append(ErrorCode.NONE)
        return codes

    def forget_topics(self, topics: frozenset[str], result: Result) -> None:
        """Deleted topics take the offsets of all groups with them."""
        result.records.extend(self.offsets.tombstones_of_topics(topics))

    def expire(self, result: Result) -> None:
        """Forget offsets whose retention is over, and empty groups that have none left."""
        retention_ms = self.settings.offsets_retention_ms
        for group_id, group in self.groups.items():
            kept = False
            for (topic, partition), value in self.offsets.of_group(group_id).items():
                base_ms = offset_requests.expiry_base_ms(group, value)
                if (
                    base_ms is not None
                    and not group.subscribes_to(topic)
                    and not self.offsets.is_pending(group_id, topic, partition)
                    and offset_requests.has_expired(value, base_ms, result.wall_ms, retention_ms)
                ):
                    result.records.append(Record(OffsetKey(group_id, topic, partition), None))
                else:
                    kept = True
            if not kept and group.is_unused and not self.offsets.has_pending(group_id):
                result.records.extend(group.tombstones())

    # Administration

    def delete_group(self, group_id: str, result: Result) -> None:
        """DeleteGroups of one group. Raises GroupIdNotFound, NonEmptyGroup."""
        group = self.group(group_id)
        if not group.is_empty:
            raise NonEmptyGroup(f"{group_id} is {group.state_name}")
        result.records.extend(self.offsets.tombstones(group_id))
        result.records.extend(group.tombstones())

    # Time and the log

    def fire(self, key: TimerKey, result: Result) -> None:
        """A timer is due."""
        group = self.groups.get(key.group_id)
        if group is None:
            return
        if key.kind == classic_rebalance.SESSION:
            classic_rebalance.session_timer_fired(group, key.member_id, result, self.settings)
        elif key.kind == classic_rebalance.JOIN:
            classic_rebalance.join_timer_fired(group, result, self.settings)
        elif key.kind == classic_rebalance.SYNC:
            classic_rebalance.sync_timer_fired(group, result, self.settings)

    def replay(self, record: Record, producer_id: int = -1) -> None:
        """Take in one record, in the log's order. Nothing else changes what is durable."""
        key, value = record
        if isinstance(key, OffsetKey):
            self.offsets.replay(key, value, producer_id)
            if value is not None and key.group_id not in self.groups:
                self.groups[key.group_id] = ClassicGroup(key.group_id)
        elif isinstance(key, GroupKey):
            if value is None:
                self.groups.pop(key.group_id, None)
            else:
                group = self.groups.get(key.group_id)
                if group is None:
                    group = self.groups[key.group_id] = ClassicGroup(key.group_id)
                group.replay(value)

    def loaded(self, result: Result) -> None:
        """All records are read: every member's session begins."""
        for group in self.groups.values():
            for member in group.members.values():
                classic_rebalance.arm_session(group, member, result)

    def waiting(self) -> list[Answer]:
        """Take out all answers that are still owed, when the groups move to another broker."""
        answers = []
        for group in self.groups.values():
            for member in group.members.values():
                answers += [a for a in (member.awaits_join, member.awaits_sync) if a is not None]
                member.awaits_join = member.awaits_sync = None
        return answers


def _need_group_id(group_id: str) -> None:
    if not group_id:
        raise InvalidGroupId("the group id is empty")
