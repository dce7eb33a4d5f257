# Fetch below version 10; see legacy_fetch.pyx.

from libc.stdint cimport int64_t

from ottla.broker.api.records.fetch_sessions cimport FetchItem
from ottla.log.partition.chain cimport LogSlice
from ottla.replication.partition cimport Partition

cdef enum:
    LEGACY_BELOW = 4                    # earlier versions get message formats v0 and v1
    ZSTD_SINCE = 10
    CONVERSION_SIZE_MAX = 1 << 20       # bytes that one request may convert


cdef class Conversion:
    """Batches of one partition to be converted by `run`, in any thread."""
    cdef bytes data, made
    cdef int magic                      # the message format, or WITHOUT_ZSTD
    cdef int64_t offset, first_offset   # where the batches were read, and the client's fetch offset
    cdef int64_t next_offset            # after the last batch that was read
    cdef int64_t records                # that were converted
    cdef Py_ssize_t enough
    cdef bint started
    cdef readonly bint done
    cdef object error

    cdef bytes result(self)


cdef int share_conversion(list items) except -1
cdef Py_ssize_t count_converted(FetchItem item) except -1
cdef object unfinished(FetchItem item)
cdef int forget_conversions(list items) except -1
cdef bytes read_converted(
    Partition partition, FetchItem item, int version, int64_t room, bint at_least_one)
cdef bytes read_without_zstd(FetchItem item, LogSlice stored, int64_t room)
