# Produce, served partition after partition; see produce.pyx.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from ottla.broker.api.records.preparation cimport Preparation, TopicLimits
from ottla.broker.api.records.transaction_gate cimport TransactionGate
from ottla.broker.network.promises cimport Held, PendingReply
from ottla.broker.security.client cimport Client
from ottla.log.clock cimport Clock
from ottla.log.partition_log cimport PartitionLog
from ottla.replication.partition cimport Partition
from ottla.wire.codec cimport Cursor, Writer


cdef class Serving(Held):
    """One request between `check` and its reply."""
    cdef Cursor request
    cdef Writer reply
    cdef int version, acks
    cdef bint transactional             # it has a transactional id
    cdef bint transactional_batches     # it has batches of a transaction
    cdef bint untidy                    # it has duplicates, or a topic without partitions
    cdef str transactional_id
    cdef Client client
    cdef object access                  # None without an authorizer
    cdef object refusal                 # why its partitions are not in its transaction, or None
    cdef PendingReply pending           # its open promises, if any, with its reply
    cdef int timeout_ms
    cdef bint failed                    # some partition was refused
    cdef Py_ssize_t topics, partitions  # still to be served; -1 partitions: the next topic is due
    cdef Py_ssize_t unlooked            # work since the clock was read, in bytes
    cdef double turn_ends               # when to let others have their turn; 0: not measured yet
    cdef object found                   # the topic's partitions, or an exception
    # The current partition.
    cdef int32_t index
    cdef uint8_t *records
    cdef Py_ssize_t size                # of the batch
    cdef Py_ssize_t sent                # of the bytes sent, which may continue after the batch
    cdef bint in_log                    # errors from now on are reported with the log start
    cdef str internal                   # the topic's name if only brokers write to it
    cdef bytearray stored               # holds `records` where they are not the client's bytes
    cdef Preparation preparation        # its preparation in a thread
    cdef bytearray frame                # the rest of the request, once it has been suspended
    cdef bytearray frame_kept           # the request's memory, if it was kept for later


cdef class Producing:
    """Serves Produce: one for each listener, holding what every request needs."""
    cdef object broker, flusher, by_name, by_id
    cdef object authorizer              # None: all clients may write everywhere
    cdef Clock clock
    cdef dict limits                    # address of a LogConfig → TopicLimits
    cdef TransactionGate gate
    cdef public double turn_seconds     # how long one request may hold the loop

    cdef int check(self, Serving serving, Cursor request) except -1
    cdef int check_partitions(
        self, Serving serving, Cursor request, bint flexible, Py_ssize_t partitions) except -1
    cdef const uint8_t *tidy(self, Cursor request, int version) except NULL
    cdef int begin(self, Serving serving, Cursor request, Writer reply) except -1
    cdef bint go_on(self, Serving serving) except -1
    cdef int suspend(self, Serving serving, Py_ssize_t start) except -1
    cdef int resume(self, Serving serving) except -1
    cdef Py_ssize_t required(self, Py_ssize_t length, str what) except -1
    cdef object find_topic(self, Serving serving)
    cdef object refusal_of(self, Serving serving, str name)
    cdef bint serve_partition(self, Serving serving) except -1
    cdef int write_answer(
        self, Serving serving, Partition partition, int64_t base, int16_t code, str message,
        tuple record_errors) except -1
    cdef int write_record_errors(self, Writer reply, tuple errors, bint flexible) except -1
    cdef Partition find_partition(self, object found, int32_t index)
    cdef bint prepare(self, Serving serving, Partition partition) except -1
    cdef bint turn_is_over(self, Serving serving) except -1
    cdef int64_t append(self, Serving serving, Partition partition) except -2
    cdef TopicLimits limits_for(self, PartitionLog log)
    cdef int hold(
        self, Serving serving, Partition partition, int64_t required, Py_ssize_t error_at
    ) except -1
