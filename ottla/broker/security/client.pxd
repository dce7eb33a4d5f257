# Who asks.

cdef class Client:
    cdef readonly str connection_id         # local address-remote address-number, as Kafka's
    cdef readonly str host                  # the peer's address, without a port
    cdef readonly str listener              # the name of the listener that it came through
    cdef readonly str protocol              # of the listener: PLAINTEXT, SASL_SSL, ...
    cdef readonly str principal             # type:name; ANONYMOUS where nobody authenticates
    cdef readonly bint by_token             # it has authenticated with a delegation token
    cdef readonly str client_id             # of the request's header; None without
    cdef readonly str software_name         # as ApiVersions said; None before (KIP-511)
    cdef readonly str software_version
    cdef object quotas                      # kept here by broker/quotas: what counts for it

    cpdef Client named(self, str client_id)
