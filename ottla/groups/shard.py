"""The groups of one partition of `__consumer_offsets`: finds the group and calls its state machine.

Nothing here touches the log: methods put their effects into a `Result`, and `replay` applies the
records once `runtime` has appended them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ottla.groups import offset_requests, sweeps
from ottla.groups.classic import join as classic_join
from ottla.groups.classic import rebalance as classic_rebalance
from ottla.groups.classic import session as classic_session
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.classic.messages import Join, Leaving, Sync
from ottla.groups.cluster_view import Cluster, NoCluster
from ottla.groups.consumer import classic_members as consumer_classic
from ottla.groups.consumer import heartbeat as consumer_heartbeat
from ottla.groups.consumer import migration as consumer_migration
from ottla.groups.consumer import offset_access as consumer_offsets
from ottla.groups.consumer.group import LEFT_FOR_NOW, ConsumerGroup
from ottla.groups.consumer.heartbeat import Alive, Beat, Beaten
from ottla.groups.consumer.replay import replay_consumer, upgraded
from ottla.groups.errors import (
    GroupIdNotFound,
    IllegalGeneration,
    InvalidGroupId,
    InvalidSessionTimeout,
    NonEmptyGroup,
    UnknownMember,
)
from ottla.groups.group import Group
from ottla.groups.offset_requests import Commit, FetchedOffset
from ottla.groups.offsets import Offsets
from ottla.groups.records import GroupKey, GroupValue, OffsetKey, Record
from ottla.groups.result import RETRY_MS, Answer, Result, TimerKey
from ottla.groups.settings import GroupSettings
from ottla.wire.errors import ErrorCode, ProtocolError

log = logging.getLogger("ottla.groups")

NO_CLUSTER = NoCluster()

EXPIRE = "expire"
"""A timer of the shard, not of a group: expires offsets."""


class Shard:
    """One partition's groups and their offsets."""

    def __init__(
        self,
        partition: int,
        settings: GroupSettings,
        new_id: Callable[[], str],
        cluster: Cluster = NO_CLUSTER,
    ) -> None:
        self.partition = partition
        self.settings = settings
        self.offsets = Offsets()
        self.groups: dict[str, ClassicGroup | ConsumerGroup] = {}
        self.cluster: Cluster = cluster
        self.is_loaded = False
        self._sweeps = sweeps.Sweeps()
        self._deleted_topics: set[str] = set()
        self._new_id = new_id

    def group(self, group_id: str) -> Group:
        """The group, of whatever type. Raises GroupIdNotFound."""
        group = self.groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"group {group_id!r} not found")
        return group

    # Classic groups

    def classic(self, group_id: str) -> ClassicGroup:
        """The classic group. Raises UnknownMember: without a group there is no member."""
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise UnknownMember(f"classic group {group_id!r} not found")
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
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            reply = consumer_classic.join(
                group, request, result, settings, self.cluster, self._new_id
            )
            result.reply(answer, reply)
            return
        if isinstance(group, ClassicGroup):
            classic_join.join(group, request, answer, result, settings, self._new_id)
            return
        if request.member_id:
            raise UnknownMember(f"group {request.group_id!r} not found")
        former, group = group, ClassicGroup(request.group_id, state_ms=result.wall_ms)
        try:
            classic_join.join(group, request, answer, result, settings, self._new_id)
        finally:
            if group.members or group.pending_joins:
                self.groups[request.group_id] = group
                if former is not None:
                    result.records[:0] = former.tombstones()

    def sync(self, request: Sync, answer: Answer, result: Result) -> None:
        """SyncGroup. Raises what `classic_session.sync` does, InvalidGroupId."""
        _need_group_id(request.group_id)
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            result.reply(answer, consumer_classic.sync(group, request, result, self.cluster))
        else:
            classic_session.sync(self.classic(request.group_id), request, answer, result)

    def heartbeat(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None, tick_ms: int
    ) -> ErrorCode:
        """Heartbeat. Raises what `classic_session.heartbeat` does, InvalidGroupId."""
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            _need_group_id(group_id)
            group = self.classic(group_id)
        return classic_session.heartbeat(group, generation, member_id, instance_id, tick_ms)

    def heartbeat_to_consumers(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        result: Result,
    ) -> ErrorCode:
        """Heartbeat of a classic member of a KIP-848 group, which may set a timer."""
        return consumer_classic.heartbeat(
            self.consumer(group_id), generation, member_id, instance_id, result, self.cluster
        )

    def speaks_kip_848(self, group_id: str) -> bool:
        """Whether the group is one of KIP-848."""
        return isinstance(self.groups.get(group_id), ConsumerGroup)

    def leave(self, group_id: str, leaving: Sequence[Leaving], result: Result) -> list[ErrorCode]:
        """LeaveGroup: a code for each member. Raises UnknownMember, InvalidGroupId."""
        _need_group_id(group_id)
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return self._leave_consumers(group, leaving, result)
        return classic_session.leave(self.classic(group_id), leaving, result, self.settings)

    def _leave_consumers(
        self, group: ConsumerGroup, leaving: Sequence[Leaving], result: Result
    ) -> list[ErrorCode]:
        codes, gone = [], {}
        for each in leaving:
            try:
                member = consumer_classic.leaving_member(group, each.member_id, each.instance_id)
                gone[member.member_id] = member
                codes.append(ErrorCode.NONE)
            except ProtocolError as error:
                codes.append(error.code)
        if gone:
            consumer_heartbeat.remove(group, list(gone.values()), result, self.cluster)
        return codes

    # KIP-848 groups

    def consumer(self, group_id: str) -> ConsumerGroup:
        """The KIP-848 group. Raises GroupIdNotFound."""
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise GroupIdNotFound(f"consumer group {group_id!r} not found")
        return group

    def beat(self, request: Beat, result: Result) -> Beaten:
        """ConsumerGroupHeartbeat. Raises what `check`, `heartbeat` and `leave` of
        `consumer_heartbeat` do, GroupIdNotFound."""
        consumer_heartbeat.check(request, self.settings.group_consumer_assignors)
        if request.member_epoch in (consumer_heartbeat.LEAVE, LEFT_FOR_NOW):
            group = self.consumer(request.group_id)
            return consumer_heartbeat.leave(group, request, result, self.cluster)
        if request.member_epoch == consumer_heartbeat.JOIN:
            group = self._joinable(request, result)
            if not request.member_id:
                request = replace(request, member_id=self._new_id())
        else:
            group = self.consumer(request.group_id)
        return consumer_heartbeat.heartbeat(
            group, request, result, self.settings, self.cluster
        )

    def keep_alive(
        self, group_id: str, request: Alive, client: tuple[str, str], tick_ms: int
    ) -> int | None:
        """ConsumerGroupHeartbeat without changes; None if `beat` has to be called."""
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return None
        return consumer_heartbeat.keep_alive(
            group, request, client, tick_ms, self.settings, self.cluster
        )

    def _joinable(self, request: Beat, result: Result) -> ConsumerGroup:
        """The KIP-848 group that a member wants to join, created if it does not exist."""
        group_id = request.group_id
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if isinstance(group, ClassicGroup):
            if group.members:
                consumer_migration.upgrade(group, result, self.settings, self.cluster)
                modern = upgraded(group_id, result)
                consumer_heartbeat.arm_all(modern, result, self.settings, self.cluster)
                return modern
            if group.protocol_type is not None:
                result.records.extend(group.tombstones())
        # The first member of a group gets epoch 2 in Kafka 4.3 and here; with a pattern alone 1.
        return ConsumerGroup(group_id, epoch=1 if request.pattern is None else 0)

    # Offsets

    def commit(self, request: Commit, result: Result) -> list[ErrorCode]:
        """OffsetCommit and TxnOffsetCommit: a code for each partition.

        Raises GroupIdNotFound (IllegalGeneration below version 9) for a member of an unknown group,
        and the errors of `classic/session.check_commit`.
        """
        group = self.groups.get(request.group_id)
        if group is None:
            if request.generation >= 0:
                error = GroupIdNotFound if request.version >= 9 else IllegalGeneration
                raise error(f"group {request.group_id!r} not found")
        elif isinstance(group, ConsumerGroup):
            consumer_offsets.check_commit(group, request, self.cluster)
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
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> list[FetchedOffset]:
        """OffsetFetch of one group. Raises UnknownMember, StaleMemberEpoch."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            consumer_offsets.check_fetch(group, member_id, member_epoch)
        return offset_requests.fetch_offsets(self.offsets, group_id, wanted, require_stable)

    def delete_offsets(
        self, group_id: str, wanted: Sequence[tuple[str, int]], result: Result
    ) -> list[ErrorCode]:
        """OffsetDelete: a code for each partition.

        Raises InvalidGroupId, GroupIdNotFound, NonEmptyGroup.
        """
        _need_group_id(group_id)
        group = self.group(group_id)
        if not group.is_empty and not group.tells_topics:
            raise NonEmptyGroup("the topics that its members read are unknown")
        codes = []
        for topic, partition in wanted:
            if group.subscribes_to(topic):
                codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            if self.offsets.has_offset(group_id, topic, partition):
                result.records.append(Record(OffsetKey(group_id, topic, partition), None))
            codes.append(ErrorCode.NONE)
        return codes

    def forget_topics(self, topics: frozenset[str], result: Result) -> None:
        """Removes the offsets of deleted topics from all groups."""
        self._deleted_topics |= topics
        self._sweeps.begin(
            "deleted topics",
            lambda: sweeps.forgetting(self._deleted_topics, self.offsets, lambda: self.cluster),
            result,
        )

    def expire(self, result: Result) -> None:
        """Removes expired offsets, and empty groups that have none left."""
        settings = self.settings
        result.set_timer(EXPIRE, "", after_ms=settings.offsets_retention_check_interval_ms)
        self._sweeps.begin(
            EXPIRE,
            lambda: sweeps.expiring(self.groups, self.offsets, settings.offsets_retention_ms),
            result,
        )

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
        """Called when a timer is due."""
        if key.kind == EXPIRE:
            self.expire(result)
            return
        if key.kind == sweeps.SWEEP:
            self._sweeps.go_on(result)
            return
        group = self.groups.get(key.owner)
        if isinstance(group, ConsumerGroup):
            self._fire_consumer(group, key, result)
        elif group is None:
            return
        elif key.kind == classic_rebalance.SESSION:
            classic_rebalance.session_timer_fired(group, key.member_id, result, self.settings)
        elif key.kind == classic_rebalance.JOIN:
            classic_rebalance.join_timer_fired(group, result, self.settings)
        elif key.kind == classic_rebalance.SYNC:
            classic_rebalance.sync_timer_fired(group, result, self.settings)
        elif key.kind == consumer_migration.REJOIN_ALL:
            for member in group.members.values():
                classic_rebalance.arm_session(group, member, result)
            classic_rebalance.rebalance(group, result, self.settings)

    def _fire_consumer(self, group: ConsumerGroup, key: TimerKey, result: Result) -> None:
        if key.kind == consumer_heartbeat.SESSION:
            consumer_heartbeat.session_timer_fired(group, key.member_id, result, self.cluster)
        elif key.kind == consumer_heartbeat.REBALANCE:
            consumer_heartbeat.rebalance_timer_fired(group, key.member_id, result, self.cluster)
        elif key.kind == consumer_classic.REJOIN:
            member = group.members.get(key.member_id)
            if member is not None and member.rejoin_asked:
                consumer_heartbeat.remove(group, [member], result, self.cluster)
                result.set_timer(*key, after_ms=RETRY_MS)
        elif key.kind == consumer_migration.DOWNGRADE:
            consumer_migration.downgrade(group, result, self.settings, self.cluster)

    def replay(self, record: Record, producer_id: int = -1) -> None:
        """Applies one record, in the log's order. Nothing else changes durable state."""
        key, value = record
        if isinstance(key, OffsetKey):
            self.offsets.replay(key, value, producer_id)
        elif isinstance(key, GroupKey):
            self._replay_classic(key.group_id, value)
        elif self.is_loaded and log.isEnabledFor(logging.DEBUG):
            self._replay_aloud(key, value)
        else:
            replay_consumer(self.groups, key, value)
        if key.group_id not in self.groups and self.offsets.has_any(key.group_id):
            # A removed group's offsets stay, in a group without members.
            self.groups[key.group_id] = ClassicGroup(key.group_id)

    def _replay_aloud(self, key: Any, value: Any) -> None:
        """Take a record of a KIP-848 group, and log what it makes of the group's state."""
        before = self._described(key.group_id)
        replay_consumer(self.groups, key, value)
        after = self._described(key.group_id)
        if after != before:
            log.debug("group %s: %s to %s", key.group_id, before, after)

    def _described(self, group_id: str) -> str:
        group = self.groups.get(group_id)
        if group is None:
            return "none"
        return group.summary

    def _replay_classic(self, group_id: str, value: GroupValue | None) -> None:
        group = self.groups.get(group_id)
        if value is None:
            if isinstance(group, ClassicGroup):
                del self.groups[group_id]
            return
        if not isinstance(group, ClassicGroup):
            group = self.groups[group_id] = ClassicGroup(group_id)
        group.replay(value, self.is_loaded)

    def loaded(self, result: Result) -> None:
        """Starts every member's session after all records have been read."""
        self.is_loaded = True
        interval_ms = self.settings.offsets_retention_check_interval_ms
        result.set_timer(EXPIRE, "", after_ms=interval_ms)
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                consumer_heartbeat.arm_all(group, result, self.settings, self.cluster)
            else:
                for member in group.members.values():
                    classic_rebalance.arm_session(group, member, result)

    def waiting(self) -> list[Answer]:
        """Removes and returns all pending answers, when the groups move to another broker."""
        return [answer for group in self.groups.values() for answer in group.take_answers()]


def _need_group_id(group_id: str) -> None:
    if not group_id:
        raise InvalidGroupId("the group id is empty")
