"""Every partition on this broker, kept in step with the metadata image."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.log.files.disk import is_passing
from ottla.log.partition.config import LogConfig
from ottla.log.partition.damage import forget_cuts
from ottla.replication.counters import PartitionCounters
from ottla.replication.metadata import MetadataImage, PartitionState, TopicImage
from ottla.replication.partition import Partition
from ottla.replication.roles.assignment import assume, lead_alone
from ottla.wire.errors import (
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    ProtocolError,
    StorageFailed,
    UnknownTopicOrPartition,
)
from ottla.wire.marks import reached

if TYPE_CHECKING:
    from ottla.log.storage.storage import Storage
    from ottla.replication.cluster_side import ClusterSide

log = logging.getLogger("ottla.replicas")

Key = tuple[str, int]
MakeLogConfig = Callable[[MetadataImage, str], LogConfig]


class Replicas:
    """The partitions that have a replica here, by topic name and by topic id.

    `log_config` derives a topic's log settings from the image; `flush_before_ack` is
    `ottla.acks.all.flush`. In a cluster, `incarnation` identifies this process, and `cluster` is
    the interface of its partitions to the rest of the broker; both are None on a standalone broker.
    `roles_changed` is called with the partitions that lead or follow in a new epoch, are gone, or
    have failed or damaged logs.
    """

    def __init__(
        self,
        node_id: int,
        storage: Storage,
        log_config: MakeLogConfig,
        flush_before_ack: bool,
        incarnation: str | None = None,
        cluster: ClusterSide | None = None,
        roles_changed: Callable[[Collection[Partition]], None] | None = None,
    ) -> None:
        self.node_id, self.incarnation, self.cluster = node_id, incarnation, cluster
        self.storage = storage
        self.checkpointed = {} if cluster is None else storage.placement.high_watermarks
        """The high watermarks of the last run, for partitions with several replicas: their logs may
        have records that are not committed. Empty on a standalone broker."""
        self.roles_changed = roles_changed
        self.changed: dict[Partition, None] = {}
        self.offline_changed: Callable[[], None] = lambda: None
        """Called when this broker may have to report replicas to the controller: if logs went
        offline, were found damaged or were opened again; or if a log directory's space has
        changed."""
        self.log_config = log_config
        self.gone = PartitionCounters()
        """The counters of partitions that are deleted, or were moved to other brokers."""
        self.leaving: list[deque[Partition]] = []
        """Partitions of deleted topics whose counters are not in `gone` yet."""
        self.flush_before_ack = flush_before_ack
        self.by_name: dict[str, list[Partition | None]] = {}
        self.by_id: dict[bytes, list[Partition | None]] = {}
        self.with_sealed: dict[Partition, None] = {}
        """Partitions with a sealed segment that is not on disk yet."""
        self.offline: frozenset[Key] = frozenset()
        """Partitions whose log directory has failed, or whose log could not be opened: clients are
        told that these partitions have no leader."""
        self.damaged: dict[Key, None] = {}
        """Partitions whose log on this broker is damaged and refuses writes until it is repaired.
        They have several replicas."""
        self.put_off: set[Key] = set()
        """Partitions that could not be opened for lack of disk space or file descriptors."""
        self.unreadable: set[Key] = set()
        """Partitions whose log on this broker could not be read when it was opened. They have
        several replicas."""

    def partition(self, topic: str, index: int) -> Partition | None:
        """The partition, if this broker has a replica of it."""
        partitions = self.by_name.get(topic)
        if partitions is None or not 0 <= index < len(partitions):
            return None
        return partitions[index]

    def absent(self, topic: str, index: int) -> ProtocolError:
        """The error for a partition that `partition` does not find."""
        name = f"{topic}-{index}"
        if 0 <= index < len(self.by_name.get(topic, ())):
            # As in Kafka: the client's metadata are outdated, and it has to refresh them.
            return NotLeaderOrFollower(f"{name} has no replica on this broker")
        return UnknownTopicOrPartition(f"partition {name} not found on this broker")

    def __iter__(self) -> Iterator[Partition]:
        """Every partition; topics may be created and deleted meanwhile."""
        for partitions in list(self.by_name.values()):
            yield from (partition for partition in partitions if partition is not None)

    def follow(
        self, old: MetadataImage, new: MetadataImage, topics: Iterable[str]
    ) -> Iterator[None]:
        """Create, change and drop partitions to match `new`, one partition in each step.

        Only `topics`, the topics that may have changed, are checked. But if `new` is the first
        image with this process's registration, all topics are checked. If the disk refuses a change
        of one topic, the changes of other topics still take place.
        """
        if self.cluster is not None:
            self.cluster.follow(new)
        if new.configs is not old.configs:
            # The settings come first: min.insync.replicas must be known before the in-sync sets.
            yield from self._reconfigure(old, new)
        joined = self.takes_part(new) and not self.takes_part(old)
        for name in dict.fromkeys([*topics, *new.topics]) if joined else topics:
            before, topic = old.topics.get(name), new.topics.get(name)
            try:
                if before is not None and (topic is None or before.topic_id != topic.topic_id):
                    yield from self._drop(before)
                if topic is not None and (joined or topic is not before):
                    yield from self._place(topic, new)
            except StorageFailed as error:
                log.error("a change of topic %s failed: %s", name, error)
            self._tell_roles()
        if self.cluster is not None and (
            new.brokers is not old.brokers or new.leaving != old.leaving
        ):
            for partition in self:
                partition.brokers_changed()
                yield

    def _tell_roles(self) -> None:
        changed, self.changed = self.changed, {}
        if changed and self.roles_changed is not None:
            self.roles_changed(changed)

    def wanted(self, image: MetadataImage) -> Iterator[tuple[Key, bytes | None, LogConfig]]:
        """The partitions that have a replica on this broker in `image`, with their topics' ids and
        settings."""
        for topic in image.topics.values():
            config = self.log_config(image, topic.name)
            for index, state in enumerate(topic.partitions):
                if self.node_id in state.replicas:
                    yield (topic.name, index), topic.topic_id, config

    def takes_part(self, image: MetadataImage) -> bool:
        """Whether the image has a registration of this very process.

        In a cluster, an image may lack this node id, or may still register it for an earlier
        process. This process then takes no role from the image. Otherwise it would lead in the
        leader epoch of the earlier process, whose log may have been longer.
        """
        return self.incarnation is None or image.is_registered(self.node_id, self.incarnation)

    def _place(self, topic: TopicImage, image: MetadataImage) -> Iterator[None]:
        partitions, takes_part = self.by_name.setdefault(topic.name, []), self.takes_part(image)
        assert self.by_id.get(topic.topic_id, partitions) is partitions, "topics share an id"
        self.by_id[topic.topic_id] = partitions
        config = self.log_config(image, topic.name)
        for index, state in enumerate(topic.partitions):
            if index == len(partitions):
                partitions.append(None)
            assert index < len(partitions), "a partition with a lower index is missing"
            partition = partitions[index]
            if self.node_id not in state.replicas:
                if partition is not None and takes_part:
                    self._remove(partition)
                    yield
                continue
            if partition is None:
                partition = partitions[index] = self._open(topic, index, config)
            assert partition.topic_id == topic.topic_id, "the old topic was not dropped"
            if takes_part:
                self._assign(partition, state, image.leader_epoch(topic, state))
            yield

    def _assign(self, partition: Partition, state: PartitionState, epoch: int) -> None:
        """Give a partition its role in the image, unless its log has a later leader epoch."""
        try:
            self._give_role(partition, state, epoch)
        except FencedLeaderEpoch as error:
            # For example after ZooKeeper was restored from a backup that no broker has adopted.
            reached("a log has a later epoch than its leader")
            log.error("this broker cannot lead %r: %s", partition, error)

    def _give_role(self, partition: Partition, state: PartitionState, epoch: int) -> None:
        before = partition.leader_id, partition.leader_epoch
        if self.cluster is None or not (len(state.replicas) > 1 or partition.role.replicated):
            if before != (state.leader, epoch):
                lead_alone(partition, state.leader, epoch, state.leader == self.node_id)
            return
        extra = state.extra
        assume(
            partition, state.leader, epoch, self.node_id, state.replicas, state.isr,
            state.partition_epoch,
            extra.offline if extra is not None else (),
            len(extra.adding) if extra is not None else 0,
        )
        if before != (partition.leader_id, partition.leader_epoch):
            self.changed[partition] = None
        if partition.damaged:
            self.damaged[partition.topic, partition.index] = None
            reached("a damaged log got a role")

    def _remove(self, partition: Partition) -> None:
        """A partition has moved to other brokers."""
        reached("a partition moved to other brokers")
        topic, index = partition.topic, partition.index
        self.by_name[topic][index] = None
        self.offline -= {(topic, index)}
        self._forget((topic, index))
        self.damaged.pop((topic, index), None)
        partition.close()
        self._count(partition)
        self.changed[partition] = None
        self._delete(topic, index, any(each is not None for each in self.by_name[topic]))

    def _delete(self, topic: str, index: int, topic_stays: bool = False) -> None:
        """Delete a partition's log. If the disk refuses, this only logs the error, so that the
        topic's other logs are deleted too. A new topic of the same name would open logs that
        remain."""
        try:
            self.storage.delete(topic, index, topic_stays)
        except StorageFailed as error:
            log.error("the log of %s-%d could not be deleted: %s", topic, index, error)

    def _open(self, topic: TopicImage, index: int, config: LogConfig) -> Partition:
        """A partition with its log; if opening failed, with a log that refuses all requests."""
        key = topic.name, index
        copies = self.cluster is not None and len(topic.partitions[index].replicas) > 1
        self._forget(key)
        try:
            if not copies:
                self.storage.placement.refuse_vanished(key, topic.topic_id)
            opened = self.storage.get_or_create(topic.name, index, topic.topic_id, config)
        except StorageFailed as error:
            log.error("%s", error)
            opened = self.storage.unavailable_log(key, topic.topic_id, config, str(error))
            if is_passing(error.__cause__):
                self.put_off.add(key)
                reached("a partition could not be opened for lack of room")
            elif copies and isinstance(error.__cause__, OSError):
                self.unreadable.add(key)
                reached("a partition could not be read when it was opened")
            self.offline |= {key}
        high_watermark = self.checkpointed.get(key, 0) if copies else -1
        if 0 <= high_watermark < opened.log_end_offset:
            reached("a high watermark was restored below the log's end")
        return Partition(
            topic.name, index, topic.topic_id, opened, self.flush_before_ack, self.with_sealed,
            self.cluster, high_watermark,
        )

    def open_again(self, image: MetadataImage) -> int:
        """Try again to open the partitions in `put_off`; returns how many were opened."""
        opened = 0
        for key in sorted(self.put_off):
            opened += self._open_again(key, image)
        self.offline_changed()
        return opened

    def _open_again(self, key: Key, image: MetadataImage) -> bool:
        """Try again to open a partition; returns whether it was opened."""
        name, index = key
        topic, before = image.topics.get(name), self.partition(name, index)
        if topic is None or before is None or before.topic_id != topic.topic_id:
            return False                # `follow` opens it when it applies the image
        self.offline -= {key}
        config = self.log_config(image, name)
        partition = self.by_name[name][index] = self._open(topic, index, config)
        with suppress(OSError, ProtocolError):
            partition.log.take_refused(before.log)
        with suppress(OSError):
            # The replica was reported as offline, so the controller already knows that it may have
            # lost records. The notes that recovery wrote about truncations need not be reported.
            forget_cuts(partition.log)
        state = topic.partitions[index]
        if self.takes_part(image):
            self._assign(partition, state, image.leader_epoch(topic, state))
        before.close()
        self._count(before)
        self.changed[before] = None
        self._tell_roles()
        return key not in self.offline

    def _forget(self, key: Key) -> None:
        """Take a partition out of `put_off` and `unreadable`, since it is opened again or
        removed."""
        self.put_off.discard(key)
        self.unreadable.discard(key)

    def full(self) -> list[Partition]:
        """The partitions in full log directories."""
        if not any(each.space.full for each in self.storage.directories):
            return []
        return [
            partition for key, home in self.storage.homes.items()
            if home.space.full and (partition := self.partition(*key)) is not None
        ]

    def note_failures(self) -> None:
        """A log directory has failed: end all requests that wait for its partitions."""
        failed = set(self.offline)
        for partition in self:
            if partition.log.offline is not None:
                partition.give_up()
                if partition.log.damage is None:
                    failed.add((partition.topic, partition.index))
                    self.changed[partition] = None
        self.offline = frozenset(failed)
        self._tell_roles()
        self.offline_changed()

    def note_damage(self, partition: Partition) -> None:
        """Damage was found in a log: end all requests that wait for the partition, and stop
        fetching it."""
        key = partition.topic, partition.index
        partition.give_up()
        if partition.damaged and self.partition(*key) is partition:
            self.damaged[key] = self.changed[partition] = None
            self._tell_roles()
            self.offline_changed()

    def repair(self, partition: Partition) -> None:
        """Put the damaged end of a follower's log aside. Raises StorageFailed."""
        aside = partition.repair()
        reached("a follower's damaged log was put aside")
        self.damaged.pop((partition.topic, partition.index), None)
        log.warning(
            "%r: the files with the damaged end of the log were renamed. The records from offset %d"
            " on are fetched again from broker %d. The renamed files are kept: %s", partition,
            partition.log.log_end_offset, partition.leader_id, ", ".join(aside),
        )

    def replace_unreadable(self, key: Key, image: MetadataImage) -> None:
        """Try again to open a follower's log that the disk could not read. If opening fails again,
        move the log aside and begin an empty one. Raises StorageFailed."""
        if not self._open_again(key, image) and key in self.unreadable:
            aside = self.storage.put_unreadable_aside(key)
            reached("a log that cannot be read was put aside")
            log.warning(
                "%s-%d: the files of the unreadable log were renamed. The records are fetched again"
                " from the leader. The renamed files are kept: %s", *key, ", ".join(aside),
            )
            self._open_again(key, image)
        self.offline_changed()

    def _drop(self, topic: TopicImage) -> Iterator[None]:
        name = topic.name
        if self.offline:
            self.offline = frozenset(key for key in self.offline if key[0] != name)
        if self.damaged:
            self.damaged = {key: None for key in self.damaged if key[0] != name}
        if self.put_off:
            self.put_off = {key for key in self.put_off if key[0] != name}
        if self.unreadable:
            self.unreadable = {key for key in self.unreadable if key[0] != name}
        left = deque(each for each in self.by_name.pop(name, ()) if each is not None)
        self.by_id.pop(topic.topic_id, None)        # `by_id` has topics without a replica here, too
        self.leaving.append(left)
        try:
            while left:
                partition = left[0]
                if partition.high_watermark < partition.log.log_end_offset:
                    reached("a topic was deleted with records that are not committed")
                partition.close()
                self.changed[partition] = None
                self._delete(name, partition.index)
                self._count(left.popleft())
                yield
        finally:
            for partition in left:
                self._count(partition)
            self.leaving = [each for each in self.leaving if each is not left]

    def _count(self, partition: Partition) -> None:
        self.gone.add(partition.counters)

    def _reconfigure(self, old: MetadataImage, new: MetadataImage) -> Iterator[None]:
        changed = {
            resource
            for resource in old.configs.keys() | new.configs.keys()
            if old.configs.get(resource) is not new.configs.get(resource)
        }
        every_topic = any(kind == "broker" for kind, _ in changed)
        names = new.topics.keys() if every_topic else {n for kind, n in changed if kind == "topic"}
        yield from self.reconfigure(new, names)

    def reconfigure(
        self, image: MetadataImage, names: Collection[str] | None = None
    ) -> Iterator[None]:
        """Apply the current settings to all partitions of the topics `names` (None: all topics)."""
        for name in list(self.by_name.keys() if names is None else names & self.by_name.keys()):
            config = self.log_config(image, name)
            for partition in self.by_name.get(name, ()):
                if partition is not None:
                    partition.log.configure(config)
                    partition.check_min_isr()
                yield
