# The role of a partition that another broker leads; see follower_replica.pyx.

from libc.stdint cimport int64_t, uint8_t

from ottla.replication.partition cimport Partition, ReplicaRole


cdef class FollowerReplica(ReplicaRole):
    cdef readonly int64_t leader_high_watermark     # from the leader's last reply

    cdef int append_run(
        self, Partition partition, const uint8_t *data, Py_ssize_t size) except -1
    cdef int follow_leader(
        self, Partition partition, int64_t high_watermark, int64_t log_start) except -1
    cdef int delete_before(self, Partition partition, int64_t offset) except -1
    cdef int64_t compacted_end(self, Partition partition) except -1
    cdef int shortened(self, Partition partition) except -1
