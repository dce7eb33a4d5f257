# The counters of a partition; see counters.pyx.

from libc.stdint cimport int64_t

cdef enum:
    COUNTERS = 14                       # the number of counters


cdef class PartitionCounters:
    # The fields are in the order of COUNTED (counters.pyx): `add_to` reads them as an array.
    cdef public int64_t messages_in, bytes_in, bytes_out, produces, fetches, failed_produces
    cdef public int64_t failed_fetches, isr_shrinks, isr_expands, bytes_rejected, replicated_in
    cdef public int64_t replicated_out, produce_conversions, fetch_conversions

    cdef int add_to(self, int64_t *sums) noexcept
