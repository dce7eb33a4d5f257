# Rates as Kafka measures them; see windows.pyx.


cdef struct Sample:
    double start, last                  # seconds: its start, and its latest event
    double value


cdef class Rate:
    cdef public double bound            # units per second
    cdef readonly double used_at        # when it was used last
    cdef readonly double throttled      # seconds of all throttle times
    cdef readonly long throttles
    cdef int samples_max, used, current
    cdef double seconds                 # of one sample
    cdef double covered_min             # seconds: a sum is divided by at least this
    cdef double total                   # of all samples; expired ones may still be counted
    cdef Sample *samples

    cpdef double record(self, double value, double now) except? -1
    cpdef double would_wait(self, double value, double now) except? -1
    cdef Sample *at(self, double now) noexcept
    cdef double sum(self) noexcept
    cdef double waited(self, double seconds) noexcept
    cdef double wait(self, double extra, double now) noexcept


cdef class TokenBucket:
    cdef readonly double bound          # tokens per second
    cdef readonly double used_at
    cdef double burst_seconds, tokens

    cpdef double wait(self, double now) except? -1
    cpdef int take(self, double tokens, double now) except -1
    cpdef int allow(self, double bound, double now) except -1
