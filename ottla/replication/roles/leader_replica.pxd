# The role of a partition's leader; see leader_replica.pyx.

from libc.stdint cimport int64_t

from ottla.replication.followers cimport Followers
from ottla.replication.partition cimport Partition, ReplicaRole


cdef class LeaderReplica(ReplicaRole):
    cdef readonly Followers followers
    cdef readonly int64_t epoch_start       # the log's end when this leader epoch began here

    cdef int take_isr(
        self, Partition partition, tuple isr, int partition_epoch, int node_id, bint begins
    ) except -1
    cdef int raise_high_watermark(self, Partition partition, int64_t now_ms) except -1
    cdef int ask_for_isr(self, Partition partition) except -1
