"""A KIP-848 group as it will be once the records of this turn are replayed.

A heartbeat may change the member. That change may raise the group's epoch, then replace the
targets, and then the partitions that the member owns. Each step builds on the previous one, but the
group must not change before the log has the records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.groups.consumer.assignors import ASSIGNORS, Subscriber
from ottla.groups.consumer.group import ConsumerGroup, hash_of
from ottla.groups.consumer.notes import note_began, note_emptied
from ottla.groups.consumer.patterns import matching
from ottla.groups.consumer.reconciliation import Owned, reconcile
from ottla.groups.records import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    CurrentMemberKey,
    CurrentMemberValue,
    Record,
    RegularExpressionKey,
    RegularExpressionValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetMemberKey,
    TargetMemberValue,
    TopicPartition,
)

if TYPE_CHECKING:
    from ottla.groups.cluster_view import ClusterView, Topic
    from ottla.groups.result import Result
    from ottla.wire.errors import ProtocolError


class Draft:
    """Each method adds records to the result; later methods see the group as if these records were
    replayed."""

    def __init__(
        self,
        group: ConsumerGroup,
        result: Result,
        cluster: ClusterView,
        assignors: Sequence[str] = tuple(ASSIGNORS),
        sees: Callable[[str], bool] | None = None,
        pattern: str | None = None,
    ) -> None:
        """`sees` returns whether the sender of the request may see a topic; None if all clients may
        see all topics. `pattern` is the pattern that the sender subscribes to."""
        self._sees, self._own = sees, pattern or ""
        self._group = group
        self._result = result
        self._cluster = cluster
        self._assignors = assignors
        self._id = group.group_id
        self.members = {member_id: m.value for member_id, m in group.members.items()}
        self.targets = dict(group.targets)
        self.patterns = group.patterns
        self.epoch = group.epoch
        self.target_epoch = group.target_epoch

    def put(self, member_id: str, value: ConsumerMemberValue) -> None:
        """Adds or changes a member's description."""
        self.members[member_id] = value
        self._record(Record(ConsumerMemberKey(self._id, member_id), value))

    def drop(self, member_id: str) -> None:
        """Removes a member."""
        self.members.pop(member_id, None)
        self.targets.pop(member_id, None)
        for record in self._group.tombstones_of(member_id):
            self._record(record)

    def set_target(self, member_id: str, partitions: frozenset[TopicPartition]) -> None:
        """Sets a member's target assignment."""
        if self.targets.get(member_id) != partitions:
            self.targets[member_id] = partitions
            key = TargetMemberKey(self._id, member_id)
            self._record(Record(key, TargetMemberValue(partitions)))

    def set_current(self, member_id: str, current: CurrentMemberValue) -> None:
        """Sets the partitions that a member owns."""
        assert current.epoch <= self.epoch, "the member's epoch is above the group's epoch"
        self._record(Record(CurrentMemberKey(self._id, member_id), current))

    def set_target_epoch(self, epoch: int) -> None:
        """Sets the epoch of the targets."""
        assert self.target_epoch <= epoch, "the target epoch would fall"
        assert epoch <= self.epoch, "the target epoch is above the group's epoch"
        self.target_epoch = epoch
        value = TargetEpochValue(epoch, self._result.wall_ms)
        self._record(Record(TargetEpochKey(self._id), value))

    def update(self, changed: bool) -> None:
        """Resolves patterns, increments the epoch and assigns again, if subscriptions have changed
        (`changed`) or topics have changed."""
        version = self._cluster.version
        if changed or not self._group.has_seen(version, self._own):
            recorded = len(self._result.records)
            self._resolve_patterns()
            self._bump_epoch(changed)
            if len(self._result.records) == recorded:
                # If there are new records, `seen_version` stays, so that the next heartbeat checks
                # again: the log may refuse the records.
                self._group.seen_version = version
        if self.epoch > self.target_epoch:
            self._assign()

    def bump_epoch(self) -> None:
        """Makes the next heartbeat assign again; an empty group has nothing to assign."""
        self._bump_epoch(True)
        if not self.members:
            # No heartbeat will set the target epoch later, since the group has no members
            # (KAFKA-20442).
            self.set_target_epoch(self.epoch)

    def reconcile(
        self, member_id: str, current: CurrentMemberValue, owned: Owned
    ) -> CurrentMemberValue:
        """Takes a member's next step towards its target."""

        def is_held(partition: TopicPartition) -> bool:
            owner = self._group.owners.get(partition, member_id)
            return owner != member_id and owner in self.members

        target = self.targets.get(member_id, frozenset())
        updated = reconcile(current, target, self.target_epoch, owned, is_held)
        if updated is not current:
            self.set_current(member_id, updated)
        return updated

    def topics_of(self, value: ConsumerMemberValue) -> frozenset[str]:
        """The topics that a member subscribes to, by name or by pattern."""
        if value.pattern and (resolved := self.patterns.get(value.pattern)) is not None:
            return value.topics | resolved.topics
        return value.topics

    def _record(self, record: Record) -> None:
        self._result.records.append(record)

    def _topics(self) -> dict[str, Topic]:
        names: set[str] = set()
        for value in self.members.values():
            names |= self.topics_of(value)
        topics = ((name, self._cluster.topic(name)) for name in names)
        return {name: topic for name, topic in topics if topic is not None}

    def _resolve_patterns(self) -> None:
        used = {value.pattern for value in self.members.values() if value.pattern}
        mine = used if self._sees is None else used & self._own_if_due()
        names = list(filter(self._sees, self._cluster.topic_names())) if mine else []
        self._once_recorded(mine, self._cluster.version)
        resolved = {name: self.patterns[name] for name in used - mine if name in self.patterns}
        for pattern in sorted(mine):
            topics = matching(pattern, names)
            value = self.patterns.get(pattern)
            if value is None or value.topics != topics:
                value = RegularExpressionValue(
                    topics, self._cluster.version, self._result.wall_ms
                )
                self._record(Record(RegularExpressionKey(self._id, pattern), value))
            resolved[pattern] = value
        for pattern in sorted(self.patterns.keys() - used):
            self._record(Record(RegularExpressionKey(self._id, pattern), None))
        self.patterns = resolved

    def _once_recorded(self, patterns: set[str], version: int) -> None:
        """Notes that the patterns are resolved, once the log has accepted the records of their
        matches."""
        group = self._group

        def replayed(error: ProtocolError | None) -> None:
            if error is None:
                group.resolved |= dict.fromkeys(patterns, version)

        self._result.after_replay.append(replayed)

    def _own_if_due(self) -> set[str]:
        """The sender's pattern, or nothing if it was resolved with this metadata version already.
        Two members may have the same pattern, but access to different topics. If each heartbeat
        resolved the pattern, these members would replace each other's matches each time."""
        now = self._group.resolved.get(self._own) == self._cluster.version
        return set() if now and self._own in self.patterns else {self._own}

    def _bump_epoch(self, changed: bool) -> None:
        metadata_hash = hash_of(self._topics())
        if changed or metadata_hash != self._group.metadata_hash:
            if not changed:
                self._result.note(self._id, "topics_changed")
            self.epoch += 1
            if self.members:
                note_began(self._id, self._result)
            else:
                note_emptied(self._id, self._result)
            value = ConsumerGroupValue(self.epoch, metadata_hash)
            self._record(Record(ConsumerGroupKey(self._id), value))

    def _assign(self) -> None:
        subscribers = {
            member_id: Subscriber(
                self.topics_of(value),
                value.instance_id,
                self.targets.get(member_id, frozenset()),
            )
            for member_id, value in self.members.items()
        }
        assignor = ASSIGNORS[preferred_assignor(self.members.values(), self._assignors)]
        for member_id, partitions in assignor(subscribers, self._topics()).items():
            self.set_target(member_id, partitions)
        self.set_target_epoch(self.epoch)


