COUNTED: tuple[str, ...]

class PartitionCounters:
    messages_in: int
    bytes_in: int
    bytes_out: int
    produces: int
    fetches: int
    failed_produces: int
    failed_fetches: int
    isr_shrinks: int
    isr_expands: int
    bytes_rejected: int
    replicated_in: int
    replicated_out: int
    produce_conversions: int
    fetch_conversions: int
    def add(self, other: PartitionCounters) -> None: ...
