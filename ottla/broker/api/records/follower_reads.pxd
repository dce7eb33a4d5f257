# Consumers that read from the closest replica (KIP-392); see follower_reads.pyx.

from libc.stdint cimport int64_t

from ottla.broker.api.records.fetch_sessions cimport FetchItem
from ottla.broker.api.records.reader cimport Fetch, Reader
from ottla.replication.partition cimport Partition


cdef class AnyReplicaReader(Reader):
    pass


cdef class RackReader(AnyReplicaReader):
    cdef object metadata                # its image has the brokers' racks

    cdef int closest(self, Fetch fetch, FetchItem item) except -2


cdef bint shows_divergence(Partition partition, int64_t end) noexcept
