"""The only source of time for the log and everything above it: pass a Clock, never call `time`."""

from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec


cdef class Clock:
    """The machine's wall clock and monotonic clock."""

    cpdef int64_t now_ms(self) except? -1:
        """Milliseconds since 1970, as in Kafka's timestamps; jumps if the clock is set."""
        cdef timespec now
        clock_gettime(CLOCK_REALTIME, &now)
        return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1_000_000

    cpdef double monotonic(self) except? -1:
        """Seconds since an arbitrary instant; never goes back. For timeouts and rates."""
        cdef timespec now
        clock_gettime(CLOCK_MONOTONIC, &now)
        return now.tv_sec + now.tv_nsec * 1e-9

    cpdef int64_t monotonic_ms(self) except? -1:
        """The monotonic clock in milliseconds, for deadlines."""
        return <int64_t>(self.monotonic() * 1000)
