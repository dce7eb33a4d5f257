"""Connects groups to the log, the event loop and the clock: runs `groups.runtime` over
`__consumer_offsets`."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ottla.broker.coordination.log_coordinator import LogCoordinator
from ottla.groups.cluster_view import Topic
from ottla.groups.record_codec import decode_record, encode_record
from ottla.groups.routing import OFFSETS_TOPIC
from ottla.groups.runtime import Runtime
from ottla.groups.settings import GroupSettings
from ottla.groups.shard import Shard
from ottla.replication.metadata import MetadataImage
from ottla.wire.batch import BatchView
from ottla.wire.records import ControlType, control_type

if TYPE_CHECKING:
    from ottla.broker.coordination.coordinator_parts import CoordinatorParts
    from ottla.broker.settings.config import BrokerConfig


class ImageView:
    """The part of the metadata that groups may read (`groups.cluster_view.ClusterView`)."""

    def __init__(self, image: MetadataImage, version: int) -> None:
        self.image, self.version = image, version

    def topic(self, name: str) -> Topic | None:
        """The topic with this name."""
        topic = self.image.topics.get(name)
        return None if topic is None else Topic(name, topic.topic_id, len(topic.partitions))

    def topic_of_id(self, topic_id: bytes) -> Topic | None:
        """The topic with this id."""
        name = self.image.names.get(topic_id)
        return None if name is None else self.topic(name)

    def topic_names(self) -> Iterable[str]:
        """The names of all topics, for subscriptions by regular expression."""
        return self.image.topics

    def group_settings(self, group_id: str) -> Mapping[str, str]:
        """The settings of a `group` resource."""
        return self.image.config_of("group", group_id)


class GroupCoordinator(LogCoordinator[Shard]):
    """The groups of the partitions of `__consumer_offsets` that this broker leads."""

    runtime: Runtime

    def __init__(
        self,
        parts: CoordinatorParts,
        config: BrokerConfig,
        replicated: bool,
        has_rules: bool,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(parts, loop, OFFSETS_TOPIC, encode_record)
        self.has_rules = has_rules
        self.view = ImageView(MetadataImage.empty(), 0)
        self.runtime = Runtime(
            settings_from(config), parts.clock, self, lambda: str(uuid.uuid4()), self.view,
            loop.call_soon, replicated,
        )

    def follow(self, old: MetadataImage, new: MetadataImage, topics: Collection[str]) -> None:
        """Load the shards whose partitions this broker leads now, unload all others, and remove the
        offsets of deleted topics."""
        if new.topics is old.topics and (new.rules is old.rules or not self.has_rules):
            self.view.image = new
            return
        self.view = ImageView(new, self.view.version + 1)
        self.runtime.cluster = self.view
        if self.topic in topics:
            self.follow_topic(new)
        deleted = frozenset(
            name for name in topics
            if name in old.topics and old.topics[name].topic_id not in new.names
        )
        if deleted:
            self.runtime.change_all(lambda shard, result: shard.forget_topics(deleted, result))

    def begin_shard(self, index: int, leader_epoch: int) -> Shard:
        """Create the empty shard of a partition, registered with the runtime."""
        return self.runtime.begin_load(index)

    def replay_steps(self, batch: BatchView, shard: Shard) -> Iterator[None]:
        """Replay a batch of `__consumer_offsets` in a shard."""
        producer_id = batch.producer_id if batch.transactional else -1
        for record in batch.records():
            if batch.control:
                kind = control_type(record)
                yield from shard.offsets.ending_steps(
                    batch.producer_id, kind is ControlType.COMMIT)
                continue
            decoded = decode_record(record.key or b"", record.value)
            if decoded is not None:
                shard.replay(decoded, producer_id)
            yield


def settings_from(config: object) -> GroupSettings:
    """The group settings: the broker's value for each setting that the broker has, and Kafka's
    default for the others."""
    names = GroupSettings._fields
    return GroupSettings(**{n: getattr(config, n) for n in names if hasattr(config, n)})
