# Checks transactional batches before they are appended; see transaction_gate.pyx.

from libc.stdint cimport uint8_t

from ottla.broker.api.records.produce_state cimport ProducedPartition, ProduceState
from ottla.replication.partition cimport Partition


cdef class TransactionGate:
    cdef object broker, by_name, by_id, coordinators
    cdef readonly object verifier       # asks other brokers' coordinators; None without a cluster
    cdef object authorizer              # None: all clients may write everywhere

    cdef object admission(self, ProduceState state)
    cdef object find_topic(self, ProduceState state, ProducedPartition *part)
    cdef int check(
        self, Partition partition, const uint8_t *batch, int version, str transactional_id,
        object refusal) except -1
