"""Every partition on this broker, kept in step with the metadata image."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from ottla.log.config import LogConfig
from ottla.log.storage import Storage
from ottla.replication.metadata import MetadataImage, TopicImage
from ottla.replication.partition import Partition
from ottla.wire.errors import StorageFailed

log = logging.getLogger("ottla.replicas")

MakeLogConfig = Callable[[MetadataImage, str], LogConfig]


class Replicas:
    """The partitions that have a replica here, by topic name and by topic id.

    `log_config` makes a topic's log settings out of the image; `flush_before_ack` is
    `ottla.acks.all.flush`.
    """

    def __init__(
        self, node_id: int, storage: Storage, log_config: MakeLogConfig, flush_before_ack: bool
    ) -> None:
        self.node_id = node_id
        self.storage = storage
        self.log_config = log_config
        self.flush_before_ack = flush_before_ack
        self.by_name: dict[str, list[Partition | None]] = {}
        self.by_id: dict[bytes, list[Partition | None]] = {}
        self.with_sealed: set[Partition] = set()
        """Those that have sealed a segment which is not on the medium yet."""

    def partition(self, topic: str, index: int) -> Partition | None:
        """The partition, where a replica of it is here."""
        partitions = self.by_name.get(topic)
        if partitions is None or not 0 <= index < len(partitions):
            return None
        return partitions[index]

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self.by_name.values():
            yield from (partition for partition in partitions if partition is not None)

    def follow(self, old: MetadataImage, new: MetadataImage) -> None:
        """Create, change and drop partitions so that they are as `new` says."""
        if new.topics is not old.topics:
            for name in old.topics.keys() - new.topics.keys():
                try:
                    self._drop(name)
                except StorageFailed as error:
                    log.error("%s: %s", name, error)
            for name, topic in new.topics.items():
                before = old.topics.get(name)
                if topic is before:
                    continue
                if before is not None and before.topic_id != topic.topic_id:
                    self._drop(name)
                self._try_to_place(topic, new)
        if new.configs is not old.configs:
            self._reconfigure(old, new)

    def _try_to_place(self, topic: TopicImage, image: MetadataImage) -> None:
        """Place a topic's partitions; a disk that refuses one topic does not hold up the others."""
        try:
            self._place(topic, image)
        except StorageFailed as error:
            log.error("%s: %s", topic.name, error)

    def _place(self, topic: TopicImage, image: MetadataImage) -> None:
        partitions = self.by_name.setdefault(topic.name, [])
        self.by_id[topic.topic_id] = partitions
        for index, state in enumerate(topic.partitions):
            if index == len(partitions):
                partitions.append(None)
            if self.node_id not in state.replicas:
                continue
            partition = partitions[index]
            if partition is None:
                opened = self.storage.get_or_create(
                    topic.name, index, topic.topic_id, self.log_config(image, topic.name)
                )
                partition = Partition(
                    topic.name, index, topic.topic_id, opened, self.flush_before_ack,
                    self.with_sealed,
                )
                partitions[index] = partition
            leader_changed = (partition.leader_id, partition.leader_epoch) != (
                state.leader, state.leader_epoch,
            )
            if leader_changed:
                partition.lead(state.leader, state.leader_epoch, state.leader == self.node_id)

    def _drop(self, name: str) -> None:
        for index, partition in enumerate(self.by_name.pop(name, [])):
            if partition is not None:
                self.by_id.pop(partition.topic_id, None)
                partition.close()
                self.storage.delete(name, index)

    def _reconfigure(self, old: MetadataImage, new: MetadataImage) -> None:
        changed = {
            resource
            for resource in old.configs.keys() | new.configs.keys()
            if old.configs.get(resource) is not new.configs.get(resource)
        }
        every_topic = any(kind == "broker" for kind, _ in changed)
        names = new.topics.keys() if every_topic else {n for kind, n in changed if kind == "topic"}
        for name in names & self.by_name.keys():
            config = self.log_config(new, name)
            for partition in self.by_name[name]:
                if partition is not None:
                    partition.log.configure(config)
