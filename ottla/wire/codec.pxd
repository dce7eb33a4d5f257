# The primitives for every byte that Ottla reads or writes. A Cursor reads bytes, and checks each
# step against their end. A Writer grows as bytes are written. For null strings, bytes and arrays, a
# value is None and a length is -1.
#
# The functions used for every field of every request are here, so that the compiler can inline
# them; the rest is in codec.pyx.

cimport cython
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from ottla.wire.byteorder cimport (
    load_int16, load_int32, load_int64, store_int16, store_int32, store_int64,
)


@cython.final
cdef class Cursor:
    cdef const uint8_t *at              # next byte to read
    cdef const uint8_t *end             # invariant: at <= end
    cdef object owner                   # keeps the bytes alive; None if the caller keeps them alive
    # Array elements read so far, and the maximum; 0 means no limit.
    cdef Py_ssize_t elements, elements_max

    cdef inline const uint8_t *take(self, Py_ssize_t size, str what) except NULL:
        if size < 0 or self.end - self.at < size:
            self.refuse(size, what)
        self.at += size
        return self.at - size

    cdef inline int8_t read_int8(self) except? -1:
        return <int8_t>self.take(1, "int8")[0]

    cdef inline int16_t read_int16(self) except? -1:
        return load_int16(self.take(2, "int16"))

    cdef inline uint16_t read_uint16(self) except? 0xffff:
        return <uint16_t>load_int16(self.take(2, "uint16"))

    cdef inline int32_t read_int32(self) except? -1:
        return load_int32(self.take(4, "int32"))

    cdef inline uint32_t read_uint32(self) except? 0xffffffff:
        return <uint32_t>load_int32(self.take(4, "uint32"))

    cdef inline int64_t read_int64(self) except? -1:
        return load_int64(self.take(8, "int64"))

    cdef inline uint32_t read_unsigned_varint(self) except? 0xffffffff:
        if self.at < self.end and self.at[0] < 0x80:    # nearly all values take one byte
            self.at += 1
            return (self.at - 1)[0]
        return self.read_longer_varint()

    cdef int refuse(self, Py_ssize_t size, str what) except -1
    cdef uint32_t read_longer_varint(self) except? 0xffffffff
    cdef double read_float64(self) except? -1
    cdef int64_t read_varlong(self) except? -1
    cdef Py_ssize_t read_string_length(self, bint compact) except -2
    cdef Py_ssize_t read_bytes_length(self, bint compact) except -2
    cdef Py_ssize_t checked_length(self, Py_ssize_t size) except -2
    cdef Py_ssize_t read_count(self, bint compact, Py_ssize_t element_size_min) except -2
    cdef str read_string(self, bint compact)
    cdef bytes read_bytes(self, bint compact)
    cdef bytes read_uuid(self)
    cdef uint32_t read_tag_count(self) except? 0xffffffff
    cdef int skip_tags(self) except -1
    cdef bytes rest(self)


cdef class Writer:
    cdef uint8_t *data
    cdef Py_ssize_t size                # bytes written
    cdef Py_ssize_t room                # bytes allocated; invariant: size <= room

    cdef int shrink(self) except -1
    cdef int grow(self, Py_ssize_t size) except -1

    @cython.final
    cdef inline uint8_t *more(self, Py_ssize_t size) except NULL:
        if self.size + size > self.room:
            self.grow(size)
        self.size += size
        return self.data + self.size - size

    @cython.final
    cdef inline int write_int8(self, int64_t value) except -1:
        self.more(1)[0] = <uint8_t>value
        return 0

    @cython.final
    cdef inline int write_int16(self, int64_t value) except -1:
        store_int16(self.more(2), <int16_t>value)
        return 0

    @cython.final
    cdef inline int write_int32(self, int64_t value) except -1:
        store_int32(self.more(4), <int32_t>value)
        return 0

    @cython.final
    cdef inline int write_int64(self, int64_t value) except -1:
        store_int64(self.more(8), value)
        return 0

    cdef int write_float64(self, double value) except -1
    cdef int write_unsigned_varint(self, uint64_t value) except -1
    cdef int write_varlong(self, int64_t value) except -1
    cdef int write_raw(self, const void *data, Py_ssize_t size) except -1
    cdef int write_string(self, str value, bint compact) except -1
    cdef int write_bytes(self, object value, bint compact) except -1
    cdef int write_count(self, Py_ssize_t count, bint compact) except -1
    cdef int write_no_tags(self, bint flexible) except -1
