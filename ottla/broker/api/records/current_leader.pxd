# Adds the new leader to NOT_LEADER_OR_FOLLOWER errors (KIP-951); see current_leader.pyx.

from libc.stdint cimport int16_t, int32_t, int64_t

from ottla.broker.network.promises cimport PendingReply
from ottla.wire.codec cimport Writer


cdef object absent(object partitions, int32_t index)
cdef object new_leader(object image, object topic, int32_t index)
cdef object fetch_leader(object image, int16_t error, object topic, int32_t index)
cdef int write_leader(Writer reply, int tag, object leader) except -1
cdef int write_fetch_tags(
    Writer reply, object leader, int32_t diverging_epoch, int64_t diverging_end) except -1
cdef int write_endpoints(Writer reply, object image, object leaders, str listener) except -1


cdef class ProduceReply(PendingReply):
    """The reply of a waiting produce request, in a version that can name new leaders."""
    cdef object broker
    cdef str listener                   # the client's listener
    cdef list leaders                   # leaders that the reply already names, or None
    cdef Py_ssize_t endpoints_at        # position of node_endpoints, the last field
