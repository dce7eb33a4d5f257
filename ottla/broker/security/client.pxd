# The sender of a request.

cdef class Client:
    cdef readonly str connection_id         # local address-remote address-number, as in Kafka
    cdef readonly str host                  # the peer's address, without a port
    cdef readonly str listener              # the name of the listener that accepted it
    cdef readonly str protocol              # of the listener: PLAINTEXT, SASL_SSL, ...
    cdef readonly str principal             # type:name; ANONYMOUS without authentication
    cdef readonly bint by_token             # it has authenticated with a delegation token
    cdef readonly str client_id             # from the request's header; None if null
    cdef readonly str software_name         # from ApiVersions; None before that (KIP-511)
    cdef readonly str software_version
    cdef object rules                       # `writable` and `readable` come from these decisions
    cdef set writable, readable             # topics, added by the handlers; see `allowed`
    cdef public bint samples_writes, samples_reads  # whether to sample the next Produce or Fetch
    cdef int sample_number
    cdef readonly dict written, read        # topic name or id -> number of the newest sample
    cdef object quotas                      # kept here by broker/quotas: the client's quotas

    cpdef Client named(self, str client_id)
    cdef bint allowed(self, object rules, bint writing, object topic) except -1
    cdef int allow(self, object rules, bint writing, object topic) except -1
    cdef int sampled(self, bint writing, object topic) except -1
