# The items of a fetch, one for each partition, and the sessions that keep them (KIP-227).

from libc.stdint cimport int16_t, int32_t, int64_t

from ottla.broker.network.promises cimport Wait
from ottla.broker.security.client cimport Client
from ottla.log.partition.chain cimport LogSlice
from ottla.replication.partition cimport Partition, Watcher


cdef class FetchItem:
    cdef object topic                   # the name, or the id as bytes from version 13 on
    cdef int32_t index
    cdef Partition partition            # None if it is not on this broker
    cdef int32_t current_leader_epoch
    cdef int64_t fetch_offset
    cdef int32_t last_fetched_epoch
    cdef int64_t follower_start         # the log start of the replica that fetches
    cdef bint uncounted                 # fetch_offset does not count for the high watermark yet
    cdef int32_t size_max
    # The values that the client has: it got them with the last answer. A replica may also send
    # its high watermark in the request. -1 if the client has none: the next answer then includes
    # the partition.
    cdef int64_t sent_high_watermark
    cdef int64_t sent_log_start
    # The values for the answer, as the last call of `look` found them.
    cdef int16_t error
    cdef bint absent                    # unknown or refused when the request arrived
    cdef int64_t high_watermark, last_stable_offset, log_start
    cdef int64_t diverging_end
    cdef int32_t diverging_epoch
    cdef int32_t preferred              # the replica to read from instead (KIP-392), -1 for none
    cdef LogSlice slice
    cdef object conversion              # a Conversion until the reply is written, or None
    cdef bytes converted                # the bytes to send instead of the slice, or None
    cdef list aborted


cdef class FetchSession(Watcher):
    cdef readonly int32_t id
    cdef readonly int32_t epoch
    cdef readonly bint by_id
    cdef readonly int32_t replica_id    # the replica that fetches; -1: a consumer
    cdef int64_t replica_epoch          # the replica's broker epoch in its last request
    cdef bint reports_at_once           # a new high watermark ends a replica's wait
    cdef dict items                     # (topic, index) → FetchItem
    cdef dict changed                   # items that may have news, in the order of serving
    cdef dict by_partition              # Partition → FetchItem
    cdef Py_ssize_t absent              # number of items added while their partition was not here
    cdef Wait wait                      # the waiting fetch of this session, or None
    cdef bint moved_meanwhile           # a partition has changed since `look` last began
    cdef double created_at, used_at
    # Both are None without an authorizer.
    cdef object rules                   # the authorizer's decisions at the last request
    cdef Client client                  # the sender of the last request

    cdef int put(self, FetchItem item) except -1
    cdef int watch(self, FetchItem item) except -1
    cdef int release(self, FetchItem item) except -1
    cdef int forget(self, object key) except -1
    cdef int move_last(self, FetchItem item) except -1
    cdef int close(self) except -1
    cdef int used_by(self, int64_t replica_epoch, double now) except -1
    cdef int read_by(self, Client client, object rules) except -1


cdef class FetchSessionCache:
    cdef dict sessions
    cdef dict of_replicas               # node id → FetchSession
    cdef readonly Py_ssize_t slots
    cdef readonly int64_t evictions
    cdef object choose_id

    cdef FetchSession get(self, int32_t session_id)
    cdef bint evict(self, Py_ssize_t partitions, double now) except -1
    cdef FetchSession create(
        self, Py_ssize_t partitions, bint by_id, double now, int32_t replica_id=*)
    cdef int remove(self, int32_t session_id) except -1
