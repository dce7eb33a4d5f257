# TLS over a socket; see tls_transport.pyx.

from libc.stdint cimport uint8_t

from ottla.broker.network.transport cimport Transport


cdef class TlsTransport(Transport):
    cdef readonly object tls            # ssl.SSLObject, its handshake done
    cdef object incoming, outgoing      # ssl.MemoryBIO: received and sent records
    cdef bint starved                   # the received bytes end in the middle of a record
    cdef bytes unsent                   # records that the socket has not accepted yet
    cdef Py_ssize_t unsent_at
    cdef Py_ssize_t accepted            # plaintext bytes in `unsent`, not reported as sent yet

    cdef Py_ssize_t fill(self) except? -1
    cdef bint push(self, bint more) except -1
