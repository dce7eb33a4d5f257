# cython: boundscheck=False, wraparound=False
"""Cursor and Writer: the primitive types of Kafka's protocol, with bounds checks when reading.

Every length is checked against the remaining bytes before anything is allocated; a violation raises
MalformedMessage. Reference: Kafka protocol guide, "Protocol Primitive Types";
KIP-482 for the compact forms and tagged fields.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DATA, PyUnicode_DecodeUTF8, PyUnicode_GET_LENGTH
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from ottla.wire.byteorder cimport load_int64

from ottla.wire.errors import MalformedMessage

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object text)

cdef enum:
    STRING_MAX = 32767                  # bytes of a string, also of one with a compact length
    # Limits of Kafka 4.4: elements of one array, tagged fields of one struct.
    ARRAY_ELEMENTS_MAX = 1_000_000
    TAGGED_FIELDS_MAX = 10_000

cdef class Cursor:
    """Reads primitives from a bytes-like object (or, from Cython, from a pointer)."""

    def __init__(self, data=b""):
        cdef const uint8_t[::1] view
        self.owner = data
        if type(data) is bytes:         # the usual case: no view is needed
            self.at = <const uint8_t *>PyBytes_AS_STRING(data)
            self.end = self.at + PyBytes_GET_SIZE(data)
        elif len(data):
            view = data
            self.at = &view[0]
            self.end = self.at + view.shape[0]
            self.owner = view

    def left(self):
        """Bytes not read yet."""
        return self.end - self.at

    cdef int refuse(self, Py_ssize_t size, str what) except -1:
        raise MalformedMessage(f"{what} needs {size} bytes, but only {self.end - self.at} are left")

    cdef double read_float64(self) except? -1:
        cdef int64_t bits = load_int64(self.take(8, "float64"))
        cdef double value
        memcpy(&value, &bits, 8)
        return value

    cdef uint32_t read_longer_varint(self) except? 0xffffffff:
        cdef uint64_t value = 0
        cdef int shift
        cdef uint8_t byte
        for shift in range(0, 35, 7):
            byte = self.take(1, "unsigned varint")[0]
            value |= <uint64_t>(byte & 0x7f) << shift
            if byte < 0x80:
                if value > 0xffffffff:
                    raise MalformedMessage("unsigned varint has more than 32 bits")
                return <uint32_t>value
        raise MalformedMessage("unsigned varint is longer than 5 bytes")

    cdef int64_t read_varlong(self) except? -1:
        """Reads a zigzag integer of up to 64 bits, as used inside records."""
        cdef uint64_t value = 0
        cdef int shift
        cdef uint8_t byte
        for shift in range(0, 70, 7):
            byte = self.take(1, "varlong")[0]
            if shift == 63 and byte > 1:
                raise MalformedMessage("varlong has more than 64 bits")
            value |= <uint64_t>(byte & 0x7f) << shift
            if byte < 0x80:
                return <int64_t>(value >> 1) ^ -<int64_t>(value & 1)
        raise MalformedMessage("varlong is longer than 10 bytes")

    cdef Py_ssize_t read_string_length(self, bint compact) except -2:
        cdef Py_ssize_t size
        size = <Py_ssize_t>self.read_unsigned_varint() - 1 if compact else self.read_int16()
        if size > STRING_MAX:
            raise MalformedMessage(
                f"a string has {size} bytes, but at most {STRING_MAX} are allowed")
        return self.checked_length(size)

    cdef Py_ssize_t read_bytes_length(self, bint compact) except -2:
        cdef Py_ssize_t size
        size = <Py_ssize_t>self.read_unsigned_varint() - 1 if compact else self.read_int32()
        return self.checked_length(size)

    cdef Py_ssize_t checked_length(self, Py_ssize_t size) except -2:
        if size < -1 or size > self.end - self.at:
            raise MalformedMessage(
                f"a length field declares {size} bytes, but {self.end - self.at} bytes remain")
        return size

    cdef Py_ssize_t read_count(self, bint compact, Py_ssize_t element_size_min) except -2:
        """Reads the length of an array, -1 for null. Raises if too few bytes are left for so many
        elements."""
        cdef Py_ssize_t count
        count = <Py_ssize_t>self.read_unsigned_varint() - 1 if compact else self.read_int32()
        if count < -1 or count * element_size_min > self.end - self.at:
            left = self.end - self.at
            raise MalformedMessage(f"an array has {count} elements, but only {left} bytes remain")
        if count > ARRAY_ELEMENTS_MAX:
            raise MalformedMessage(
                f"an array has {count} elements, but at most {ARRAY_ELEMENTS_MAX} are allowed")
        if self.elements_max:
            self.elements += max(count, 0)
            if self.elements > self.elements_max:
                raise MalformedMessage(
                    f"the arrays have {self.elements} elements in all, but at most "
                    f"{self.elements_max} are allowed: the request names more topics or partitions "
                    "than exist")
        return count

    cdef str read_string(self, bint compact):
        # As in Apache Kafka, invalid UTF-8 is read as U+FFFD: bytes that clients cannot decode
        # must not get from a request into a reply.
        cdef Py_ssize_t size = self.read_string_length(compact)
        cdef str text
        if size < 0:
            return None
        self.at += size
        text = PyUnicode_DecodeUTF8(<const char *>(self.at - size), size, "replace")
        if size > STRING_MAX // 3 and len(text.encode()) > STRING_MAX:
            raise MalformedMessage(
                f"a string of {size} bytes is not valid UTF-8, and would have more than "
                f"{STRING_MAX} bytes once the invalid bytes are replaced")
        return text

    cdef bytes read_bytes(self, bint compact):
        cdef Py_ssize_t size = self.read_bytes_length(compact)
        if size < 0:
            return None
        self.at += size
        return PyBytes_FromStringAndSize(<const char *>(self.at - size), size)

    cdef bytes read_uuid(self):
        return PyBytes_FromStringAndSize(<const char *>self.take(16, "uuid"), 16)

    cdef bytes rest(self):
        """All remaining bytes."""
        assert self.at <= self.end, "the cursor is past the end of its bytes"
        return PyBytes_FromStringAndSize(<const char *>self.at, self.end - self.at)

    cdef uint32_t read_tag_count(self) except? 0xffffffff:
        """The number of tagged fields that follow."""
        cdef uint32_t count = self.read_unsigned_varint()
        if count > TAGGED_FIELDS_MAX:
            raise MalformedMessage(
                f"a struct has {count} tagged fields, but at most {TAGGED_FIELDS_MAX} are allowed")
        return count

    cdef int skip_tags(self) except -1:
        """Skips the tagged fields of a flexible struct when none of them is needed."""
        cdef uint32_t left = self.read_tag_count()
        while left:
            self.read_unsigned_varint()
            self.take(self.read_unsigned_varint(), "tagged field")
            left -= 1
        return 0


cdef class Writer:
    """A growing buffer of bytes."""

    def __dealloc__(self):
        free(self.data)

    def getvalue(self):
        """The bytes written so far, copied."""
        assert 0 <= self.size <= self.room, "more was written than the buffer holds"
        return PyBytes_FromStringAndSize(<const char *>self.data, self.size)

    cdef int grow(self, Py_ssize_t size) except -1:
        """Makes room for `size` more bytes, and for at least as many bytes as were written so
        far, so that a buffer grows only a few times."""
        cdef Py_ssize_t room = 2 * self.size + size + 64
        cdef uint8_t *grown
        assert 0 <= self.size <= self.room and size >= 0, "more was written than the buffer holds"
        grown = <uint8_t *>realloc(self.data, room)
        if grown is NULL:
            raise MemoryError(f"out of memory: no buffer of {room} bytes for a message")
        self.data, self.room = grown, room
        return 0

    cdef int shrink(self) except -1:
        """Drops everything that was written, and frees the memory."""
        free(self.data)
        self.data, self.size, self.room = NULL, 0, 0
        return 0

    cdef int write_float64(self, double value) except -1:
        cdef int64_t bits
        memcpy(&bits, &value, 8)
        return self.write_int64(bits)

    cdef int write_unsigned_varint(self, uint64_t value) except -1:
        cdef uint8_t *at = self.more(10)
        cdef uint8_t *start = at
        while value >= 0x80:
            at[0] = <uint8_t>(value & 0x7f | 0x80)
            at += 1
            value >>= 7
        at[0] = <uint8_t>value
        assert at - start < 10, "the varint is longer than ten bytes"
        self.size -= 9 - (at - start)
        return 0

    cdef int write_varlong(self, int64_t value) except -1:
        return self.write_unsigned_varint((<uint64_t>value << 1) ^ <uint64_t>(value >> 63))

    cdef int write_raw(self, const void *data, Py_ssize_t size) except -1:
        if size:
            memcpy(self.more(size), data, size)
        return 0

    cdef int write_string(self, str value, bint compact) except -1:
        cdef bytes encoded
        cdef const char *data
        cdef Py_ssize_t size
        if value is None:
            return self.write_unsigned_varint(0) if compact else self.write_int16(-1)
        if PyUnicode_IS_COMPACT_ASCII(value):       # nearly all names: no intermediate copy
            data, size = <const char *>PyUnicode_DATA(value), PyUnicode_GET_LENGTH(value)
        else:
            # Directory names that are not UTF-8 have surrogates in Python; "replace" writes `?`.
            encoded = value.encode("utf-8", "replace")
            data, size = PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded)
        if size > STRING_MAX:
            raise ValueError(
                f"a string has {size} bytes, but the protocol allows at most {STRING_MAX}")
        if compact:
            self.write_unsigned_varint(size + 1)
        else:
            self.write_int16(size)
        return self.write_raw(data, size)

    cdef int write_bytes(self, object value, bint compact) except -1:
        cdef const uint8_t[::1] view
        if value is None:
            return self.write_unsigned_varint(0) if compact else self.write_int32(-1)
        self.write_count(len(value), compact)
        if type(value) is bytes:
            return self.write_raw(PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
        if len(value):
            view = value
            self.write_raw(&view[0], view.shape[0])
        return 0

    cdef int write_count(self, Py_ssize_t count, bint compact) except -1:
        return self.write_unsigned_varint(count + 1) if compact else self.write_int32(count)

    cdef int write_no_tags(self, bint flexible) except -1:
        return self.write_int8(0) if flexible else 0
