"""The events that this broker keeps to explain the state of partitions. The group runtime keeps
the events of groups."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ottla.broker.history.lag_samples import LagSamples
from ottla.broker.history.transaction_memory import HeldBack, TransactionalClients

if TYPE_CHECKING:
    from ottla.broker.history.partition_history import PartitionHistory
    from ottla.log.files.clock import Clock


class Histories:
    """The lag samples and the partitions' events of one broker."""

    def __init__(self, node_id: int, clock: Clock) -> None:
        self.samples, self.held = LagSamples(), HeldBack()
        self.producing = TransactionalClients()
        self._node_id, self._clock = node_id, clock

    @cached_property
    def partitions(self) -> PartitionHistory:
        """The events of partitions. A standalone broker imports the module at the first request."""
        from ottla.broker.history.partition_history import PartitionHistory

        return PartitionHistory(self._node_id, self._clock)
