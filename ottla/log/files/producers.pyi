"""The state of a partition's idempotent and transactional producers (KIP-98, KIP-360)."""

class ProducerState:
    """One producer's last batches, the newest last."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    last_timestamp: int
    transaction_start: int
    marked_at: int
    kept: int
    def __init__(
        self,
        producer_id: int,
        epoch: int = -1,
        coordinator_epoch: int = -1,
        last_timestamp: int = -1,
        transaction_start: int = -1,
    ) -> None: ...
    def remember(
        self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int
    ) -> None: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def offset_delta(self) -> int: ...

class Producers:
    """The producers of one partition."""

    def __len__(self) -> int: ...
    def check_marker(self, batch: bytes) -> None: ...
    def add(self, state: ProducerState) -> None: ...
    def replay(self, batch: bytes) -> tuple[int, int, int, int] | None: ...
    def values(self) -> list[ProducerState]: ...
    def get(self, producer_id: int) -> ProducerState | None: ...
    def remove_expired(self, now_ms: int, expiration_ms: int) -> int: ...
