class BatchLimits:
    """What a topic allows in a batch, and what the last checked batch was found to be.

    Sizes in bytes, times in ms. `offset_delta_of_max_timestamp` and `max_timestamp` are of the
    last batch that passed; -1 where no record has a timestamp.
    """

    batch_size_max: int
    decompressed_size_max: int
    now_ms: int
    timestamp_before_ms_max: int
    timestamp_after_ms_max: int
    log_append_time: bool
    compacted: bool
    zstd: bool
    @property
    def offset_delta_of_max_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    def __init__(
        self,
        *,
        batch_size_max: int = 1_048_588,
        decompressed_size_max: int = 134_217_728,
        now_ms: int = 0,
        timestamp_before_ms_max: int = ...,
        timestamp_after_ms_max: int = 3_600_000,
        log_append_time: bool = False,
        compacted: bool = False,
        zstd: bool = True,
    ) -> None: ...

def check(batch: bytearray | memoryview, limits: BatchLimits) -> None:
    """Checks the one batch that a client produced; sets its timestamp type and maximum if need be.

    Raises CorruptMessage, InvalidRecord, InvalidTimestamp, MessageTooLarge or
    UnsupportedCompression, and leaves the bytes alone then.
    """
