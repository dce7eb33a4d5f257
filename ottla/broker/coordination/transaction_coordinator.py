"""Connects transactions to the log: stores the records of `groups.transactions.runtime` in
`__transaction_state`, writes transaction markers into partitions, and authorizes transactional
appends for partition leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.broker.coordination.answers import begin_answer
from ottla.broker.coordination.log_coordinator import LogCoordinator, append_batch
from ottla.broker.coordination.marker_rules import later_marker, refuse_late
from ottla.broker.coordination.produce_errors import IMPLICIT_FROM, as_produce_error
from ottla.broker.threads.slices import Slices
from ottla.groups.records import Producer
from ottla.groups.routing import OFFSETS_TOPIC, TRANSACTION_TOPIC
from ottla.groups.runtime import Runtime
from ottla.groups.settings import TransactionSettings
from ottla.groups.transactions.markers import MarkerWritten, TransactionMarker
from ottla.groups.transactions.records import TopicIndex, decode_record, encode_record
from ottla.groups.transactions.runtime import TransactionRuntime
from ottla.groups.transactions.shard import TransactionShard
from ottla.replication.metadata import MetadataImage
from ottla.wire import records as wire_records
from ottla.wire.batch import BatchView
from ottla.wire.errors import (
    NotLeaderOrFollower,
    ProtocolError,
    UnknownTopicOrPartition,
)
from ottla.wire.marks import reached
from ottla.wire.records import ControlType

if TYPE_CHECKING:
    from ottla.broker.cluster.metadata_log import Metadata
    from ottla.broker.coordination.coordinator_parts import CoordinatorParts
    from ottla.broker.role import Role
    from ottla.broker.settings.config import BrokerConfig


class TransactionCoordinator(LogCoordinator[TransactionShard]):
    """The transactional ids of the partitions of `__transaction_state` that this broker leads."""

    runtime: TransactionRuntime

    def __init__(
        self,
        parts: CoordinatorParts,
        config: BrokerConfig,
        role: Role,
        metadata: Metadata,
        groups: Runtime,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(parts, loop, TRANSACTION_TOPIC, encode_record)
        self.metadata, self.groups = metadata, groups
        self.runtime = TransactionRuntime(
            settings_from(config), parts.clock, self, self.send_marker, role.replicated
        )
        self.sender = role.marker_sender()

    def follow(self, old: MetadataImage, new: MetadataImage, topics: Collection[str]) -> None:
        """Load the shards whose partitions this broker leads now, and unload all others."""
        if self.topic in topics:
            self.follow_topic(new)

    def begin_shard(self, index: int, leader_epoch: int) -> TransactionShard:
        """Create the empty shard of a partition, registered with the runtime."""
        return self.runtime.begin_load(index, leader_epoch)

    def replay_steps(self, batch: BatchView, shard: TransactionShard) -> Iterator[None]:
        """Replay a batch of `__transaction_state` in a shard."""
        for record in batch.records():
            decoded = decode_record(record.key or b"", record.value)
            if decoded is not None:
                shard.replay(decoded)
            yield

    def send_marker(
        self, where: TopicIndex, marker: TransactionMarker, written: MarkerWritten
    ) -> None:
        """Write a marker into a partition, wherever its leader is (`markers.WriteMarker`)."""
        topic, index = where
        known = self.metadata.image.topics.get(topic)
        if self.sender is not None and known is not None and index < len(known.partitions):
            leader = known.partitions[index].leader
            if leader != self.node_id:
                self.sender.send(leader, where, marker, written)
                return
        self.write_marker(where, marker, written)

    def write_marker(
        self, where: TopicIndex, marker: TransactionMarker, written: MarkerWritten
    ) -> None:
        """Write a marker into a partition that this broker leads.

        Raises UnknownTopicOrPartition, NotLeaderOrFollower, InvalidProducerEpoch, ProtocolError.
        """
        topic, index = where
        partition = self.replicas.partition(topic, index)
        if partition is None:
            known = self.metadata.image.topics.get(topic)
            if known is None or not 0 <= index < len(known.partitions):
                raise UnknownTopicOrPartition(f"partition {topic}-{index} not found")
            raise NotLeaderOrFollower(f"{topic}-{index} has no replica on this broker")
        batch = wire_records.build_marker(
            ControlType.COMMIT if marker.commits else ControlType.ABORT,
            producer_id=marker.producer_id,
            producer_epoch=marker.epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=self.clock.now_ms(),
        )
        partition.require_leader()
        partition.log.producers.check_marker(batch)
        refuse_late(partition, marker)
        if topic != OFFSETS_TOPIC:
            append_batch(self.flusher, partition, batch, written)
            return

        def tell_groups(error: ProtocolError | None) -> None:
            if error is not None:
                written(error)
                return
            self._end_offsets(
                self.groups.ending_steps(index, marker.producer_id, marker.commits), written
            )

        append_batch(self.flusher, partition, batch, tell_groups)

    def _end_offsets(self, steps: Iterator[None], written: MarkerWritten) -> None:
        """Make the offsets of a transaction visible, or drop them, in slices."""
        slices = Slices()
        for _ in steps:
            if slices.over:
                reached("the offsets of a transaction ended in slices")
                self.loop.call_soon(self._end_offsets, steps, written)
                return
        written(None)

    # Requests of a partition's leader before it appends a transactional batch

    def check_batch(
        self, transactional_id: str, producer: Producer, partition: TopicIndex, version: int
    ) -> None:
        """Check that the partition is in the producer's open transaction (KIP-890). Also check that
        no later coordinator has written a marker into the partition: such a marker has ended the
        transaction.

        `version` is the version of the Produce request; the error code depends on it.
        """
        try:
            shard = self.runtime.shard(transactional_id)
            shard.check_partition(transactional_id, producer, partition)
        except ProtocolError as error:
            raise as_produce_error(error, version) from None
        replica = self.replicas.partition(*partition)
        # Check again: a marker may have arrived while a thread prepared a permitted batch.
        if replica is not None and (
            refusal := later_marker(replica, producer, shard.coordinator_epoch)
        ):
            raise refusal

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Sequence[TopicIndex]
    ) -> asyncio.Future[dict[TopicIndex, ProtocolError]]:
        """Check that partitions are in the producer's open transaction. Returns the errors of
        refused partitions, once the records that the answer depends on are committed."""
        try:
            return begin_answer(
                self, transactional_id,
                lambda shard, result: shard.verify(transactional_id, producer, partitions, result),
            )
        except ProtocolError as error:
            refused: asyncio.Future[dict[TopicIndex, ProtocolError]] = self.loop.create_future()
            refused.set_result(dict.fromkeys(partitions, error.kept()))
            return refused

    def add_batches(
        self, transactional_id: str, producer: Producer, partitions: frozenset[TopicIndex]
    ) -> asyncio.Future[ProtocolError | None]:
        """Add the partitions of a producer's first batches to its transaction (KIP-890).

        The future's result is None, or the error with which the batches are refused.
        """
        future: asyncio.Future[ProtocolError | None] = self.loop.create_future()

        def answered(reply: ProtocolError | None) -> None:
            if not future.done():
                future.set_result(reply and as_produce_error(reply, IMPLICIT_FROM))

        try:
            self.runtime.change(
                transactional_id,
                lambda shard, result: shard.add_partitions(
                    transactional_id, producer, partitions, 2, result
                ),
                answered,
            )
        except ProtocolError as error:
            answered(error)
        return future


def settings_from(config: object) -> TransactionSettings:
    """The transaction settings: the broker's value for each setting that the broker has, and
    Kafka's default for the others."""
    names = TransactionSettings._fields
    return TransactionSettings(**{n: getattr(config, n) for n in names if hasattr(config, n)})
