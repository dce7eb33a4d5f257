"""The only time that the log and everything above it may see: pass a Clock, never call `time`."""

from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec


cdef class Clock:
    """The machine's two times."""

    cpdef int64_t now_ms(self) except? -1:
        """Milliseconds since 1970, the unit of Kafka's timestamps; may jump."""
        cdef timespec now
        clock_gettime(CLOCK_REALTIME, &now)
        return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1_000_000

    cpdef double monotonic(self) except? -1:
        """Seconds since some instant; never goes back. For waits and rates."""
        cdef timespec now
        clock_gettime(CLOCK_MONOTONIC, &now)
        return now.tv_sec + now.tv_nsec * 1e-9

    cpdef int64_t monotonic_ms(self) except? -1:
        """The same in milliseconds: what is due after a while is measured with it."""
        return <int64_t>(self.monotonic() * 1000)
