"""Money that moves between partitions in transactions: none may be made or lost."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.groups.records import Producer
from ottla.groups.transactions.markers import MarkerWritten, TransactionMarker
from ottla.groups.transactions.records import TopicIndex
from ottla.wire.errors import ErrorCode, ProtocolError
from tests.groups.transactions.bench import TransactionBench

PARTITIONS = [("money", n) for n in range(4)]


TIMEOUT_MS = 5_000


OK = ErrorCode.NONE


@dataclass(eq=False)
class Transfer:
    """One transaction: an amount that moves from one partition to another."""

    written: list[tuple[TopicIndex, int]] = field(default_factory=list)
    whole: bool = True
    acknowledged: bool | None = None
    """Whether the client was told of a commit (True) or an abort (False)."""


class FakePartition:
    """A partition's records, by whether their transactions are open, committed or aborted."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.open: dict[int, list[tuple[Transfer, int]]] = {}
        self.ended: dict[bool, list[tuple[Transfer, int]]] = {True: [], False: []}

    def write(self, producer: Producer, transfer: Transfer, amount: int) -> bool:
        if producer.epoch < self.epochs.get(producer.producer_id, -1):
            return False
        self.epochs[producer.producer_id] = producer.epoch
        self.open.setdefault(producer.producer_id, []).append((transfer, amount))
        return True

    def end(self, marker: TransactionMarker) -> None:
        if marker.epoch < self.epochs.get(marker.producer_id, -1):
            raise ProtocolError("a newer epoch is known", ErrorCode.INVALID_PRODUCER_EPOCH)
        self.epochs[marker.producer_id] = marker.epoch
        self.ended[marker.commits] += self.open.pop(marker.producer_id, [])


class MoneyBench(TransactionBench):
    """A bench with partitions. They survive a crash, and so do the effects of their markers."""

    def __init__(self) -> None:
        self.accounts = {partition: FakePartition() for partition in PARTITIONS}
        super().__init__(transaction_state_log_num_partitions=1)

    def write_marker(
        self, partition: TopicIndex, marker: TransactionMarker, done: MarkerWritten
    ) -> None:
        if partition not in self.marker_errors:
            self.accounts[partition].end(marker)
        super().write_marker(partition, marker, done)
