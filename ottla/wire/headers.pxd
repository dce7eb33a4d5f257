# The headers before the body of a request and of a response.
#
#   request   0   | int16 api_key | int16 version | int32 correlation_id |
#             1   | ... | string client_id, or null, with an int16 for its length |
#             2   | ... | client_id | tagged fields |
#   response  0   | int32 correlation_id |
#             1   | int32 correlation_id | tagged fields |
#
# Only version 0 of ControlledShutdown used request header 0. Flexible versions use request header 2
# and response header 1; but ApiVersions always has response header 0.

from libc.stdint cimport int16_t, int32_t

from ottla.wire.codec cimport Cursor, Writer


cdef class RequestHeader:
    cdef readonly int16_t api_key
    cdef readonly int16_t version
    cdef readonly int32_t correlation_id
    cdef readonly str client_id         # None for null

    cdef int write(self, Writer writer) except -1


cdef RequestHeader read_request_header(Cursor cursor, str known_client_id=*)
cdef bint is_flexible(int api_key, int version) noexcept
cdef int write_response_header(
    Writer writer, int api_key, int version, int32_t correlation_id
) except -1
