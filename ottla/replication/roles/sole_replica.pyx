# cython: boundscheck=False, wraparound=False
"""The role of a partition's only replica: no other broker has a copy of the records."""

from libc.stdint cimport int64_t, uint8_t

from ottla.log.partition.partition_log cimport PartitionLog
from ottla.replication.partition cimport Partition, ReplicaRole
from ottla.wire.batch cimport last_offset_delta


cdef class SoleReplica(ReplicaRole):
    """This role has no state for a partition: all partitions with one replica share one object."""

    def __init__(self):
        self.alone = True

    cdef int64_t append(
        self, Partition partition, uint8_t *batch, Py_ssize_t size, bint all_replicas
    ) except -2:
        cdef PartitionLog log = partition.log
        cdef int64_t base = log.append(batch, size, partition.leader_epoch)
        assert log.duplicate or base < log.log_end_offset
        if not log.duplicate:
            partition.counters.messages_in += log.log_end_offset - base
            partition.counters.bytes_in += size
        partition.note_sealed()
        if all_replicas and partition.flush_before_ack:
            # If a duplicate's first copy still waits for its flush, the reply has to wait too.
            if not log.duplicate:
                partition.flush_wanted_upto = log.log_end_offset
            elif log.durable_offset() <= base + last_offset_delta(batch) < partition.high_watermark:
                # After a crash, recovered records are readable before they are flushed, but must
                # not be acknowledged before they are flushed.
                log.flush()
        elif partition.must_sync():
            # flush.messages: the answer waits for the flush; Kafka flushes during the append.
            if not log.duplicate:
                partition.flush_wanted_upto = log.log_end_offset
        elif partition.flush_wanted_upto <= partition.high_watermark:
            partition.advance(log.log_end_offset)
        return base

    cdef bint flushed(self, Partition partition, int64_t offset) except -1:
        if partition.flush_wanted_upto <= offset:
            partition.advance(partition.log.log_end_offset)
            return False
        partition.advance(offset)
        return True

    cdef bint wants_flush(self, Partition partition) except -1:
        return partition.flush_wanted_upto > partition.high_watermark
