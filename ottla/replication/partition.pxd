# A partition as its leader or a follower sees it: the log, the epoch, how far clients may read.

from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.log.partition.partition_log cimport PartitionLog
from ottla.replication.counters cimport PartitionCounters
from ottla.replication.followers cimport Followers


cdef class Watcher:
    """Is called when clients can read further in a partition."""
    cdef int moved(self, Partition partition) except -1
    cdef int readable_moved(self, Partition partition) except -1


cdef class Promise:
    """An acknowledgement that is due once the high watermark reaches `required`."""
    cdef int64_t required
    cdef bint outlasts_isr              # it waits on if the in-sync set becomes too small
    cdef int kept(self, Partition partition) except -1


cdef class Partition:
    cdef readonly str topic
    cdef readonly int32_t index
    cdef readonly bytes topic_id
    cdef public PartitionLog log
    cdef public int32_t leader_id
    cdef public int32_t leader_epoch
    cdef readonly bint led_here
    cdef readonly bint flush_before_ack     # acks=all waits for the disk
    # log_start <= last_stable <= high_watermark <= log_end; each moves forward only.
    cdef readonly int64_t high_watermark
    cdef int64_t flush_wanted_upto          # the end of the last acks=all batch appended
    cdef readonly PartitionCounters counters
    cdef dict watchers
    cdef list promises                      # ordered by required offset
    cdef dict with_sealed                   # partitions with a sealed segment to sync
    # For a partition with several replicas; see `assume`.
    cdef readonly bint replicated           # it has a role among several replicas
    cdef readonly bint following            # another broker leads it, and this one copies
    # A follower that has compared its log with the leader's in this leader epoch: below its high
    # watermark it has what the leader has.
    cdef readonly bint in_step
    cdef readonly int64_t leader_high_watermark     # as its leader reported it last
    cdef int64_t kept_start                 # a restart finds at least this log start
    cdef readonly Followers followers       # if this broker leads it
    cdef readonly tuple replicas, isr       # as of the image
    cdef readonly tuple offline             # replicas in failed log directories
    cdef readonly int adding                # how many replicas a reassignment adds
    cdef readonly int32_t partition_epoch
    cdef readonly int64_t epoch_start       # the log's end when this leader epoch began here
    cdef readonly bint under_min_isr        # acks=all is refused, the high watermark does not move
    cdef bint alone                         # the committed in-sync set is this broker only
    cdef readonly int ended_code            # why promises were given up
    cdef readonly tuple proposed            # the in-sync set that was proposed, or None
    cdef readonly object cluster            # a ClusterSide
    cdef readonly dict start_watchers       # called when a replica's log start has moved
    cdef dict append_watchers               # followers' fetches to the log's end; None before one

    cdef int64_t append(self, uint8_t *batch, Py_ssize_t size, bint all_replicas) except -2
    cdef int advance(self, int64_t offset) except -1
    cdef int64_t readable_end(self, bint committed_only) except -1
    cdef int promise(self, Promise promise) except -1
    cdef bint break_promise(self, Promise promise) except -1
    cdef int check_leader(self, int32_t client_epoch) except -1
    cdef int check_follower(self, int32_t client_epoch) except -1
    cdef int check_epoch(self, int32_t client_epoch) except -1
    cdef int64_t append_replicated(
        self, uint8_t *batch, Py_ssize_t size, bint all_replicas) except -2
    cdef bint must_sync(self) noexcept
    cdef int raise_high_watermark(self, int64_t now_ms) except -1
    cdef bint replica_fetched(
        self, int32_t node_id, int64_t broker_epoch, int64_t offset, int64_t log_start) except -1
    cdef int64_t compacted_end(self) except -1
    cdef int append_from_leader(self, const uint8_t *data, Py_ssize_t size) except -1
    cdef int follow_leader(self, int64_t high_watermark, int64_t log_start) except -1
    cdef int64_t told_start(self) noexcept
