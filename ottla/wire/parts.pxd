# Messages that are encoded or decoded a part at a time.

from ottla.wire.codec cimport Cursor, Writer
from ottla.wire.plan cimport Op, Plan
from ottla.wire.structs cimport Message


cdef class Level:
    cdef Plan plan
    cdef object struct
    cdef int field
    cdef list values                    # of the array that is being encoded; None between arrays
    cdef Py_ssize_t element


cdef class EncodedInParts(Message):
    cdef readonly Message message
    cdef Writer writer
    cdef int version
    cdef list levels                    # the outermost first; empty once all is encoded

    cdef bint encode_until(self, Py_ssize_t size) except -1
    cdef int write_elements(self, Level level, Op *op, Py_ssize_t size) except -1


cdef class DecodedInParts:
    cdef readonly object message
    cdef Cursor cursor
    cdef Plan plan
    cdef int version
    cdef tuple path
