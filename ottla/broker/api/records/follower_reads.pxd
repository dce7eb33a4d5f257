# Consumers that read from the closest replica (KIP-392); see follower_reads.pyx.

from libc.stdint cimport int64_t

from ottla.broker.api.records.fetch_sessions cimport FetchItem
from ottla.broker.security.client cimport Client
from ottla.replication.partition cimport Partition


cdef bint check_reader(FetchItem item, bint at_once) except -1
cdef bint shows_divergence(Partition partition, int64_t end) noexcept
cdef bint redirect(FetchItem item, str rack, object broker, Client client) except -1
