# Fetch below version 10; see legacy_fetch.pyx.

from libc.stdint cimport int64_t

from ottla.broker.api.records.fetch_sessions cimport FetchItem
from ottla.log.chain cimport LogSlice
from ottla.replication.partition cimport Partition

cdef enum:
    LEGACY_BELOW = 4                    # versions below get message formats v0 and v1
    ZSTD_SINCE = 10
    CONVERSION_SIZE_MAX = 1 << 20       # bytes that one request converts, which holds up the loop


cdef int share_conversion(list items) except -1
cdef bytes read_converted(
    Partition partition, FetchItem item, int version, int64_t room, bint at_least_one)
cdef bytes read_without_zstd(LogSlice stored, int64_t room)
