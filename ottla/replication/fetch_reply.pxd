# Parses Fetch replies as their bytes arrive; see fetch_reply.pyx.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from ottla.wire.codec cimport Cursor


cdef class ReplyReceiver:
    """The methods that a ReplyParser calls with each part of a reply."""
    cdef int replies_due(self) noexcept
    cdef int reply_begins(self, int32_t correlation_id, int16_t error, int32_t session_id) except -1
    cdef int partition_begins(
        self, bytes topic_id, int32_t index, int16_t error, int64_t high_watermark,
        int64_t log_start) except -1
    cdef Py_ssize_t take_records(
        self, const uint8_t *data, Py_ssize_t size, int64_t left) except? -1
    cdef int partition_ends(self, int32_t diverging_epoch, int64_t diverging_end) except -1
    cdef int reply_ends(self) except -1


cdef class ReplyParser:
    cdef readonly Py_ssize_t wanted         # bytes that `take` needs to continue
    cdef int state
    cdef int64_t reply_left                 # bytes of the reply not consumed yet
    cdef Py_ssize_t topics_left, partitions_left, records_left
    cdef bint parsing                       # `take` is running
    cdef bint over                          # `take` was interrupted by `reset`: ignore the rest
    cdef bytes topic_id
    cdef Cursor cursor

    cdef int reset(self) except -1
    cdef int begin(self) except -1
    cdef Py_ssize_t take(
        self, ReplyReceiver receiver, const uint8_t *data, Py_ssize_t size) except -1
    cdef Py_ssize_t step(
        self, ReplyReceiver receiver, const uint8_t *data, Py_ssize_t size) except -2
    cdef Py_ssize_t pass_records(
        self, ReplyReceiver receiver, const uint8_t *data, Py_ssize_t size) except -2
    cdef int read_unit(self, ReplyReceiver receiver, Cursor cursor) except -1
    cdef int read_frame(self, ReplyReceiver receiver, Cursor cursor) except -1
    cdef int read_partition(self, ReplyReceiver receiver, Cursor cursor) except -1
    cdef int read_tags(self, ReplyReceiver receiver, Cursor cursor) except -1
    cdef Py_ssize_t count(self, Cursor cursor, str what) except -1
