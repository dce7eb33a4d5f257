# Decides what a follower fetches from one leader, and when; see fetch_plan.pyx.

from libc.stdint cimport int16_t, int32_t, int64_t

from ottla.log.files.clock cimport Clock
from ottla.replication.fetch_request cimport FetchedPartition
from ottla.replication.fetch_settings cimport FetchSettings


cdef class FetchPlan:
    cdef readonly int32_t node_id, source_id
    cdef public int64_t broker_epoch    # this node's broker epoch in the image
    cdef readonly FetchSettings settings
    cdef readonly bint news             # send a request although another one is in flight
    # Truncated partitions that are not fetched until `checkpointed` is called; the values are None.
    # All fetchers of a broker share this dictionary: a partition may get another leader before its
    # checkpoint is written.
    cdef readonly dict cut
    cdef readonly int outstanding       # requests without a complete reply
    cdef readonly int64_t requests      # number of the latest request
    cdef int64_t replies                # number of the latest reply
    cdef Clock clock
    cdef dict items                     # key → FetchedPartition
    cdef dict changed                   # key → partitions to name in the next request
    cdef dict resting                   # key → partitions that are fetched later
    cdef dict removed                   # keys to remove from the session
    cdef int32_t session_id, session_epoch
    cdef int64_t again_ms               # no request before this time
    cdef int64_t backoff_ms

    cdef int remove(self, tuple key) except -1
    cdef int end_session(self) except -1
    cdef bint is_followed(self, FetchedPartition item) noexcept
    cdef bint is_current(self, FetchedPartition item) except -1
    cdef bint is_late(self, FetchedPartition item) noexcept
    cdef bint names_any(self)
    cdef int name_again(self, FetchedPartition item) except -1
    cdef int note_cut(self, FetchedPartition item) except -1
    cdef int rest(self, FetchedPartition item, int64_t ms) except -1
    cdef int rest_longer(self, FetchedPartition item) except -1
    cdef FetchedPartition answered(self, bytes topic_id, int32_t index)
    cdef int reply_begins(self, int32_t correlation_id, int16_t error, int32_t session_id) except -1
    cdef int reply_ends(self, int16_t error) except -1
