"""The coordinators of this broker. Each is created once its internal topic exists, or a request
needs it. Many brokers need none, and importing the modules takes a fifth of a start's import time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING

from ottla.replication.metadata import MetadataImage
from ottla.wire.errors import ProtocolError

if TYPE_CHECKING:
    from ottla.broker.cluster.metadata_log import Metadata
    from ottla.broker.coordination.coordinator_parts import CoordinatorParts
    from ottla.broker.coordination.group_coordinator import GroupCoordinator
    from ottla.broker.coordination.transaction_coordinator import TransactionCoordinator
    from ottla.broker.role import Role
    from ottla.broker.settings.config import BrokerConfig
    from ottla.groups.records import Producer
    from ottla.groups.transactions.records import TopicIndex

COORDINATED = {"groups": "__consumer_offsets", "transactions": "__transaction_state"}
"""Each coordinator, with the internal topic that has its state."""


class Coordinators:
    """The coordinators, which follow the metadata image. `has_rules` is True if an authorizer
    decides which topics a group's members may see."""

    def __init__(
        self,
        parts: CoordinatorParts,
        config: BrokerConfig,
        role: Role,
        metadata: Metadata,
        has_rules: bool,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.parts, self.config, self.role, self.metadata = parts, config, role, metadata
        self.has_rules, self.loop = has_rules, loop
        self.image = MetadataImage.empty()
        self.verifier = role.verifier(self)

    @cached_property
    def groups(self) -> GroupCoordinator:
        """The coordinator of groups."""
        from ottla.broker.coordination.group_coordinator import GroupCoordinator

        made = GroupCoordinator(
            self.parts, self.config, self.role.replicated, self.has_rules, self.loop
        )
        made.follow(MetadataImage.empty(), self.image, self.image.topics.keys())
        return made

    @cached_property
    def transactions(self) -> TransactionCoordinator:
        """The coordinator of transactions."""
        from ottla.broker.coordination.transaction_coordinator import TransactionCoordinator

        made = TransactionCoordinator(
            self.parts, self.config, self.role, self.metadata, self.groups.runtime, self.loop
        )
        made.follow(MetadataImage.empty(), self.image, self.image.topics.keys())
        return made

    def _made(self) -> list[GroupCoordinator | TransactionCoordinator]:
        return [self.__dict__[name] for name in COORDINATED if name in self.__dict__]

    def follow(self, old: MetadataImage, new: MetadataImage, topics: Collection[str]) -> None:
        """Load or drop shards according to the leaders of internal topics in the image."""
        self.image = new
        for made in self._made():
            made.follow(old, new, topics)
        for name, topic in COORDINATED.items():
            if topic in new.topics:
                getattr(self, name)

    def check_batch(
        self, transactional_id: str, producer: Producer, partition: TopicIndex, version: int
    ) -> None:
        """See `TransactionCoordinator.check_batch`."""
        self.transactions.check_batch(transactional_id, producer, partition, version)

    def add_batches(
        self, transactional_id: str, producer: Producer, partitions: frozenset[TopicIndex]
    ) -> asyncio.Future[ProtocolError | None]:
        """See `TransactionCoordinator.add_batches`."""
        return self.transactions.add_batches(transactional_id, producer, partitions)

    def let_go_of(self, offline: Collection[tuple[str, int]]) -> None:
        """The log directories of these partitions have failed: unload their shards."""
        for made in self._made():
            made.let_go_of(offline)

    def close(self) -> None:
        """Stop every timer and every load."""
        for made in self._made():
            made.close()
