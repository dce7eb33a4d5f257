class Counts:
    """The counts of one broker since its start."""

    traced: bool
    timing: bool
    opened: int
    closed_connections: int
    received: int
    sent: int
    @property
    def errors(self) -> dict[tuple[int, int], int]: ...
    def failed(self, key: int, code: int) -> int: ...
    def by_version(self) -> list[tuple[tuple[int, int], int]]: ...
    def durations(self) -> dict[int, tuple[list[int], float]]: ...
