# The two ends of every byte that Ottla reads or writes: a Cursor that checks each step against the
# end of its bytes, and a Writer that grows. Null strings, bytes and arrays are None or -1.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef class Cursor:
    cdef const uint8_t *at              # next byte to read
    cdef const uint8_t *end             # invariant: at <= end
    cdef object owner                   # keeps the bytes alive; None where the caller does
    # Elements of arrays that were read, and how many may be; 0 is no bound.
    cdef Py_ssize_t elements, elements_max

    cdef const uint8_t *take(self, Py_ssize_t size, str what) except NULL
    cdef int8_t read_int8(self) except? -1
    cdef int16_t read_int16(self) except? -1
    cdef uint16_t read_uint16(self) except? 0xffff
    cdef int32_t read_int32(self) except? -1
    cdef uint32_t read_uint32(self) except? 0xffffffff
    cdef int64_t read_int64(self) except? -1
    cdef double read_float64(self) except? -1
    cdef uint32_t read_unsigned_varint(self) except? 0xffffffff
    cdef int64_t read_varlong(self) except? -1
    cdef Py_ssize_t read_string_length(self, bint compact) except -2
    cdef Py_ssize_t read_bytes_length(self, bint compact) except -2
    cdef Py_ssize_t checked_length(self, Py_ssize_t size) except -2
    cdef Py_ssize_t read_count(self, bint compact, Py_ssize_t element_size_min) except -2
    cdef str read_string(self, bint compact)
    cdef bytes read_bytes(self, bint compact)
    cdef bytes read_uuid(self)
    cdef int skip_tags(self) except -1
    cdef bytes rest(self)


cdef class Writer:
    cdef uint8_t *data
    cdef Py_ssize_t size                # bytes written
    cdef Py_ssize_t room                # bytes allocated; invariant: size <= room

    cdef int shrink(self) except -1
    cdef uint8_t *more(self, Py_ssize_t size) except NULL
    cdef int write_int8(self, int64_t value) except -1
    cdef int write_int16(self, int64_t value) except -1
    cdef int write_int32(self, int64_t value) except -1
    cdef int write_int64(self, int64_t value) except -1
    cdef int write_float64(self, double value) except -1
    cdef int write_unsigned_varint(self, uint64_t value) except -1
    cdef int write_varlong(self, int64_t value) except -1
    cdef int write_raw(self, const void *data, Py_ssize_t size) except -1
    cdef int write_string(self, str value, bint compact) except -1
    cdef int write_bytes(self, object value, bint compact) except -1
    cdef int write_count(self, Py_ssize_t count, bint compact) except -1
    cdef int write_no_tags(self, bint flexible) except -1
