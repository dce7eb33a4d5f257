"""Every partition on this broker, kept in step with the metadata image."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

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
        """Every partition; topics may come and go meanwhile."""
        for partitions in list(self.by_name.values()):
            yield from (partition for partition in partitions if partition is not None)

    def follow(
        self, old: MetadataImage, new: MetadataImage, topics: Iterable[str]
    ) -> Iterator[None]:
        """Create, change and drop partitions so that they are as `new` says, a partition a step.

        `topics` are those that may have changed; the others are not looked at. A disk that refuses
        one topic does not hold up the others.
        """
        for name in topics:
            before, topic = old.topics.get(name), new.topics.get(name)
            try:
                if before is not None and (topic is None or before.topic_id != topic.topic_id):
                    yield from self._drop(name)
                if topic is not None and topic is not before:
                    yield from self._place(topic, new)
            except StorageFailed as error:
                log.error("%s: %s", name, error)
        if new.configs is not old.configs:
            yield from self._reconfigure(old, new)

    def _place(self, topic: TopicImage, image: MetadataImage) -> Iterator[None]:
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
            yield

    def _drop(self, name: str) -> Iterator[None]:
        partitions = self.by_name.pop(name, [])
        for partition in partitions:
            if partition is not None:
                self.by_id.pop(partition.topic_id, None)
        for index, partition in enumerate(partitions):
            if partition is not None:
                partition.close()
                self.storage.delete(name, index)
                yield

    def _reconfigure(self, old: MetadataImage, new: MetadataImage) -> Iterator[None]:
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
            yield
