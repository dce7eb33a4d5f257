# cython: boundscheck=False, wraparound=False
"""The counters of a partition since it was opened, for metrics."""

from libc.stdint cimport int64_t

COUNTED = (
    "messages_in", "bytes_in", "bytes_out", "produces", "fetches", "failed_produces",
    "failed_fetches", "isr_shrinks", "isr_expands", "bytes_rejected", "replicated_in",
    "replicated_out", "produce_conversions", "fetch_conversions",
)
"""The names of the counters."""

assert len(COUNTED) == COUNTERS


cdef class PartitionCounters:
    """The counters of one partition, or the sums of several partitions' counters."""

    cdef int add_to(self, int64_t *sums) noexcept:
        """Add the counters to `sums`, an array with one element for each of COUNTED."""
        cdef const int64_t *counted = &self.messages_in
        cdef int at
        for at in range(COUNTERS):
            sums[at] += counted[at]
        return 0

    def add(self, PartitionCounters other not None):
        """Add another partition's counters to these."""
        other.add_to(&self.messages_in)
