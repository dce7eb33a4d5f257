# Which handler serves a request, and the information passed to it.

from libc.stdint cimport int32_t

from ottla.broker.security.client cimport Client
from ottla.wire.codec cimport Cursor


cdef class RequestContext:
    cdef readonly object broker         # BrokerContext
    cdef readonly int api_key, version
    cdef readonly Client client
    cdef readonly object session        # of the connection; None without authentication
    cdef public bint forwarded          # by another broker, whose client it is
    cdef readonly bytes body            # of a request for the controller, if this broker decides it
    cdef public double seconds          # time for which a coroutine handler has run
    cdef readonly int32_t throttle_ms   # asked for by the handler; quotas may lengthen it


cdef class Handler:
    cdef readonly object api            # wire.apis.Api
    cdef readonly str module
    cdef readonly object versions       # range; first and last are its ends
    cdef int first, last
    cdef readonly object function       # None until the module is imported
    cdef readonly object access         # security.decisions.Decision
    cdef bint audited                   # an administrative request: its outcome is logged
    cdef bint decided                   # the controller decides it, in a cluster
    cdef bint asked_again               # of the next controller, if this one is replaced meanwhile
    cdef bint between_brokers           # served on the inter-broker listener only
    cdef bint waits                     # its function is a coroutine
    cdef type request_class

    cdef int load(self) except -1


cdef object serve(RequestContext context, Cursor body)
