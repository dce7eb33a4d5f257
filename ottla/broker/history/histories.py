"""What this broker remembers for whoever asks why. The groups' events are in their runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.history.lag_samples import LagSamples
from ottla.broker.history.partition_history import PartitionHistory

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext


class Histories:
    """The memory of one broker."""

    def __init__(self, broker: BrokerContext) -> None:
        self.samples = LagSamples()
        self.partitions = PartitionHistory(broker.node_id, broker.clock)
