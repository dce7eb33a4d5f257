# cython: boundscheck=False, wraparound=False
"""The role of a follower in one leader epoch. It copies the leader's batches and offsets, and
truncates its log to the offset from which its log and the leader's log differ."""

from libc.stdint cimport int64_t, uint8_t

from ottla.log.partition.partition_log cimport PartitionLog
from ottla.replication.partition cimport Partition, ReplicaRole
from ottla.wire.batch cimport base_offset


cdef class FollowerReplica(ReplicaRole):
    """A follower; it does nothing while the partition has no leader."""

    def __init__(self, bint has_leader, int64_t leader_high_watermark=0):
        self.replicated, self.following = True, has_leader
        self.leader_high_watermark = leader_high_watermark

    cdef bint flushed(self, Partition partition, int64_t offset) except -1:
        if self.following:
            partition.cluster.synced(partition)
        return False

    cdef int start_moved(self, Partition partition) except -1:
        if self.following:
            partition.cluster.start_moved(partition)
        return 0

    cdef int append_run(
        self, Partition partition, const uint8_t *data, Py_ssize_t size
    ) except -1:
        """Append whole batches that `checked_batches` found valid. Raises StorageFailed."""
        cdef PartitionLog log = partition.log
        cdef int64_t start = log.log_start_offset
        assert self.following, "this replica does not follow a leader"
        if base_offset(data) < log.log_end_offset:
            # The leader's log start, from which this log begins, is in the middle of this batch.
            self.start_anew(partition, base_offset(data))
        log.append_run(data, size)
        assert log.latest_epoch <= partition.leader_epoch, "a batch of a later epoch was appended"
        if start > log.log_start_offset:
            self.delete_before(partition, start)
        assert log.log_start_offset <= partition.high_watermark, "uncommitted records were deleted"
        partition.counters.replicated_in += size
        partition.note_sealed()
        return 0

    cdef int follow_leader(
        self, Partition partition, int64_t high_watermark, int64_t log_start
    ) except -1:
        """Apply the high watermark and the log start of a leader's reply."""
        cdef PartitionLog log = partition.log
        self.leader_high_watermark = high_watermark
        high_watermark = min(high_watermark, log.log_end_offset)
        if high_watermark > partition.high_watermark:
            partition.advance(high_watermark)
        if not self.in_step:
            self.in_step = True
            # Consumers may wait for records that were committed before this epoch.
            partition.wake()
        if log.log_start_offset < log_start <= log.log_end_offset:
            self.delete_before(partition, log_start)
        if partition.kept_start < log.log_start_offset:
            partition.cluster.keep_start(partition)
        return 0

    cdef int delete_before(self, Partition partition, int64_t offset) except -1:
        """Move the log start as the leader did; all records before it were committed."""
        partition.log.delete_before(offset)
        partition.advance(partition.log.log_start_offset)
        return 0

    # -- truncation ------------------------------------------------------------------------------

    def diverged(self, Partition partition not None, int epoch, int64_t end, int64_t leader_start):
        """Truncate the log where it diverges from the leader's log (KIP-101, KIP-279, KIP-595).
        `epoch` is the leader's last epoch that is not above the last epoch of this log. In the
        leader's log, which begins at `leader_start`, this epoch ends at `end`.

        A log without epochs is truncated to the high watermark, or to `end` if that is lower. The
        next fetch compares the logs again, until they agree. Returns True if the checkpoints must
        be written before the next append: their recovery point or high watermark may be beyond the
        new end of the log, and a restart relies on both. Raises StorageFailed.
        """
        cdef PartitionLog log = partition.log
        cdef int64_t cut = min(end, log.log_end_offset)
        own_epoch, own_end = log.end_offset_for_epoch(epoch)
        if own_epoch >= 0:
            cut = min(cut, own_end)
        elif log.latest_epoch < 0:
            cut = min(cut, partition.high_watermark)
        if cut < log.log_start_offset or cut < self.compacted_end(partition):
            # The leader may have records that deletion or compaction has removed here.
            return self.start_anew(partition, leader_start)
        return self.cut_to(partition, cut)

    cdef int64_t compacted_end(self, Partition partition) except -1:
        """The offset below which the log must not be cut: compaction may have removed records
        because their keys have newer records before this offset. With compaction, this offset is at
        least the high watermark, since an unfinished pass may have compacted some segments."""
        if partition.log.config.compacts:
            return max(partition.log.first_dirty_offset, partition.high_watermark)
        return partition.log.first_dirty_offset

    def cut_to(self, Partition partition not None, int64_t offset):
        """Remove everything from `offset` on. Returns True if the checkpoints must be written
        before the next append (see `diverged`)."""
        cdef PartitionLog log = partition.log
        cdef int64_t known = max(log.checkpoint_offset, partition.high_watermark)
        log.truncate_to(offset)
        assert log.log_end_offset <= offset, "records remain beyond the truncation"
        self.shortened(partition)
        return log.log_end_offset < known

    cdef list repair(self, Partition partition):
        """Move the damaged part of the log aside; the leader has its records. Only for a replica
        that is not in sync."""
        assert self.following, "this replica does not follow a leader"
        aside = partition.log.repair()
        self.shortened(partition)
        return aside

    def start_anew(self, Partition partition not None, int64_t offset):
        """Discard the whole log, and begin again at `offset`. Returns True: the checkpoints must be
        written before the next append (see `diverged`)."""
        partition.log.truncate_fully_and_start_at(offset)
        partition.high_watermark = partition.kept_start = offset
        self.shortened(partition)
        return True

    cdef int shortened(self, Partition partition) except -1:
        """Lower the high watermark after the log was truncated. Waiting consumers are answered:
        they have to read from the leader until this log has been compared with the leader's."""
        partition.high_watermark = min(partition.high_watermark, partition.log.log_end_offset)
        partition.kept_start = min(partition.kept_start, partition.log.log_start_offset)
        assert partition.log.log_start_offset <= partition.high_watermark
        self.in_step = False
        partition.wake()
        return 0
