"""The only time that the log and everything above it may see: pass a Clock, never call `time`."""

import time


class Clock:
    """The machine's two times."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, the unit of Kafka's timestamps; may jump."""
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
    """Seconds since some instant; never goes back. For waits and rates."""
