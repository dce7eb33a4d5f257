"""The parts of one log that are not durable yet, and the progress of its flushes."""

from ottla.log.partition.segment import Segment

class Unflushed:
    """One log's recovery point, and everything that the next flush has to sync."""

    recovery_point: int
    checkpoint_offset: int
    flushed_ms: int
    def __init__(
        self, recovery_point: int, has_epochs_file: bool, now_ms: int, sealed: list[Segment]
    ) -> None: ...
