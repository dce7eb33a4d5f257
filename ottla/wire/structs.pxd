# Messages are objects with a slot for each field; they are encoded to bytes and decoded from them.

from ottla.wire.codec cimport Cursor, Writer
from ottla.wire.plan cimport Layout, Op, Plan


cdef class Struct:
    pass


cdef class Message(Struct):
    cdef int encode_into(self, Writer writer, int version) except -1


cdef object decode_from(type message_class, Cursor cursor, int version)
