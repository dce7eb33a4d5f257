# Which handler serves a request.

from ottla.broker.request_context cimport RequestContext
from ottla.wire.codec cimport Cursor


cdef class Handler:
    cdef readonly object api            # wire.apis.Api
    cdef readonly str module
    cdef readonly object versions       # range; first and last are its ends
    cdef int first, last
    cdef readonly object function       # None until the module is imported
    cdef readonly object access         # security.decisions.Decision
    cdef bint audited                   # an administrative request: its outcome is logged
    cdef bint decided                   # in a cluster, the controller serves it
    cdef bint asked_again               # if the controller changes meanwhile, ask the new one
    cdef bint between_brokers           # served on the inter-broker listener only
    cdef bint waits                     # its function is a coroutine
    cdef type request_class

    cdef int load(self) except -1


cdef object serve(RequestContext context, Cursor body)
