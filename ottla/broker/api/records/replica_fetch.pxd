# What differs if the client of a Fetch is a replica; see replica_fetch.pyx.

from ottla.broker.api.records.fetch cimport Fetch
from ottla.broker.api.records.fetch_sessions cimport FetchItem


cdef int check_replica(Fetch fetch, FetchItem item) except -1
cdef int count_replica(Fetch fetch, FetchItem item) except -1
