# Fetch below version 4; see legacy_fetch.pyx.

from libc.stdint cimport int64_t

from ottla.broker.api.fetch_sessions cimport FetchItem
from ottla.replication.partition cimport Partition

cdef enum:
    LEGACY_BELOW = 4                    # versions below get message formats v0 and v1


cdef int share_conversion(list items) except -1
cdef bytes read_converted(
    Partition partition, FetchItem item, int version, int64_t room, bint at_least_one)
