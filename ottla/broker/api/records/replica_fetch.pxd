# What differs if the client of a Fetch is a replica; see replica_fetch.pyx.

from libc.stdint cimport int32_t, int64_t

from ottla.broker.api.records.fetch_sessions cimport FetchItem


cdef int check_replica(FetchItem item, int32_t replica_id, object throttle) except -1
cdef int count_replica(FetchItem item, int32_t replica_id, int64_t replica_epoch) except -1
cdef int count_sent(FetchItem item, Py_ssize_t size, bint by_replica, object throttle) except -1
cdef int check_divergence(FetchItem item) except -1
