# A follower's side of Fetch: it decides what to request and reads replies; see fetcher.pyx.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from ottla.log.files.clock cimport Clock
from ottla.replication.fetch_request cimport FetchedPartition
from ottla.replication.fetch_settings cimport FetchSettings
from ottla.replication.partition cimport Partition
from ottla.wire.codec cimport Cursor


cdef class Fetcher:
    cdef readonly int32_t node_id, source_id
    cdef public int64_t broker_epoch    # of this node, as of the image
    cdef readonly FetchSettings settings
    cdef readonly bint news             # send a request although one waits
    # Partition → None: truncated; `checkpointed` must follow. All fetchers of a broker share it: a
    # partition may have another leader before its checkpoint is written.
    cdef readonly dict cut
    cdef readonly int outstanding       # replies that are due
    cdef readonly Py_ssize_t wanted     # bytes that `take` needs to go on
    cdef readonly int64_t bytes_fetched
    cdef Clock clock
    cdef dict items                     # key → FetchedPartition
    cdef dict changed                   # key → those to name in the next request
    cdef dict resting                   # key → those that are fetched later
    cdef dict removed                   # keys to remove from the session
    cdef int32_t session_id, session_epoch
    cdef readonly int64_t requests      # the number of the latest one
    cdef int64_t replies                # and of the latest reply
    cdef int64_t again_ms               # no request before this time
    cdef int64_t backoff_ms
    # The reply that is being read.
    cdef int state
    cdef int64_t reply_left             # bytes of it not consumed yet
    cdef Py_ssize_t topics_left, partitions_left, records_left
    cdef bytes topic_id
    cdef FetchedPartition item          # None: what arrives is skipped
    cdef int16_t error, partition_error
    cdef int64_t high_watermark, log_start
    cdef Cursor cursor

    cdef Py_ssize_t take(self, const uint8_t *data, Py_ssize_t size) except -1
    cdef Py_ssize_t step(self, const uint8_t *data, Py_ssize_t size) except -2
    cdef int read_unit(self, Cursor cursor) except -1
    cdef int read_frame(self, Cursor cursor) except -1
    cdef int read_partition(self, Cursor cursor) except -1
    cdef int read_tags(self, Cursor cursor) except -1
    cdef Py_ssize_t take_records(self, const uint8_t *data, Py_ssize_t size) except -2
    cdef int append(self, const uint8_t *data, Py_ssize_t size) except -1
    cdef int after_partition(self) except -1
    cdef int end_reply(self) except -1
    cdef Py_ssize_t count(self, Cursor cursor, str what) except -1
    cdef bint is_followed(self, FetchedPartition item) noexcept
    cdef bint is_current(self, FetchedPartition item) except -1
    cdef bint names_any(self)
    cdef int remove(self, tuple key) except -1
    cdef bint is_late(self, FetchedPartition item) noexcept
    cdef int diverged(self, FetchedPartition item, int32_t epoch, int64_t end) except -1
    cdef int refused(self, FetchedPartition item, int16_t code) except -1
    cdef int failed(self, FetchedPartition item, str what, error) except -1
    cdef int rest(self, FetchedPartition item, int64_t ms) except -1
    cdef int note_cut(self, FetchedPartition item) except -1
    cdef int end_session(self) except -1
