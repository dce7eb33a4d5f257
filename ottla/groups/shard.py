"""The groups of one partition of `__consumer_offsets`: finds the group and calls its state machine.

Nothing here touches the log: methods put their effects into a `Result`, and `replay` applies the
records once `runtime` has appended them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ottla.groups import offset_requests, sweeps
from ottla.groups.absent import AbsentGroup
from ottla.groups.classic.requests import ServedClassicGroup
from ottla.groups.cluster_view import ClusterView, NoCluster
from ottla.groups.consumer import heartbeat
from ottla.groups.consumer.requests import ServedConsumerGroup
from ottla.groups.errors import (
    FINAL,
    CoordinatorLoadInProgress,
    GroupIdNotFound,
    InvalidGroupId,
    InvalidSessionTimeout,
    NonEmptyGroup,
)
from ottla.groups.group import Context, Group
from ottla.groups.offsets import Offsets
from ottla.groups.records import OffsetKey, Record
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.groups.classic.messages import Join, Leaving, Sync
    from ottla.groups.consumer.heartbeat import Heartbeat, HeartbeatReply, UnchangedHeartbeat
    from ottla.groups.offset_requests import Commit, FetchedOffset
    from ottla.groups.result import Answer, Result, TimerKey
    from ottla.groups.settings import GroupSettings
    from ottla.wire.errors import ProtocolError

NO_CLUSTER = NoCluster()

KINDS: dict[type, Callable[[str], Group]] = {
    key: kind for kind in (ServedClassicGroup, ServedConsumerGroup) for key in kind.keys
}
"""The kind of group that a record belongs to, by the type of the record's key."""
G = TypeVar("G", bound=Group)

OFFSETS_AT_ONCE = 300
"""The most offsets that one turn of the loop commits, reads or deletes; this takes one or two
milliseconds."""

EXPIRE = "expire"
"""A timer of the shard, not of a group: expires offsets."""


