# Produce, served partition after partition; see produce.pyx.

from libc.stdint cimport int16_t, int32_t, int64_t

from ottla.broker.api.records.preparation cimport TopicLimits
from ottla.broker.api.records.produce_state cimport ProducedPartition, ProduceState
from ottla.broker.api.records.transaction_gate cimport TransactionGate
from ottla.broker.network.promises cimport PendingReply
from ottla.log.files.clock cimport Clock
from ottla.log.partition.partition_log cimport PartitionLog
from ottla.replication.partition cimport Partition
from ottla.wire.codec cimport Writer


cdef class ProduceHandler:
    """Serves Produce; one object for the whole broker."""
    cdef object broker, flusher, by_name, by_id
    cdef object authorizer              # None: all clients may write everywhere
    cdef Clock clock
    cdef dict limits                    # address of a LogConfig → TopicLimits
    cdef TransactionGate gate
    cdef public double turn_seconds     # how long one request may hold the loop

    cdef int begin(self, ProduceState state, Writer reply) except -1
    cdef bint serve_partitions(self, ProduceState state) except -1
    cdef int suspend(self, ProduceState state, Py_ssize_t start) except -1
    cdef int resume(self, ProduceState state) except -1
    cdef object find_topic(self, ProduceState state, ProducedPartition *part)
    cdef object refusal_of(self, ProduceState state, str name)
    cdef bint serve_partition(self, ProduceState state, ProducedPartition *part) except -1
    cdef int write_answer(
        self, ProduceState state, int32_t index, Partition partition, int64_t base, int16_t code,
        str message, tuple record_errors) except -1
    cdef int write_new_leader(self, ProduceState state, int32_t index) except -1
    cdef int write_record_errors(self, Writer reply, tuple errors, bint flexible) except -1
    cdef Partition find_partition(self, object found, int32_t index)
    cdef bint prepare(self, ProduceState state, Partition partition) except -1
    cdef bint has_files(self, ProduceState state, Partition partition, object waited) except -1
    cdef bint turn_is_over(self, ProduceState state) except -1
    cdef int64_t append(self, ProduceState state, Partition partition) except -2
    cdef TopicLimits limits_for(self, PartitionLog log)
    cdef PendingReply pending_reply(self, ProduceState state)
    cdef int hold(
        self, ProduceState state, Partition partition, int64_t required, Py_ssize_t error_at
    ) except -1
