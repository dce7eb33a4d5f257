# cython: boundscheck=False, wraparound=False
"""Counters of requests as plain C fields, from which the metrics are written.

While metrics are disabled, a request costs only one addition here.
"""

from libc.math cimport frexp

import logging

from ottla.wire.apis import APIS

log = logging.getLogger("ottla.requests")

assert max(APIS) < KEYS, "requests of this API would not be counted: raise KEYS"
assert max(api.versions.stop for api in APIS.values()) <= VERSIONS, (
    "requests of the newest version would not be counted: raise VERSIONS")

PHASES = ("requestqueue", "local", "remote", "throttle")


cdef class Counts:
    """The counts of one broker since its start."""

    def __init__(self):
        self.errors = {}

    cdef int took(self, int key, int phase, double seconds) noexcept:
        """Count how long a phase of an answered request lasted."""
        cdef int bucket = 0
        if not 0 <= key < KEYS:
            return 0
        if seconds >= 1e-6:             # 2^(bucket - 1) <= microseconds < 2^bucket
            frexp(seconds * 1e6, &bucket)
            bucket = min(bucket, BUCKETS - 1)
        self.times[phase][key][bucket] += 1
        if phase == TOTAL:
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
        """For each API key, a histogram of durations whose bucket limits are 1, 2, 4… microseconds,
        and the sum of the durations in seconds."""
        return {key: (found, self.seconds[key]) for key, found in self._by_key(TOTAL).items()}

    def phase(self, name):
        """For each API key, a histogram of one phase, with the bucket limits of `durations`. The
        phases are "requestqueue", "local", "remote" and "throttle". In the histogram of "throttle",
        the first bucket includes requests that were not throttled."""
        by_key = self._by_key(QUEUED + PHASES.index(name))
        if name == "throttle":
            for key, counts in self._by_key(TOTAL).items():
                throttled = by_key.setdefault(key, [0] * BUCKETS)
                throttled[0] += max(0, sum(counts) - sum(throttled))
        return by_key

    cdef dict _by_key(self, int phase):
        cdef int key, bucket
        cdef int64_t counted
        cdef dict by_bucket = {}
        for key in range(KEYS):
            counted = 0
            for bucket in range(BUCKETS):
                counted += self.times[phase][key][bucket]
            if counted > 0:
                by_bucket[key] = [self.times[phase][key][bucket] for bucket in range(BUCKETS)]
        return by_bucket
