# cython: boundscheck=False, wraparound=False
"""Plain C fields in which the stations of a request count; the metrics are written from them.

While nobody reads metrics, a request costs no more than one addition here.
"""

import logging

from ottla.wire.apis import APIS

log = logging.getLogger("ottla.requests")


cdef class Counts:
    """The counts of one broker since its start."""

    def __init__(self):
        self.errors = {}

    cdef int took(self, int key, double seconds) noexcept:
        """Count the duration of a request that was answered."""
        cdef int bucket = 0
        cdef double limit = 1e-6
        if not 0 <= key < KEYS:
            return 0
        while seconds >= limit and bucket < BUCKETS - 1:
            limit *= 2
            bucket += 1
        self.times[key][bucket] += 1
        self.seconds[key] += seconds
        return 0

    cpdef int failed(self, int key, int code) except -1:
        """Count an error code in a response, whether of the whole request or of an item."""
        if code != 0:
            self.errors[key, code] = self.errors.get((key, code), 0) + 1
        return 0

    def trace_arrival(self, connection, int key, int version, Py_ssize_t size):
        """Log a request that has arrived; `size` is the size of its frame in bytes."""
        name = APIS[key].name if key in APIS else f"API {key}"
        log.debug("%r: %s v%d, %d bytes", connection, name, version, size)

    def trace(self, connection, int key, double seconds):
        """Log that a request was answered."""
        name = APIS[key].name if key in APIS else f"API {key}"
        log.debug("%r: %s answered after %.3f ms", connection, name, seconds * 1000)

    def by_version(self):
        """The number of requests: a list of ((API key, version), count)."""
        return [
            ((key, version), self.requests[key][version])
            for key in range(KEYS) for version in range(VERSIONS) if self.requests[key][version]
        ]

    def durations(self):
        """By API key: a histogram of durations whose bucket limits are 1, 2, 4… microseconds, and
        the total in seconds."""
        found = {}
        for key in range(KEYS):
            counts = [self.times[key][bucket] for bucket in range(BUCKETS)]
            if any(counts):
                found[key] = counts, self.seconds[key]
        return found
