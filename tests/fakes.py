"""Clocks that a test controls."""

from ottla.log.files.clock import Clock


class FakeClock(Clock):
    """A clock whose monotonic time and wall time `advance` together. `set_wall_clock` changes the
    wall time alone."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.start_ms, self.elapsed_ms, self.leapt_ms = now_ms, 0, 0

    def now_ms(self) -> int:
        return self.start_ms + self.elapsed_ms + self.leapt_ms

    def monotonic(self) -> float:
        return self.elapsed_ms / 1000

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self.elapsed_ms += ms

    def set_wall_clock(self, by_ms: int) -> None:
        """Set the time of day, as an operator or NTP does; no time passes."""
        self.leapt_ms += by_ms


class LeapingClock(Clock):
    """The machine's clock. Its monotonic time is ahead by the time that a test lets pass."""

    def __init__(self, passed_seconds: float = 0.0) -> None:
        self.passed_seconds = passed_seconds

    def monotonic(self) -> float:
        return super().monotonic() + self.passed_seconds
