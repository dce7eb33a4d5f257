"""The sliding windows and token buckets of Kafka's quotas.

A rate is the sum of a window's samples, divided by the time that they cover. The window has
`quota.window.num` samples (11 by default) of `quota.window.size.seconds` each (1 by default). The
divisor is at least the whole window less one sample (10 seconds by default), even if counting has
just begun. So a client can send ten seconds' worth of its quota at once, and is throttled
afterwards (KIP-13, KIP-219).
Controller mutations use a token bucket, which does not penalize a burst twice (KIP-599).
"""

from libc.stdlib cimport calloc, free


cdef class Rate:
    """The rate of one scope of clients, with its limit in units per second."""

    def __init__(self, int samples, double sample_seconds, double bound):
        # One more than the window has: the oldest sample overlaps the window's beginning.
        self.samples_max, self.seconds, self.bound = samples + 1, sample_seconds, bound
        self.covered_min = max(1, samples - 1) * sample_seconds
        self.samples = <Sample *>calloc(self.samples_max, sizeof(Sample))
        if self.samples is NULL:
            raise MemoryError(f"out of memory: cannot allocate {samples} samples of a quota")

    def __dealloc__(self):
        free(self.samples)

    cpdef double record(self, double value, double now) except? -1:
        """Count `value`; returns the seconds to wait until the rate is within its limit again."""
        cdef Sample *sample
        self.used_at = now
        if self.used > 0:
            # `total` may still contain expired values. While even `total` is within the limit, the
            # samples need not be summed.
            sample = &self.samples[self.current]
            self.total += value
            if (now - sample.start < self.seconds
                    and self.total <= self.bound * self.covered_min):
                sample.value += value
                sample.last = now
                return 0
        sample = self.at(now)
        sample.value += value
        sample.last = now
        self.total = self.sum()
        return self.waited(self.wait(0, now))

    cdef double sum(self) noexcept:
        cdef double counted = 0
        cdef int i
        for i in range(self.used):
            counted += self.samples[i].value
        return counted

    cpdef double would_wait(self, double value, double now) except? -1:
        """Return what `record` would return, without counting `value`. Return 0 if nothing is
        counted yet: otherwise a value that alone exceeds the limit of a window could never pass.
        """
        if self.total + value <= self.bound * self.covered_min:
            return 0
        self.at(now)
        self.total = self.sum()
        return self.waited(self.wait(value, now)) if self.total > 0 else 0

    cdef double waited(self, double seconds) noexcept:
        """Count a throttle time for the metrics."""
        if seconds > 0:
            self.throttles += 1
            self.throttled += seconds
        return seconds

    cdef Sample *at(self, double now) noexcept:
        """The current sample; expired samples are cleared."""
        cdef Sample *sample
        cdef double expired = now - (self.samples_max - 1) * self.seconds
        cdef int i
        if self.used == 0:
            self.used = 1
            self.samples[0].start = self.samples[0].last = now
        elif now - self.samples[self.current].start >= self.seconds:
            self.current = (self.current + 1) % self.samples_max
            self.used = max(self.used, self.current + 1)
            sample = &self.samples[self.current]
            sample.start = sample.last = now
            sample.value = 0
        for i in range(self.used):
            sample = &self.samples[i]
            if sample.last <= expired:
                sample.start = sample.last = now
                sample.value = 0
        return &self.samples[self.current]

    cdef double wait(self, double extra, double now) noexcept:
        """Seconds until the rate, with `extra` units more, is within its limit."""
        cdef double total = extra, oldest = now, covered, rate
        cdef int i, whole, missing
        for i in range(self.used):
            total += self.samples[i].value
            oldest = min(oldest, self.samples[i].start)
        covered = now - oldest
        whole = <int>(covered / self.seconds)
        missing = self.samples_max - 2 - whole
        if missing > 0:
            covered += missing * self.seconds
        covered = max(covered, self.seconds)
        rate = total / covered
        return 0 if rate <= self.bound else (rate - self.bound) / self.bound * covered


cdef class TokenBucket:
    """Tokens are added steadily until the bucket is full; whoever takes too many owes the rest."""

    def __init__(self, int samples, double sample_seconds, double bound, double now):
        self.burst_seconds = samples * sample_seconds
        self.bound, self.used_at = bound, now
        self.tokens = bound * self.burst_seconds

    cpdef double wait(self, double now) except? -1:
        """The seconds until all owed tokens are paid; 0 if none are owed."""
        self.tokens = min(
            self.tokens + max(now - self.used_at, 0) * self.bound, self.bound * self.burst_seconds)
        self.used_at = now
        return max(-self.tokens / self.bound, 0)

    cpdef int take(self, double tokens, double now) except -1:
        """Take tokens, even more than exist."""
        self.wait(now)
        self.tokens -= tokens
        return 0

    cpdef int allow(self, double bound, double now) except -1:
        """Change the rate."""
        if bound != self.bound:
            self.wait(now)
            self.bound = bound
            self.tokens = min(self.tokens, bound * self.burst_seconds)
        return 0
