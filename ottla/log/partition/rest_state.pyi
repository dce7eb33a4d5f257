"""Logs at rest: the known state of a log whose files have not been read."""

class RestState:
    """The state of a log at rest. Its offsets and latest epoch are fields of the log itself."""

    def __init__(
        self, segments: int = 0, size_bytes: int = 0, first_ms: int = 0, aborted_bytes: int = -1
    ) -> None: ...
