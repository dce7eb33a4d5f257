# Reads a Fetch request; see fetch_parts.pyx.

from libc.stdint cimport int32_t

from ottla.broker.api.records.reader cimport Fetch
from ottla.wire.codec cimport Cursor

cdef enum:
    ANY_REPLICA_SINCE = 11              # these clients know that a follower may answer (KIP-392)


cdef Fetch read_fetch(Cursor request, int version, int32_t size_max)
