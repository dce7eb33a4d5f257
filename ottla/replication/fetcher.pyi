"""A follower's side of Fetch, without a socket."""

from collections.abc import Iterable

from ottla.log.clock import Clock
from ottla.replication.partition import Partition
from ottla.replication.throttle import Throttle

class FetchSettings:
    wait_ms_max: int
    size_min: int
    size_max: int
    partition_size_max: int
    backoff_ms_max: int
    client_id: str
    def __init__(
        self,
        wait_ms_max: int = 500,
        size_min: int = 1,
        size_max: int = 10485760,
        partition_size_max: int = 1048576,
        backoff_ms_max: int = 1000,
        client_id: str = "broker-fetcher",
        throttle: Throttle | None = None,
    ) -> None: ...

class Fetcher:
    node_id: int
    source_id: int
    broker_epoch: int
    settings: FetchSettings
    news: bool
    cut: dict[Partition, None]
    outstanding: int
    requests: int
    wanted: int
    bytes_fetched: int
    def __init__(
        self, node_id: int, source_id: int, clock: Clock, settings: FetchSettings
    ) -> None: ...
    def __len__(self) -> int: ...
    def follow(self, partition: Partition) -> None: ...
    def drop(self, partition: Partition) -> None: ...
    def checkpointed(self, partitions: Iterable[Partition]) -> None: ...
    def synced(self, partition: Partition) -> bool: ...
    def reset(self) -> None: ...
    @property
    def due_ms(self) -> int: ...
    def request(self) -> bytes | None: ...
    def feed(self, data: bytes | bytearray | memoryview) -> int: ...
