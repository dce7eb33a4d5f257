# Produce, served in one pass; see produce.pyx.

from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.broker.api.transaction_gate cimport TransactionGate
from ottla.broker.waiting cimport PendingReply
from ottla.log.partition_log cimport PartitionLog
from ottla.replication.partition cimport Partition
from ottla.wire.batch cimport BatchLimits
from ottla.wire.codec cimport Cursor, Writer


cdef class Producing:
    """Serves Produce: one for each listener, holding what every request needs."""
    cdef object broker, flusher, by_name, by_id
    cdef dict limits                    # id of a LogConfig → (LogConfig, BatchLimits)
    cdef readonly bint failed           # some partition of the last request was refused
    cdef TransactionGate gate
    cdef bint transactional             # the request checked last has a transactional id
    # Of the request that is served: its open promises, if any, and what these need.
    cdef PendingReply pending
    cdef object notify
    cdef int timeout_ms

    cdef int check(self, Cursor request, int version) except -40000
    cdef PendingReply serve(self, Cursor request, Writer reply, int version, object notify)
    cdef Py_ssize_t required(self, Py_ssize_t length, str what) except -1
    cdef object find_topic(self, Cursor request, Writer reply, int version)
    cdef int serve_partition(
        self, Cursor request, Writer reply, int version, object found, int acks,
        bint transactional
    ) except -1
    cdef int write_record_errors(self, Writer reply, tuple errors, bint flexible) except -1
    cdef Partition find_partition(self, object found, int32_t index)
    cdef int64_t append(
        self, Partition partition, uint8_t *records, Py_ssize_t size, int version, int acks,
        bint transactional
    ) except -2
    cdef bytearray as_batch(self, Partition partition, uint8_t *records, Py_ssize_t size)
    cdef BatchLimits limits_for(self, PartitionLog log)
    cdef int hold(
        self, Partition partition, Writer reply, int acks, int64_t required, Py_ssize_t error_at
    ) except -1
