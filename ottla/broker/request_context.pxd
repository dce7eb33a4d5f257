# One request, as its handler sees it.

from libc.stdint cimport int32_t

from ottla.broker.security.client cimport Client


cdef class RequestContext:
    cdef readonly object broker         # BrokerContext
    cdef readonly int api_key, version
    cdef readonly Client client
    cdef readonly object session        # of the connection; None without authentication
    cdef public bint forwarded          # another broker forwarded it for its client
    cdef readonly bytes body            # encoded request, if this broker decides as the controller
    cdef public double seconds          # time for which a coroutine handler has run
    cdef readonly int32_t throttle_ms   # set by the handler; quotas may lengthen it
