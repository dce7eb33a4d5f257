# Messages are objects with a slot for each field; they are encoded to bytes and decoded from them.

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF

from ottla.wire.codec cimport Cursor, Writer
from ottla.wire.plan cimport Layout, Op, Plan


cdef class Struct:
    pass


cdef class Message(Struct):
    cdef int encode_into(self, Writer writer, int version) except -1


cdef class EncodedMessage(Message):
    cdef readonly bytes data


cdef inline PyObject **slot(object struct, Py_ssize_t offset) noexcept:
    return <PyObject **>(<char *><PyObject *>struct + offset)


cdef inline void put(object struct, Py_ssize_t offset, object value) noexcept:
    cdef PyObject **at = slot(struct, offset)
    cdef PyObject *old = at[0]
    Py_INCREF(value)
    at[0] = <PyObject *>value
    Py_XDECREF(old)


cdef object empty_struct(Plan plan)
cdef object read_struct(Cursor cursor, Plan plan)
cdef object read_value(Cursor cursor, int code, Op *op, bint compact)
cdef int read_rest(Cursor cursor, Plan plan, object struct) except -1
cdef int write_value(Writer writer, int code, Op *op, object value, bint compact) except -1
cdef int write_struct(Writer writer, Plan plan, object struct) except -1
cdef int write_rest(Writer writer, Plan plan, object struct) except -1
cdef list array_list(object value)
cdef int reach(Op *field) except -1
cdef str where(message, int version)
cdef object decode_from(type message_class, Cursor cursor, int version)
