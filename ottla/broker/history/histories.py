"""What this broker remembers to explain the state of groups, transactions and partitions. The
group runtime keeps the events of groups."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ottla.broker.history.lag_samples import LagSamples

if TYPE_CHECKING:
    from ottla.broker.history.partition_history import PartitionHistory
    from ottla.broker.history.transaction_memory import HeldBack, TransactionalClients
    from ottla.log.files.clock import Clock


class Histories:
    """What one broker remembers of groups, transactions and partitions. A standalone broker imports
    the modules of the properties below only when a request needs them."""

    def __init__(self, node_id: int, clock: Clock) -> None:
        self.samples = LagSamples()
        self._node_id, self._clock = node_id, clock

    @cached_property
    def held(self) -> HeldBack:
        """The groups that wait for open transactions."""
        from ottla.broker.history.transaction_memory import HeldBack

        return HeldBack()

    @cached_property
    def producing(self) -> TransactionalClients:
        """The clients of transactional ids."""
        from ottla.broker.history.transaction_memory import TransactionalClients

        return TransactionalClients()

    @cached_property
    def partitions(self) -> PartitionHistory:
        """The events of partitions."""
        from ottla.broker.history.partition_history import PartitionHistory

        return PartitionHistory(self._node_id, self._clock)
