from collections.abc import Iterator
from typing import NamedTuple

from ottla.broker.context import BrokerContext
from ottla.broker.http.partition_rows import PartitionRows
from ottla.groups.records import CommittedOffset
from ottla.groups.shard import Shard
from ottla.groups.transactions.records import TopicIndex

COLUMNS: tuple[str, ...]

class Lag(NamedTuple):
    topic: str
    partition: int
    committed: int
    records: int
    size: int
    seconds: float | None

class Lags:
    def __init__(self, broker: BrokerContext) -> None: ...
    def begin(self) -> None: ...
    def of_group(self, shard: Shard, group_id: str) -> Iterator[Lag]: ...
    def read(
        self,
        rows: PartitionRows,
        sums: PartitionRows,
        group_id: str,
        offsets: list[tuple[TopicIndex, CommittedOffset]],
        numbers: dict[str, int],
    ) -> None: ...
