# What a leader knows about its followers.

from libc.stdint cimport int32_t, int64_t


cdef struct Follower:
    int32_t node_id
    int64_t broker_epoch                # of its last accepted fetch, -1 before the first
    int64_t end                         # of its log, -1 while that is not known
    int64_t log_start                   # -1 while that is not known
    int64_t caught_up_ms                # when it was last at the leader's log end; AT_END: now
    int64_t seen_end, seen_ms           # the leader's log end at the last fetch; the fetch's time
    int64_t stuck_ms                    # since when it repeats the same fetch; -1 if it does not
    bint in_isr                         # in the committed in-sync set
    bint joining                        # proposed for the in-sync set, not decided yet
    bint live                           # registered in `broker_epoch`; neither leaving nor offline


cdef class Followers:
    cdef Follower *each
    cdef int count
    cdef readonly int64_t lag_ms        # replica.lag.time.max.ms

    cdef Follower *find(self, int32_t node_id) noexcept
    cdef int64_t least_end(self, int64_t own_end, int64_t now_ms) noexcept
    cdef bint all_live(self) noexcept
    cdef int32_t closest(self, object nodes, int64_t offset) except -2
    cdef int appended(self, int64_t now_ms) noexcept
    cdef bint fetched(
        self, Follower *follower, int64_t broker_epoch, int64_t offset, int64_t log_start,
        int64_t log_end, int64_t now_ms) noexcept
    cdef bint is_caught_up(self, Follower *follower, int64_t now_ms) noexcept
    cdef bint may_join(
        self, Follower *follower, int64_t high_watermark, int64_t epoch_start) noexcept
