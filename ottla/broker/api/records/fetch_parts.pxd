# A Fetch request as it was read; see fetch_parts.pyx.

from libc.stdint cimport int16_t, int32_t, int64_t

from ottla.broker.api.records.fetch_sessions cimport FetchSession
from ottla.broker.security.client cimport Client
from ottla.wire.codec cimport Cursor

cdef enum:
    CONSUMER = -1                       # the replica id of a client that is no replica
    NO_SESSION = 0
    FINAL_EPOCH = -1


cdef class Fetch:
    """One Fetch request, kept while it waits."""
    cdef int version
    cdef readonly int32_t wait_ms_max
    cdef int32_t size_min, size_max
    cdef int32_t replica_id             # -1: a consumer
    cdef int64_t replica_epoch          # a replica's broker epoch
    cdef bint by_replica                # reads to the log's end and moves the high watermark
    cdef bint from_any                  # a follower may answer, too (KIP-392)
    cdef bint at_once                   # this look is answered, whatever it finds
    cdef str rack                       # where the consumer is, if that may redirect it, or None
    cdef bint committed_only
    cdef int32_t session_id, session_epoch
    cdef bint incremental
    cdef int16_t error                  # of the whole request
    cdef FetchSession session
    cdef list items                     # FetchItem, in the order of the request
    cdef list forgotten                 # (topic, index); None without any
    cdef list told                      # the items in the reply
    cdef bint looked                    # all items were looked at since the request came
    cdef object converting              # the Conversion that `look` has to wait for
    cdef object rebuild                 # the IndexRebuild that a look asked for last, or None
    cdef bint waits                     # the last look has to wait for it
    cdef int64_t conversion_left        # bytes that this look may still convert
    cdef bint watching
    cdef list leaders                   # brokers that lead refused partitions (KIP-951), or None
    cdef Client client


cdef Fetch read_fetch(Cursor request, int version, int32_t size_max)
