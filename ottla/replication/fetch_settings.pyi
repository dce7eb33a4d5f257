"""How a follower fetches."""

from ottla.replication.throttle import Throttle

class FetchSettings:
    wait_ms_max: int
    size_min: int
    size_max: int
    partition_size_max: int
    backoff_ms_max: int
    client_id: str
    tells_high_watermark: bool
    def __init__(
        self,
        wait_ms_max: int = 500,
        size_min: int = 1,
        size_max: int = 10485760,
        partition_size_max: int = 1048576,
        backoff_ms_max: int = 1000,
        client_id: str = "broker-fetcher",
        throttle: Throttle | None = None,
        tells_high_watermark: bool = False,
    ) -> None: ...
