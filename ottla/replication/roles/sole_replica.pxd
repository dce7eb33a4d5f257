# The role of a partition's only replica; see sole_replica.pyx.

from ottla.replication.partition cimport ReplicaRole


cdef class SoleReplica(ReplicaRole):
    pass
