"""Logs at rest: what is known of a log whose files were not looked at."""

class RestState:
    """The size of a log at rest; its offsets and its latest epoch are the log's own."""

    def __init__(
        self, segments: int = 0, size_bytes: int = 0, first_ms: int = 0, aborted_bytes: int = -1
    ) -> None: ...
