# A partition as its leader or a follower sees it: the log, the epoch, how far clients may read.

from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.log.partition.partition_log cimport PartitionLog
from ottla.replication.counters cimport PartitionCounters


cdef class Watcher:
    """Waits for a change of a partition: more to read, another role, another log start."""
    cdef int moved(self, Partition partition) except -1
    cdef int readable_moved(self, Partition partition) except -1


cdef class Promise:
    """An acknowledgement that is due once the high watermark reaches `required`; with
    `of_flush`, once everything below `required` is on this broker's disk."""
    cdef int64_t required
    cdef bint of_flush
    cdef bint outlasts_isr              # it keeps waiting if the in-sync set becomes too small
    cdef bint due
    # Called when the acknowledgement is due, or when `Partition.give_up` ends the promise.
    cdef int kept(self, Partition partition) except -1


cdef class ReplicaRole:
    """The behaviour of a partition in its role. This base class is for partitions without a
    role."""
    cdef readonly bint replicated       # the partition has several replicas
    cdef readonly bint following        # another broker leads, and this broker copies its log
    # This follower has compared its log with the leader's in this leader epoch: up to this
    # replica's high watermark, both logs have the same records.
    cdef readonly bint in_step
    cdef readonly bint alone            # this broker leads, and no other replica is in sync
    # Fewer replicas are in sync than min.insync.replicas: acks=all is refused, and the high
    # watermark does not move.
    cdef readonly bint under_min_isr
    cdef readonly tuple proposed        # the proposed in-sync set; None if no proposal is open

    cdef int64_t append(
        self, Partition partition, uint8_t *batch, Py_ssize_t size, bint all_replicas) except -2
    cdef bint flushed(self, Partition partition, int64_t offset) except -1
    cdef bint wants_flush(self, Partition partition) except -1
    cdef int start_moved(self, Partition partition) except -1
    cdef list repair(self, Partition partition)
    # Only for the leader of several replicas.
    cdef bint replica_fetched(
        self, Partition partition, int32_t node_id, int64_t broker_epoch, int64_t offset,
        int64_t log_start) except -1
    cdef int check_min_isr(self, Partition partition) except -1
    cdef int brokers_changed(self, Partition partition) except -1
    cdef tuple propose_isr(self, Partition partition, int node_id, int64_t node_epoch)
    cdef int proposal_failed(self) except -1
    cdef list follower_states(self)
    cdef int64_t behind_ms(self, int node_id, int64_t now_ms) except -2
    cdef int32_t closest(self, nodes, int64_t offset) except -2
    cdef bint end_is_known(self, Partition partition) noexcept


cdef class Partition:
    cdef readonly str topic
    cdef readonly int32_t index
    cdef readonly bytes topic_id
    cdef public PartitionLog log
    cdef readonly ReplicaRole role
    cdef readonly int32_t leader_id
    cdef readonly int32_t leader_epoch
    cdef readonly bint led_here
    cdef readonly bint flush_before_ack     # acks=all waits for the disk
    # log_start <= last_stable <= high_watermark <= log_end; each moves forward only, except where
    # a follower's log is truncated.
    cdef readonly int64_t high_watermark
    cdef int64_t flush_wanted_upto          # records below it must be on disk to be committed
    cdef readonly int64_t kept_start        # a restart finds this log start or a later one
    cdef readonly PartitionCounters counters
    cdef dict watchers
    cdef dict append_watchers               # followers' fetches; None before the first one
    cdef readonly dict start_watchers       # called when a replica's log start has moved
    cdef list promises                      # ordered by required offset
    cdef list flush_promises                # those with `of_flush`; None before the first one
    cdef readonly int ended_code            # the error of promises that `give_up` ended
    cdef dict with_sealed                   # the broker's partitions with sealed segments to sync
    # As of the image, for a partition with several replicas.
    cdef readonly tuple replicas, isr
    cdef readonly tuple offline             # replicas in failed log directories
    cdef readonly int adding                # how many replicas a reassignment adds
    cdef readonly int32_t partition_epoch
    cdef readonly object cluster            # a ClusterSide

    cdef int take_role(
        self, ReplicaRole role, int leader_id, int leader_epoch, bint led_here) except -1
    cdef int64_t append(self, uint8_t *batch, Py_ssize_t size, bint all_replicas) except -2
    cdef int advance(self, int64_t offset) except -1
    cdef int64_t readable_end(self, bint committed_only) except -1
    cdef int promise(self, Promise promise) except -1
    cdef bint break_promise(self, Promise promise) except -1
    cdef int keep_flush_promises(self) except -1
    cdef int check_leader(self, int32_t client_epoch) except -1
    cdef int check_follower(self, int32_t client_epoch) except -1
    cdef int check_epoch(self, int32_t client_epoch) except -1
    cdef bint must_sync(self) noexcept
    cdef int note_sealed(self) except -1
    cdef int64_t told_start(self) noexcept