def topics_changed(group: ConsumerGroup, cluster: ClusterView) -> bool:
    """Whether the group's topics have changed since the last check. If the group has patterns, any
    new version of the metadata counts as a change."""
    if group.seen_version == cluster.version:
        return False
    names = {name for member in group.members.values() for name in group.topics_of(member.value)}
    topics = ((name, cluster.topic(name)) for name in names)
    known_topics = {name: topic for name, topic in topics if topic is not None}
    if group.patterns or hash_of(known_topics) != group.metadata_hash:
        return True
    group.seen_version = cluster.version
    return False


def subscription_changed(before: ConsumerMemberValue, after: ConsumerMemberValue) -> bool:
    """Whether a change of a member's description requires a new assignment."""
    return (before.topics, before.pattern, before.assignor, before.rack_id) != (
        after.topics, after.pattern, after.assignor, after.rack_id,
    )


def preferred_assignor(
    values: Iterable[ConsumerMemberValue], assignors: Sequence[str]
) -> str:
    """The assignor with the most votes; members without a preference do not vote.

    A stored vote for an assignor that is no longer in `assignors` does not count.
    """
    votes = Counter(
        value.assignor for value in values if value.assignor and value.assignor in assignors
    )
    if not votes:
        return assignors[0]
    return min(votes, key=lambda name: (-votes[name], name))
