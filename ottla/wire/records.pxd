# A record as a Python object with C fields.

from libc.stdint cimport int64_t


cdef class Record:
    cdef public int64_t offset
    cdef public int64_t timestamp
    cdef public bytes key
    cdef public bytes value
    cdef public tuple headers

    cdef tuple fields(self)
