# Makes a produced partition's records what the log stores; see preparing.pyx.

from libc.stdint cimport int64_t, uint8_t

from ottla.wire.batch cimport BatchLimits


cdef class TopicLimits:
    """What a topic's settings say about batches, and how much of that work the loop may do."""
    cdef readonly BatchLimits limits
    cdef readonly object config             # the LogConfig that this follows from
    cdef readonly int64_t room_on_loop      # bytes of records that the loop may compress itself


cdef class Preparation:
    """One partition's records on their way through a thread."""
    cdef object frame                       # keeps `records` alive
    cdef uint8_t *records
    cdef Py_ssize_t size
    cdef int version
    cdef BatchLimits limits                 # its own
    cdef readonly bytearray stored          # what to store instead of `records`; None for these
    cdef readonly object error              # why they are refused

    cdef int raise_error(self) except -1


cdef object LATER

cdef object prepare_on_loop(
    uint8_t *records, Py_ssize_t size, int version, TopicLimits topic)
