# What is known of a log at rest.

from libc.stdint cimport int64_t


cdef class RestState:
    cdef int64_t size_bytes             # of all segments' batches
    cdef Py_ssize_t segments            # how many there are, which may be none
    cdef int64_t first_ms               # the first one's highest timestamp, -1 if it is not known
    cdef int64_t aborted_bytes          # of all transaction indexes, -1 if that is not known

    cdef bint retention_may_be_due(self, config, int64_t now_ms) except -1
