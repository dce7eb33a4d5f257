# Fetches by replicas; see replica_fetch.pyx.

from ottla.broker.api.records.fetch_sessions cimport FetchItem
from ottla.broker.api.records.reader cimport Reader


cdef class ReplicaReader(Reader):
    cdef object throttle                # limits replicas that are not in sync (KIP-73), or None


cdef int check_divergence(FetchItem item) except -1
