# cython: boundscheck=False, wraparound=False
"""The role of the leader among several replicas, in one leader epoch. It knows what each follower
has, and which followers are in sync. The high watermark follows from this."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.log.partition.partition_log cimport PartitionLog
from ottla.replication.followers cimport Follower, Followers
from ottla.replication.partition cimport Partition, ReplicaRole
from ottla.wire.batch cimport last_offset_delta

from ottla.wire.errors import ErrorCode, NotEnoughReplicas
from ottla.wire.wording import counted

cdef int TOO_FEW_AFTER_APPEND = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

# A follower that asks for the same records for this long may be getting damaged bytes.
cdef int64_t STUCK_MS = 5000


cdef class LeaderReplica(ReplicaRole):
    """This broker leads the partition from `epoch_start` on."""

    def __init__(
        self, Followers followers not None, int64_t epoch_start, bint under_min_isr=False
    ):
        """`under_min_isr` is the value from the previous epoch, if this broker led in it."""
        self.replicated = True
        self.followers, self.epoch_start = followers, epoch_start
        self.under_min_isr = under_min_isr

    cdef int take_isr(
        self, Partition partition, tuple isr, int partition_epoch, int node_id, bint begins
    ) except -1:
        """Take over the image's in-sync set; `begins` is true if a new leader epoch begins."""
        cdef bint was_alone = self.alone and not begins
        assert all([node in partition.replicas for node in isr]), (
            "a node in the in-sync set has no replica")
        assert node_id in isr, "the leader is not in the in-sync set"
        assert partition_epoch >= partition.partition_epoch, "the partition epoch would fall"
        if partition_epoch > partition.partition_epoch or begins:
            self.proposed = None
            self.followers.decided()
        if not begins:
            partition.counters.isr_shrinks += len(isr) < len(partition.isr)
            partition.counters.isr_expands += len(isr) > len(partition.isr)
        partition.isr, partition.partition_epoch = isr, partition_epoch
        self.alone = isr == (node_id,)
        self.followers.follow(isr, partition.cluster.broker_epoch_of, partition.offline)
        if partition.must_sync() or self.alone and not was_alone and partition.flush_before_ack:
            # Until now, other replicas' copies made records durable, and the copies on this broker
            # may not be on disk. So pending records must now be flushed before they are committed.
            partition.flush_wanted_upto = partition.log.log_end_offset
        elif not self.alone:
            partition.flush_wanted_upto = 0
        partition.keep_flush_promises()
        self.check_min_isr(partition)
        self.raise_high_watermark(partition, partition.log.clock.monotonic_ms())
        self.ask_for_isr(partition)     # for followers that caught up while a proposal was open
        if self.wants_flush(partition):
            partition.cluster.flush(partition)
        return 0

    cdef int check_min_isr(self, Partition partition) except -1:
        cdef bint was_under = self.under_min_isr
        self.under_min_isr = len(partition.isr) < min(
            partition.log.config.min_insync_replicas, len(partition.replicas))
        if self.under_min_isr and not was_under:
            partition.give_up(TOO_FEW_AFTER_APPEND)
        elif was_under and not self.under_min_isr:
            self.raise_high_watermark(partition, partition.log.clock.monotonic_ms())
        return 0

    cdef int brokers_changed(self, Partition partition) except -1:
        self.followers.follow(
            partition.isr, partition.cluster.broker_epoch_of, partition.offline)
        self.raise_high_watermark(partition, partition.log.clock.monotonic_ms())
        self.ask_for_isr(partition)
        if not self.followers.all_live():
            # A fetch may have been ignored because the image did not have its broker epoch yet.
            partition.wake_followers()
        partition.log_starts_moved()
        return 0

    # -- what is committed -----------------------------------------------------------------------

    cdef int64_t append(
        self, Partition partition, uint8_t *batch, Py_ssize_t size, bint all_replicas
    ) except -2:
        cdef PartitionLog log = partition.log
        cdef int64_t base, end
        if all_replicas and self.under_min_isr:
            raise NotEnoughReplicas(
                f"{partition!r} has {counted(len(partition.isr), 'replica')} in sync, but"
                f" min.insync.replicas is {log.config.min_insync_replicas}")
        base = log.append(batch, size, partition.leader_epoch)
        end = base + last_offset_delta(batch) + 1
        assert end <= log.log_end_offset and (log.duplicate or end == log.log_end_offset)
        partition.note_sealed()
        if not log.duplicate:
            partition.counters.messages_in += end - base
            partition.counters.bytes_in += size
            self.followers.appended(log.clock.monotonic_ms())
        if all_replicas and self.alone and partition.flush_before_ack:
            if not log.duplicate or end > partition.high_watermark:
                partition.flush_wanted_upto = max(partition.flush_wanted_upto, end)
            elif log.durable_offset() < end:
                log.flush()
        elif partition.must_sync():
            partition.flush_wanted_upto = log.log_end_offset
        self.raise_high_watermark(partition, log.clock.monotonic_ms())
        if partition.append_watchers:
            partition.wake_followers()
        return base

    cdef bint flushed(self, Partition partition, int64_t offset) except -1:
        self.raise_high_watermark(partition, partition.log.clock.monotonic_ms())
        return partition.flush_wanted_upto > offset

    cdef bint wants_flush(self, Partition partition) except -1:
        return partition.flush_wanted_upto > partition.log.durable_offset()

    cdef int raise_high_watermark(self, Partition partition, int64_t now_ms) except -1:
        """Advance the high watermark to the lowest end of the replicas that it waits for (see
        `followers`). The high watermark never goes back, and does not move while the committed
        in-sync set is too small (KIP-966)."""
        cdef PartitionLog log = partition.log
        cdef int64_t own = log.log_end_offset, durable = log.durable_offset()
        if self.under_min_isr:
            return 0
        if partition.flush_wanted_upto > durable:
            own = durable
        own = self.followers.least_end(own, now_ms)
        if own > partition.high_watermark:
            partition.advance(own)
        return 0

    cdef bint end_is_known(self, Partition partition) noexcept:
        return partition.high_watermark >= self.epoch_start

    # -- followers -------------------------------------------------------------------------------

    cdef bint replica_fetched(
        self, Partition partition, int32_t node_id, int64_t broker_epoch, int64_t offset,
        int64_t log_start
    ) except -1:
        cdef Follower *follower = self.followers.find(node_id)
        cdef int64_t now_ms
        cdef bint start_moved
        # A broker that knows of its removal sends -1. `broker_epoch_of` also returns -1 for a
        # broker that is not registered, so -1 is refused before the comparison.
        if (follower is NULL or broker_epoch < 0
                or partition.cluster.broker_epoch_of(node_id) != broker_epoch):
            return False
        if partition.offline and node_id in partition.offline:
            return False
        now_ms = partition.log.clock.monotonic_ms()
        start_moved = follower.log_start != log_start
        if self.followers.fetched(
                follower, broker_epoch, offset, log_start, partition.log.log_end_offset, now_ms):
            self.raise_high_watermark(partition, now_ms)
        if follower.stuck_ms >= 0 and now_ms - follower.stuck_ms >= STUCK_MS:
            follower.stuck_ms = now_ms
            partition.cluster.doubted(partition, offset)
        if start_moved and partition.start_watchers:
            partition.log_starts_moved()
        if not follower.in_isr and not follower.joining:
            self.ask_for_isr(partition)
        return True

    cdef list follower_states(self):
        return self.followers.states()

    cdef int64_t behind_ms(self, int node_id, int64_t now_ms) except -2:
        return self.followers.behind_ms(node_id, now_ms)

    cdef int32_t closest(self, nodes, int64_t offset) except -2:
        return self.followers.closest(nodes, offset)

    # -- changes of the in-sync set --------------------------------------------------------------

    cdef int ask_for_isr(self, Partition partition) except -1:
        """Call `ClusterSide.isr_due` if a follower may join the in-sync set."""
        cdef int at
        if self.proposed is not None:
            return 0
        for at in range(self.followers.count):
            if self.followers.may_join(
                    &self.followers.each[at], partition.high_watermark, self.epoch_start):
                partition.cluster.isr_due(partition)
                break
        return 0

    cdef tuple propose_isr(self, Partition partition, int node_id, int64_t node_epoch):
        if self.proposed is not None:
            return None
        joining, leaving = self.followers.propose(
            partition.high_watermark, self.epoch_start, partition.log.clock.monotonic_ms())
        if not joining and not leaving:
            return None
        epochs = {node: epoch for node, epoch, _, _, _ in self.followers.states()}
        epochs[node_id] = node_epoch
        stay = [node for node in partition.isr if node not in leaving]
        nodes = stay + [node for node, _ in joining]
        assert len(nodes) == len(set(nodes)), "a joining replica is in sync already"
        self.proposed = tuple(nodes)
        return tuple([(node, epochs[node]) for node in nodes])

    cdef int proposal_failed(self) except -1:
        self.proposed = None
        self.followers.decided()
        return 0
