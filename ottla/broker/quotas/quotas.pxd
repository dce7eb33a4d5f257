# What clients may use of the broker; see quotas.pyx.

from libc.stdint cimport int32_t, int64_t

from ottla.broker.quotas.windows cimport Rate, TokenBucket
from ottla.broker.security.client cimport Client
from ottla.log.clock cimport Clock

cdef enum:
    PRODUCE = 0
    FETCH = 1


cdef class ClientQuotas:
    """What counts for one client; None: it is not limited."""
    cdef int64_t epoch                  # of the quotas that this was found in
    cdef Rate produced, fetched         # bytes
    cdef Rate requests                  # hundredths of the loop's time
    cdef TokenBucket mutations          # partitions created and deleted


cdef class Quotas:
    cdef readonly bint active           # somebody has a quota; else nobody is asked about
    cdef readonly bint timing           # somebody has one of request time
    cdef Clock clock
    cdef object limits                  # by entity, as the metadata have them
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
    cdef readonly int32_t throttle_ms   # what the request's reply has to name
