# The machine's two clocks; see clock.pyx.

from libc.stdint cimport int64_t


cdef class Clock:
    cpdef int64_t now_ms(self) except? -1
    cpdef double monotonic(self) except? -1
    cpdef int64_t monotonic_ms(self) except? -1
