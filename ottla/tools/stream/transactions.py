"""The transactions of a load: they contain idempotent batches, and are committed periodically.

The producer uses the requests of KIP-98, which brokers support with every transaction.version.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from ottla.client.cluster import TRANSACTION, ClusterClient
from ottla.client.errors import check
from ottla.wire.messages import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)

if TYPE_CHECKING:
    from ottla.tools.admin.offsets import Place

INIT, ADD, END, PRODUCE = 4, 3, 3, 11
"""Request versions with which the client itself adds partitions to a transaction, before it writes
to them. From Produce version 12 on, the broker adds them (KIP-890)."""
TIMEOUT_MS = 60_000


class Transactions:
    """One transactional producer."""

    def __init__(self, cluster: ClusterClient, transactional_id: str, duration_ms: int) -> None:
        self.cluster, self.id, self.duration_ms = cluster, transactional_id, duration_ms
        self.producer_id = self.epoch = -1
        self.places: set[Place] = set()
        """The partitions of the open transaction."""
        self.begun = 0.0
        """When the open transaction began."""
        self._sequences: Counter[Place] = Counter()

    def start(self) -> None:
        """Get a producer id; earlier producers with this transactional id are fenced."""
        request = InitProducerIdRequest(
            transactional_id=self.id, transaction_timeout_ms=max(TIMEOUT_MS, self.duration_ms))

        def ask() -> None:
            answer = self.cluster.coordinator(self.id, TRANSACTION).call(request, INIT)
            check(answer.error_code, what=f"transactional id {self.id!r}")
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

        self.cluster.with_retries(ask)

    def sequence(self, place: Place, count: int) -> int:
        """The base sequence of a partition's next batch of `count` records. Adds the partition to
        the transaction."""
        if not self.places:
            self.begun = time.monotonic()
        if place not in self.places:
            self._add(place)
            self.places.add(place)
        first = self._sequences[place]
        self._sequences[place] = (first + count) & 0x7FFFFFFF
        return first

    def _add(self, place: Place) -> None:
        kind = AddPartitionsToTxnRequest.Topic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id, v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[kind(name=place[0], partitions=[place[1]])],
        )

        def ask() -> None:
            answer = self.cluster.coordinator(self.id, TRANSACTION).call(request, ADD)
            [topic] = answer.results_by_topic_v3_and_below
            [part] = topic.results_by_partition
            check(part.partition_error_code, what=f"{place[0]}-{place[1]}")

        self.cluster.with_retries(ask)

    @property
    def due(self) -> bool:
        """Whether the open transaction is old enough to be committed."""
        return bool(self.places) and (time.monotonic() - self.begun) * 1000 >= self.duration_ms

    def commit(self) -> None:
        """Commit the open transaction; all of its batches must have been acknowledged."""
        if not self.places:
            return
        request = EndTxnRequest(
            transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch,
            committed=True,
        )

        def ask() -> None:
            answer = self.cluster.coordinator(self.id, TRANSACTION).call(request, END)
            check(answer.error_code, what=f"transactional id {self.id!r}")

        self.cluster.with_retries(ask)
        self.places.clear()
