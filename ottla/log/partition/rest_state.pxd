# The known state of a log at rest.

from libc.stdint cimport int64_t


cdef class RestState:
    cdef int64_t size_bytes             # of all segments' batches
    cdef Py_ssize_t segments            # number of segments, may be 0
    cdef int64_t first_ms               # the first segment's highest timestamp, -1 if unknown
    cdef int64_t aborted_bytes          # of all transaction indexes, -1 if unknown, or DISTRUSTED
    cdef int64_t first_open             # first offset of the oldest open transaction, or -1

    cdef bint retention_may_be_due(self, config, int64_t now_ms) except -1