class Shard:
    """One partition's groups and their offsets."""

    final: ClassVar[tuple[type[ProtocolError], ...]] = FINAL

    def __init__(
        self,
        partition: int,
        settings: GroupSettings,
        new_id: Callable[[], str],
        cluster: ClusterView = NO_CLUSTER,
        replicated: bool = False,
    ) -> None:
        """With `replicated`, another broker may take over before this broker learns of it."""
        self.partition, self.replicated = partition, replicated
        self.offsets = Offsets()
        self.groups: dict[str, Group] = {}
        self.context = Context(settings, cluster, new_id, self._place)
        self.is_read = self.is_loaded = False
        self.loaded_ms = -1
        """The Unix time at which this broker began to coordinate the groups."""
        self._sweeps = sweeps.Sweeps()
        self._deleted_topics: set[str] = set()
        self._kept_topics: set[str] = set()
        """Deleted topics with offsets that the log refused to remove: `expire` tries again."""
        self._deleting: set[str] = set()
        """Groups with more offsets than one turn deletes, while they are being deleted."""

    def group(self, group_id: str) -> Group:
        """The group, of whatever type. Raises GroupIdNotFound."""
        group = self.groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"group {group_id!r} not found")
        return group

    def group_of(self, kind: type[G], group_id: str) -> G | None:
        """The group if it is of this kind; for requests that are specific to a kind, such as
        descriptions."""
        group = self.groups.get(group_id)
        return group if isinstance(group, kind) else None

    def _served(self, group_id: str) -> Group | AbsentGroup:
        return self.groups.get(group_id) or AbsentGroup(group_id)

    def _place(self, group: Group) -> None:
        """Adds a group that forms in memory; it has no record before its first assignment."""
        self.groups[group.group_id] = group

    def confirm(self, group_id: str, result: Result) -> None:
        """If `replicated` is set and the result has no records yet, adds the tombstone of an offset
        that does not exist. The tombstone changes nothing. Only the current coordinator can commit
        it, so its commit proves that no other broker had taken over."""
        if self.replicated and not result.records:
            result.records.append(Record(OffsetKey(group_id, "", 0), None))

    # Requests of the classic protocol

    def join(self, request: Join, answer: Answer, result: Result) -> None:
        """JoinGroup. Raises InvalidGroupId, InvalidSessionTimeout, CoordinatorLoadInProgress, and
        the errors of the group's `join`."""
        settings = self.context.settings
        _need_group_id(request.group_id)
        self._refuse_while_deleted(request.group_id)
        smallest, largest = (
            settings.group_min_session_timeout_ms,
            settings.group_max_session_timeout_ms,
        )
        if not smallest <= request.session_timeout_ms <= largest:
            raise InvalidSessionTimeout(f"session.timeout.ms must be from {smallest} to {largest}")
        self._served(request.group_id).join(request, answer, result, self.context)

    def sync(self, request: Sync, answer: Answer, result: Result) -> None:
        """SyncGroup. Raises InvalidGroupId, and the errors of the group's `sync`."""
        _need_group_id(request.group_id)
        self._served(request.group_id).sync(request, answer, result, self.context)

    def heartbeat(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None, tick_ms: int
    ) -> ErrorCode | None:
        """Serve a Heartbeat if it adds no record and sets no timer. Returns None if it may do
        either: then call `heartbeat_turn`.

        Raises UnknownMember, FencedInstance, IllegalGeneration, InvalidGroupId.
        """
        group = self.groups.get(group_id)
        if group is not None:
            return group.heartbeat(generation, member_id, instance_id, tick_ms)
        _need_group_id(group_id)
        return AbsentGroup(group_id).heartbeat(generation, member_id, instance_id, tick_ms)

    def heartbeat_turn(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        result: Result,
    ) -> ErrorCode:
        """Serve a Heartbeat that may set a timer. Raises GroupIdNotFound, and the errors of
        `heartbeat`."""
        group = self.group(group_id)
        return group.heartbeat_turn(generation, member_id, instance_id, result, self.context)

    def leave(self, group_id: str, leaving: Sequence[Leaving], result: Result) -> list[ErrorCode]:
        """LeaveGroup: a code for each member. Raises UnknownMember, InvalidGroupId."""
        _need_group_id(group_id)
        codes = self._served(group_id).leave(leaving, result, self.context)
        if any(codes):
            self.confirm(group_id, result)
        return codes

    # Requests of KIP-848

    def beat(self, request: Heartbeat, result: Result) -> HeartbeatReply:
        """ConsumerGroupHeartbeat. Raises CoordinatorLoadInProgress, and the errors of
        `heartbeat.check` and the group's `beat`."""
        heartbeat.check(request, self.context.settings.group_consumer_assignors)
        self._refuse_while_deleted(request.group_id)
        if request.member_epoch == heartbeat.JOIN and not request.member_id:
            request = replace(request, member_id=self.context.new_id())
        return self._served(request.group_id).beat(request, result, self.context)

    def keep_alive(
        self, group_id: str, request: UnchangedHeartbeat, client: tuple[str, str], tick_ms: int
    ) -> int | None:
        """ConsumerGroupHeartbeat without changes; None if `beat` has to be called."""
        return self._served(group_id).keep_alive(request, client, tick_ms, self.context)

    # Offsets

    def commit(self, request: Commit, result: Result) -> list[ErrorCode]:
        """OffsetCommit and TxnOffsetCommit: a code for each partition.

        Raises CoordinatorLoadInProgress, and the errors of the group's `check_commit`.
        """
        group_id = request.group_id
        if self._deleting:
            self._refuse_while_deleted(group_id)
        group = self.groups.get(group_id) or AbsentGroup(group_id)
        group.check_commit(request, result, self.context)
        codes = offset_requests.commit_records(request, result, self.context.settings)
        if request.setter is not None:
            request.setter.back += offset_requests.records_back(request, codes, self.offsets)
        return codes

    def fetch_offsets(
        self,
        group_id: str,
        wanted: Sequence[tuple[str, int]] | None,
        require_stable: bool,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> list[FetchedOffset]:
        """OffsetFetch of one group. Raises UnknownMember, StaleMemberEpoch."""
        self._served(group_id).check_fetch(member_id, member_epoch)
        return offset_requests.fetch_offsets(self.offsets, group_id, wanted, require_stable)

    def fetchable(self, group_id: str, require_stable: bool) -> list[tuple[str, int]]:
        """The partitions that an OffsetFetch of all partitions returns."""
        return offset_requests.fetchable(self.offsets, group_id, require_stable)

    def delete_offsets(
        self, group_id: str, wanted: Sequence[tuple[str, int]], result: Result
    ) -> list[ErrorCode]:
        """OffsetDelete: a code for each partition.

        Raises InvalidGroupId, GroupIdNotFound, NonEmptyGroup.
        """
        _need_group_id(group_id)
        group = self.group(group_id)
        if not group.is_empty and not group.tells_topics:
            raise NonEmptyGroup(
                "no offsets can be deleted: the group has members whose subscriptions are unknown")
        codes = []
        for topic, partition in wanted:
            if group.subscribes_to(topic):
                codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            if self.offsets.has_offset(group_id, topic, partition):
                result.records.append(Record(OffsetKey(group_id, topic, partition), None))
            codes.append(ErrorCode.NONE)
        # Even if nothing was deleted, the client relies on the answer: see `confirm`.
        self.confirm(group_id, result)
        return codes

    def forget_topics(self, topics: frozenset[str], result: Result) -> None:
        """Removes the offsets of deleted topics from all groups."""
        self._deleted_topics |= topics
        self._sweeps.begin(
            "deleted topics",
            lambda: sweeps.forgetting(
                self._deleted_topics, self._kept_topics, self.offsets,
                lambda: self.context.cluster,
            ),
            result,
        )

    def expire(self, result: Result) -> None:
        """Removes expired offsets, offsets of deleted topics that the log refused to remove, and
        empty groups that have no offsets left."""
        settings = self.context.settings
        result.set_timer(EXPIRE, "", after_ms=settings.offsets_retention_check_interval_ms)
        self._sweeps.begin(
            EXPIRE,
            lambda: sweeps.expiring(self.groups, self.offsets, settings.offsets_retention_ms),
            result,
        )
        if self._kept_topics:
            topics = frozenset(self._kept_topics)
            self._kept_topics.clear()
            self.forget_topics(topics, result)

    # Administration

    def delete_group(self, group_id: str, result: Result) -> bool:
        """DeleteGroups: delete a slice of a group's offsets, and the group after the last slice.
        Returns whether offsets may be left.

        Until this returns False, joins and commits are refused, and the caller has to call this
        again, or `keep_group`. Raises GroupIdNotFound, NonEmptyGroup.
        """
        group = self.group(group_id)
        if not group.is_empty:
            raise NonEmptyGroup(
                f"group {group_id} is {group.state_name}: only a group without members can be"
                " deleted"
            )
        tombstones = self.offsets.tombstones(group_id, OFFSETS_AT_ONCE)
        result.records.extend(tombstones)
        if len(tombstones) == OFFSETS_AT_ONCE:
            self._deleting.add(group_id)
            return True
        self._deleting.discard(group_id)
        result.records.extend(group.tombstones())
        return False

    def keep_group(self, group_id: str) -> None:
        """Stop a deletion because the log has refused its records: the group stays."""
        self._deleting.discard(group_id)

    def _refuse_while_deleted(self, group_id: str) -> None:
        if group_id in self._deleting:
            raise CoordinatorLoadInProgress(f"group {group_id!r} is being deleted; retry")

    # Time and the log

    def fire(self, key: TimerKey, result: Result) -> None:
        """Called when a timer is due."""
        if key.kind == EXPIRE:
            self.expire(result)
            return
        if key.kind == sweeps.SWEEP:
            self._sweeps.do_slice(result)
            return
        group = self.groups.get(key.owner)
        if group is not None:
            group.fire(key, result, self.context)

    def replay(self, record: Record, producer_id: int = -1) -> None:
        """Applies one record, in the log's order. Only this and the markers of transactions
        (`Offsets.ending_steps`) change recorded state."""
        key, value = record
        if type(key) is OffsetKey:
            self.offsets.replay(key, value, producer_id)
        else:
            self._replay_group(key, value)
        if key.group_id not in self.groups and self.offsets.has_any(key.group_id):
            # A removed group's offsets stay, in a group without members.
            self.groups[key.group_id] = ServedClassicGroup(key.group_id)

    def _replay_group(self, key: Any, value: Any) -> None:
        """Applies a group's record; the first record of another kind replaces the group."""
        group, kind = self.groups.get(key.group_id), KINDS[type(key)]
        if group is None or type(group) is not kind:
            if value is None:
                return  # a tombstone of a group that no longer exists
            group = self.groups[key.group_id] = kind(key.group_id)
        if not group.replay_record(key, value, self.is_loaded):
            del self.groups[key.group_id]

    def loaded(self, result: Result) -> None:
        """Starts every member's session after all records have been read."""
        self.is_loaded, self.loaded_ms = True, result.wall_ms
        interval_ms = self.context.settings.offsets_retention_check_interval_ms
        result.set_timer(EXPIRE, "", after_ms=interval_ms)
        for group in self.groups.values():
            group.loaded(result, self.context)

    def waiting(self) -> list[Answer]:
        """Removes and returns all pending answers, when the groups move to another broker."""
        return [answer for group in self.groups.values() for answer in group.take_answers()]


def _need_group_id(group_id: str) -> None:
    if not group_id:
        raise InvalidGroupId("the group id is empty")
