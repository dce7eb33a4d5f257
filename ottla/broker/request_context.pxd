# One request, as its handler sees it.

from libc.stdint cimport int32_t

from ottla.broker.security.client cimport Client


cdef class RequestContext:
    cdef readonly object broker         # BrokerContext
    cdef readonly int api_key, version
    cdef readonly Client client
    cdef readonly object session        # of the connection; None without authentication
    cdef public bint forwarded          # by another broker, whose client it is
    cdef readonly bytes body            # of a request for the controller, if this broker decides it
    cdef public double seconds          # time for which a coroutine handler has run
    cdef readonly int32_t throttle_ms   # asked for by the handler; quotas may lengthen it
