# A follower's side of Fetch: it applies a leader's replies; see fetcher.pyx.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from ottla.replication.fetch_plan cimport FetchPlan
from ottla.replication.fetch_reply cimport ReplyParser, ReplyReceiver
from ottla.replication.fetch_request cimport FetchedPartition


cdef class Fetcher(ReplyReceiver):
    cdef readonly FetchPlan plan
    cdef readonly ReplyParser parser
    cdef readonly int64_t bytes_fetched
    # The reply that is being read.
    cdef FetchedPartition item          # None: skip the partition's records
    cdef int16_t error, partition_error
    cdef int64_t high_watermark, log_start
    cdef bint cut_short                 # the records end within a batch: skip the rest

    cdef Py_ssize_t take(self, const uint8_t *data, Py_ssize_t size) except -1
    cdef int append(self, const uint8_t *data, Py_ssize_t size) except -1
    cdef int follow_leader(self, FetchedPartition item) except -1
    cdef int diverged(self, FetchedPartition item, int32_t epoch, int64_t end) except -1
    cdef int refused(self, FetchedPartition item, int16_t code) except -1
    cdef int failed(self, FetchedPartition item, str what, error) except -1
