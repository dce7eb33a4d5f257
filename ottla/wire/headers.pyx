"""Headers of requests and responses; reference: Kafka protocol guide, "Headers"; KIP-482, KIP-511.

A message's API and version determine its header. Flexible versions have flexible headers, with two
exceptions. The client id keeps its 2-byte length, because a broker has to read it before it knows
whether it supports the version. An ApiVersions response always has header 0, because a client reads
it before it knows the broker's versions.
"""

from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from ottla.wire.byteorder cimport load_int16

from ottla.wire.apis import APIS

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(str text, Py_ssize_t *size) except NULL

cdef enum:
    KEYS = 128
    CONTROLLED_SHUTDOWN = 7
    API_VERSIONS = 18
    LENGTH_SIZE = 2             # bytes of a client id's length

cdef int16_t flexible_from[KEYS]        # first flexible version by API key

for key in range(KEYS):
    flexible_from[key] = 0x7fff
for key, api in APIS.items():
    if api.flexible_from is not None:
        flexible_from[key] = api.flexible_from


cdef class RequestHeader:
    """The header of a request. `client_id` may be None; invalid UTF-8 in it is read as U+FFFD."""

    def __init__(
        self, int16_t api_key, int16_t version, int32_t correlation_id, str client_id=None
    ):
        self.api_key, self.version = api_key, version
        self.correlation_id, self.client_id = correlation_id, client_id

    @staticmethod
    def decode(data):
        """The header at the start of a frame, and its size in bytes.

        Raises MalformedMessage if there is no valid header.
        """
        cdef Cursor cursor = Cursor(data)
        cdef Py_ssize_t size = cursor.left()
        header = read_request_header(cursor)
        return header, size - cursor.left()

    def encode(self):
        """The bytes of this header, as a client sends them."""
        cdef Writer writer = Writer()
        self.write(writer)
        return writer.getvalue()

    cdef int write(self, Writer writer) except -1:
        writer.write_int16(self.api_key)
        writer.write_int16(self.version)
        writer.write_int32(self.correlation_id)
        if self.api_key != CONTROLLED_SHUTDOWN or self.version > 0:
            writer.write_string(self.client_id, False)
            writer.write_no_tags(is_flexible(self.api_key, self.version))
        return 0

    def __repr__(self):
        return (
            f"RequestHeader(api_key={self.api_key}, version={self.version}, "
            f"correlation_id={self.correlation_id}, client_id={self.client_id!r})"
        )


cdef RequestHeader read_request_header(Cursor cursor, str known_client_id=None):
    """Reads the header and leaves the cursor at the body; the API key may be unknown.

    If the client id equals `known_client_id`, that object is used and nothing is decoded: nearly
    all requests of a connection have the same client id.
    """
    cdef RequestHeader header = RequestHeader.__new__(RequestHeader)
    header.api_key = cursor.read_int16()
    header.version = cursor.read_int16()
    header.correlation_id = cursor.read_int32()
    if header.api_key != CONTROLLED_SHUTDOWN or header.version > 0:
        header.client_id = read_client_id(cursor, known_client_id)
        if is_flexible(header.api_key, header.version):
            cursor.skip_tags()
    return header


cdef str read_client_id(Cursor cursor, str known):
    cdef const uint8_t *text
    cdef Py_ssize_t size
    if known is not None and cursor.end - cursor.at >= LENGTH_SIZE:
        text = <const uint8_t *>PyUnicode_AsUTF8AndSize(known, &size)
        if (load_int16(cursor.at) == size and cursor.end - cursor.at - LENGTH_SIZE >= size
                and memcmp(cursor.at + LENGTH_SIZE, text, size) == 0):
            cursor.at += LENGTH_SIZE + size
            return known
    return cursor.read_string(False)


cdef bint is_flexible(int api_key, int version) noexcept:
    """Whether messages of this version have compact lengths and tagged fields."""
    return 0 <= api_key < KEYS and version >= flexible_from[api_key]


cdef int write_response_header(
    Writer writer, int api_key, int version, int32_t correlation_id
) except -1:
    """Writes the header of a response to a request of this API and version."""
    writer.write_int32(correlation_id)
    return writer.write_no_tags(api_key != API_VERSIONS and is_flexible(api_key, version))


def encode_response_header(int api_key, int version, int32_t correlation_id):
    """The bytes of a response before its body."""
    cdef Writer writer = Writer()
    write_response_header(writer, api_key, version, correlation_id)
    return writer.getvalue()


def response_header_size(int api_key, int version, data):
    """The size in bytes of the response header at the start of `data`."""
    cdef Cursor cursor = Cursor(data)
    cdef Py_ssize_t size = cursor.left()
    cursor.read_int32()
    if api_key != API_VERSIONS and is_flexible(api_key, version):
        cursor.skip_tags()
    return size - cursor.left()
