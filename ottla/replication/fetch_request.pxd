# A follower's Fetch request; see fetch_request.pyx.

from libc.stdint cimport int32_t, int64_t

from ottla.replication.fetch_settings cimport FetchSettings
from ottla.replication.partition cimport Partition


cdef class FetchedPartition:
    """One partition of a Fetcher: the epochs and offsets last sent to the leader (`told_…`), and
    when to fetch again."""
    cdef Partition partition
    cdef tuple key                      # topic id, index
    cdef int32_t epoch                  # the leader epoch in which the partition is followed
    cdef bint named                     # the partition is in the fetch session
    cdef int64_t told_offset, told_start
    cdef int32_t told_epoch, told_last_epoch
    cdef int64_t told_in                # number of the last request that named the partition
    cdef int64_t again_ms               # earliest next fetch; NOT_BEFORE_NEWS: none before `follow`
    cdef int64_t backoff_ms
    cdef bint is_cut                    # its truncation must be checkpointed first
    cdef bint is_syncing                # flush.messages requires a flush first


cdef bytes fetch_frame(
    FetchSettings settings, int64_t number, int32_t session_id, int32_t session_epoch, list named,
    list forgotten, int32_t node_id, int64_t broker_epoch)
