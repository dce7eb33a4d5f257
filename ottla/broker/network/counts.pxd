# The number of requests by API and version, and their durations; see counts.pyx.

from libc.stdint cimport int64_t

cdef enum:
    KEYS = 128                  # API keys; Kafka has 95
    VERSIONS = 24
    BUCKETS = 32                # of durations: bucket n ends at 2^n microseconds


cdef enum:
    TOTAL                       # from the request's arrival to its response
    QUEUED                      # from the arrival until the handler began
    LOCAL                       # from the beginning of the handler until it ended or began to wait
    REMOTE                      # from the end of LOCAL until the response
    THROTTLED                   # the throttle time after the response; not part of TOTAL


cdef class Counts:
    cdef public bint traced             # whether each request is logged (ottla.requests at DEBUG)
    cdef public bint timing             # durations are measured; reading the clock takes 25 ns
    cdef public int64_t opened, closed_connections, received, sent
    cdef public int64_t throttled       # replies after which a connection was muted
    cdef int64_t requests[KEYS][VERSIONS]
    cdef int64_t times[THROTTLED + 1][KEYS][BUCKETS]
    cdef double seconds[KEYS]           # the sum of all TOTAL durations
    cdef readonly dict errors           # (key, code) -> count
    cdef inline int began(self, int key, int version) noexcept:
        if 0 <= key < KEYS and 0 <= version < VERSIONS:
            self.requests[key][version] += 1
        return 0
    cdef int took(self, int key, int phase, double seconds) noexcept
    cdef dict _by_key(self, int phase)
    cpdef int failed(self, int key, int code) except -1
