# Checks transactional batches before they are appended; see transaction_gate.pyx.

from libc.stdint cimport uint8_t

from ottla.broker.security.client cimport Client
from ottla.replication.partition cimport Partition
from ottla.wire.codec cimport Cursor


cdef class TransactionGate:
    cdef object broker, by_name, by_id, check_batch, add_batches
    cdef readonly object verifier       # asks other brokers' coordinators; None without a cluster
    cdef object authorizer              # None: all clients may write everywhere

    cdef object admission(self, Cursor request, int version, Client client)
    cdef int check(
        self, Partition partition, const uint8_t *batch, int version, str transactional_id,
        object refusal) except -1
