# The number of requests by API and version, and their durations; see counts.pyx.

from libc.stdint cimport int64_t

cdef enum:
    KEYS = 128                  # API keys; Kafka has 95
    VERSIONS = 24
    BUCKETS = 32                # of durations: bucket n is below 2^n microseconds


cdef class Counts:
    cdef public bint traced             # whether each request is logged (ottla.requests at DEBUG)
    cdef public bint timing             # whether durations are measured; a clock read costs 25 ns
    cdef public int64_t opened, closed_connections, received, sent
    cdef public int64_t throttled       # replies after which a connection was muted
    cdef int64_t requests[128][24]
    cdef int64_t times[128][32]
    cdef double seconds[128]
    cdef readonly dict errors           # (key, code) -> count
    cdef inline int began(self, int key, int version) noexcept:
        if 0 <= key < KEYS and 0 <= version < VERSIONS:
            self.requests[key][version] += 1
        return 0
    cdef int took(self, int key, double seconds) noexcept
    cpdef int failed(self, int key, int code) except -1
