# Stored batches in the formats of old clients; see conversions.pyx.

from libc.stdint cimport int64_t

from ottla.broker.api.records.fetch_sessions cimport FetchItem

cdef enum:
    CONVERSION_SIZE_MAX = 1 << 20       # bytes that one request may convert
    ZSTD = 4                            # the codec's number in a batch's attributes
    WITHOUT_ZSTD = 2                    # `magic` of a Conversion to format v2, gzip instead of zstd


cdef class Conversion:
    """Batches of one partition to be converted by `run`, in any thread."""
    cdef bytes data, made
    cdef int magic                      # the message format, or WITHOUT_ZSTD
    cdef int64_t offset, first_offset   # where the batches were read, and the client's fetch offset
    cdef int64_t next_offset            # after the last batch that was read
    cdef int64_t records                # number of converted records
    cdef Py_ssize_t enough              # `run` stops once it has made this many bytes
    cdef bint started
    cdef readonly bint done
    cdef object error

    cdef bytes result(self)


cdef Conversion conversion_of(
    bytes data, int magic, int64_t offset, int64_t first_offset, Py_ssize_t enough)
cdef bytes convert(FetchItem item, Conversion conversion)
cdef int share_conversion(list items) except -1
cdef Py_ssize_t count_converted(FetchItem item) except -1
cdef object unfinished(FetchItem item)
