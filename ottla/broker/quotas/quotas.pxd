# The limits on what clients may use; see quotas.pyx.

from libc.stdint cimport int32_t, int64_t

from ottla.broker.quotas.windows cimport Rate, TokenBucket
from ottla.broker.security.client cimport Client
from ottla.log.files.clock cimport Clock

cdef enum:
    PRODUCE = 0
    FETCH = 1


cdef class ClientQuotas:
    """The quotas that apply to one client; a quota is None if it has no limit."""
    cdef int64_t epoch                  # `Quotas.epoch` when these were looked up
    cdef Rate produced, fetched         # bytes
    cdef Rate requests                  # percent of the loop's time
    cdef TokenBucket mutations          # partitions created and deleted


cdef class Quotas:
    cdef readonly bint active           # whether there are any quotas
    cdef readonly bint timing           # whether there are quotas of request time
    cdef Clock clock
    cdef object limits                  # by entity, as in the metadata
    cdef int64_t epoch
    cdef dict kept                      # (key, scope) -> Rate or TokenBucket
    cdef int samples, controller_samples
    cdef double sample_seconds, controller_sample_seconds

    cdef ClientQuotas of(self, Client client)
    cdef object window(self, str key, str user, str client_id)
    cdef int32_t charge(
        self, Client client, int key, Py_ssize_t size, double seconds, double now) except -1
    cdef int32_t would_throttle(self, Client client, Py_ssize_t size, double now) except -1
    cdef int64_t fetch_size_max(self, Client client) except -1


cdef class Mutations:
    cdef TokenBucket bucket
    cdef Clock clock
    cdef bint strict
    cdef int taken
    cdef readonly int32_t throttle_ms   # the throttle time for the request's reply
