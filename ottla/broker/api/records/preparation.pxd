# Prepares a partition's produced records for the log; see preparation.pyx.

from libc.stdint cimport int64_t, uint8_t

from ottla.wire.batch cimport BatchLimits


cdef class TopicLimits:
    """A topic's settings for batches, and how much of the preparation the loop may do."""
    cdef readonly BatchLimits limits
    cdef readonly object config             # the LogConfig with these settings
    cdef readonly int64_t room_on_loop      # bytes of records that may be compressed on the loop


cdef class Preparation:
    """One partition's records while a thread prepares them."""
    cdef object frame                       # keeps `records` alive
    cdef uint8_t *records
    cdef Py_ssize_t size
    cdef int version
    cdef BatchLimits limits                 # a copy for this thread
    cdef object rebuild                     # an IndexRebuild to do instead, or None
    cdef readonly bytearray stored          # replaces `records`; None: store `records`
    cdef readonly object error              # why the records are refused, or None

    cdef int raise_error(self) except -1


cdef object LATER

cdef object prepare_on_loop(
    uint8_t *records, Py_ssize_t size, int version, TopicLimits topic)
