# cython: boundscheck=False, wraparound=False
"""Produce (key 0), versions 0-13: read, appended and answered in one pass.

A request is walked twice: once to see that all of it is well formed, so that nothing of a
malformed one is appended, then to append. Record bytes are never copied: they are checked,
numbered and written to the segment from where they were received. Only the message sets of versions
0-2 are made into batches first.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

from ottla.broker.api.transaction_gate cimport TransactionGate
from ottla.broker.waiting cimport PendingReply
from ottla.log.partition_log cimport PartitionLog
from ottla.replication.partition cimport Partition
from ottla.wire.batch cimport (
    BatchLimits, LOG_APPEND_TIME, TRANSACTIONAL, attributes, check_batch, last_offset_delta,
    max_timestamp,
)
from ottla.wire.codec cimport Cursor, Writer

import logging

from ottla.broker.dispatch import handles
from ottla.wire.apis import ApiKey
from ottla.wire.errors import (
    ErrorCode, InvalidRecord, InvalidTopic, MalformedMessage, ProtocolError, StorageFailed,
    UnknownTopicId, UnknownTopicOrPartition,
)
from ottla.wire.legacy import up_convert

log = logging.getLogger("ottla.produce")

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

cdef int16_t INVALID_REQUIRED_ACKS = ErrorCode.INVALID_REQUIRED_ACKS
cdef int16_t TRANSACTIONAL_ID_AUTHORIZATION_FAILED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
cdef int16_t UNKNOWN_SERVER_ERROR = ErrorCode.UNKNOWN_SERVER_ERROR
cdef int16_t STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
cdef int16_t NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@handles(ApiKey.PRODUCE, versions=range(0, 14))
def produce(request, context):
    """Served by the connection, through Producing; this registers the versions."""
    raise AssertionError("Produce does not pass through dispatch")


cdef BatchLimits limits_of(config):
    return BatchLimits(
        batch_size_max=config.max_message_bytes,
        timestamp_before_ms_max=config.message_timestamp_before_max_ms,
        timestamp_after_ms_max=config.message_timestamp_after_max_ms,
        log_append_time=config.message_timestamp_type == "LogAppendTime",
        compacted=config.compacts)


cdef class Producing:
    def __init__(self, broker, TransactionGate gate not None):
        self.broker, self.gate = broker, gate
        self.flusher = broker.flusher
        self.by_name, self.by_id = broker.replicas.by_name, broker.replicas.by_id
        self.limits = {}

    cdef int check(self, Cursor request, int version) except -40000:
        """Walk the request without acting on it; returns acks, any int16.

        Raises MalformedMessage if it is not well formed.
        """
        cdef bint flexible = version >= 9
        cdef Py_ssize_t topics, partitions, size
        cdef int acks
        self.transactional = False
        if version >= 3:
            size = request.read_string_length(flexible)
            self.transactional = size >= 0
            request.take(max(size, 0), "transactional id")
        acks = request.read_int16()
        request.read_int32()
        topics = self.required(request.read_count(flexible, 3), "topics")
        while topics > 0:
            topics -= 1
            if version >= 13:
                request.take(16, "topic id")
            else:
                size = self.required(request.read_string_length(flexible), "topic name")
                request.take(size, "topic name")
            partitions = self.required(request.read_count(flexible, 5), "partitions")
            while partitions > 0:
                partitions -= 1
                request.read_int32()
                size = request.read_bytes_length(flexible)
                request.take(max(size, 0), "records")
                if flexible:
                    request.skip_tags()
            if flexible:
                request.skip_tags()
        return acks

    cdef Py_ssize_t required(self, Py_ssize_t length, str what) except -1:
        if length < 0:
            raise MalformedMessage(f"Produce: {what} must not be null")
        return length

    cdef PendingReply serve(self, Cursor request, Writer reply, int version, object notify):
        """Append what a checked request holds and write the body of its reply.

        Returns None where the reply may go at once, else the reply with its open promises, whose
        frame is `reply` itself; `notify` is called when the last of them is kept.
        """
        cdef bint flexible = version >= 9
        cdef Py_ssize_t topics, partitions, size
        cdef int acks
        cdef bint transactional = False
        cdef object found
        cdef PendingReply pending
        self.failed = False
        self.notify = notify
        if version >= 3:
            self.gate.transactional_id = request.read_string(flexible)
            transactional = self.gate.transactional_id is not None
        acks = request.read_int16()
        self.timeout_ms = request.read_int32()
        topics = request.read_count(flexible, 3)
        reply.write_count(topics, flexible)
        while topics > 0:
            topics -= 1
            found = self.find_topic(request, reply, version)
            partitions = request.read_count(flexible, 5)
            reply.write_count(partitions, flexible)
            while partitions > 0:
                partitions -= 1
                self.serve_partition(request, reply, version, found, acks, transactional)
                if flexible:
                    request.skip_tags()
            if flexible:
                request.skip_tags()
                reply.write_int8(0)
        if version >= 1:
            reply.write_int32(0)                        # throttle_time_ms
        reply.write_no_tags(flexible)
        pending, self.pending = self.pending, None
        return pending

    cdef object find_topic(self, Cursor request, Writer reply, int version):
        """The topic's partitions, or the exception that each of them is answered with."""
        cdef str name
        cdef bytes topic_id
        if version >= 13:
            topic_id = request.read_uuid()
            reply.write_raw(<const char *>topic_id, 16)
            found = self.by_id.get(topic_id)
            if found is None:
                return UnknownTopicId("no topic has this id")
            partition = found[0]
            name = partition.topic if partition is not None else ""
        else:
            name = request.read_string(version >= 9)
            reply.write_string(name, version >= 9)
            found = self.by_name.get(name)
        if name in INTERNAL_TOPICS:
            return InvalidTopic(f"{name} is written by the broker only")
        if found is None:
            return UnknownTopicOrPartition("no such topic")
        return found

    cdef int serve_partition(
        self, Cursor request, Writer reply, int version, object found, int acks,
        bint transactional
    ) except -1:
        cdef int32_t index = request.read_int32()
        cdef Py_ssize_t size = request.read_bytes_length(version >= 9)
        cdef uint8_t *records = <uint8_t *>request.take(max(size, 0), "records")
        cdef int64_t base = -1, log_start = -1, append_time = -1
        cdef int16_t code = 0
        cdef str message = None
        cdef tuple record_errors = ()
        cdef uint8_t[::1] converted
        cdef Partition partition = None
        cdef Py_ssize_t error_at
        try:
            partition = self.find_partition(found, index)
            if acks < -1 or acks > 1:
                raise ProtocolError("acks is -1, 0 or 1", ErrorCode.INVALID_REQUIRED_ACKS)
            if version < 3:
                converted = self.as_batch(partition, records, size)
                records, size = &converted[0], converted.shape[0]
            base = self.append(partition, records, size, version, acks, transactional)
            log_start = partition.log.log_start_offset
            if attributes(records) & LOG_APPEND_TIME:
                append_time = max_timestamp(records)
        except ProtocolError as error:
            self.failed = True
            code, message = int(error.code), error.message or None
            record_errors = error.record_errors
            if code == STORAGE_ERROR and version < 4:
                code = NOT_LEADER                       # which these clients know, and retry
        except Exception:
            self.failed = True
            code, message = UNKNOWN_SERVER_ERROR, "the broker failed; its log says why"
            log.exception("produce to %r failed", partition)
        reply.write_int32(index)
        error_at = reply.size
        reply.write_int16(code)
        reply.write_int64(base)
        if version >= 2:
            reply.write_int64(append_time)
        if version >= 5:
            reply.write_int64(log_start)
        if version >= 8:
            self.write_record_errors(reply, record_errors, version >= 9)
            reply.write_string(message, version >= 9)
        reply.write_no_tags(version >= 9)
        if code == 0 and base + last_offset_delta(records) >= partition.high_watermark:
            self.hold(partition, reply, acks, base + last_offset_delta(records) + 1, error_at)
        return 0

    cdef int write_record_errors(self, Writer reply, tuple errors, bint flexible) except -1:
        """| count | { batch index int32 | message | tags } ... |"""
        reply.write_count(len(errors), flexible)
        for index, message in errors:
            reply.write_int32(index)
            reply.write_string(message, flexible)
            reply.write_no_tags(flexible)
        return 0

    cdef Partition find_partition(self, object found, int32_t index):
        cdef list partitions
        if isinstance(found, ProtocolError):
            raise found
        partitions = <list>found
        if index < 0 or index >= len(partitions) or partitions[index] is None:
            raise UnknownTopicOrPartition(f"no partition {index} here")
        return <Partition>partitions[index]

    cdef int64_t append(
        self, Partition partition, uint8_t *records, Py_ssize_t size, int version, int acks,
        bint transactional
    ) except -2:
        cdef BatchLimits limits
        partition.check_leader(-1)
        if size <= 0:
            raise InvalidRecord("a partition without records")
        limits = self.limits_for(partition.log)
        limits.zstd = version >= 7
        check_batch(records, size, limits)
        if attributes(records) & TRANSACTIONAL and not transactional:
            raise ProtocolError(
                "a transactional batch in a request without a transactional id",
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if attributes(records) & TRANSACTIONAL:
            self.gate.check(partition, records, version)
        return partition.append(records, size, acks == -1)

    cdef bytearray as_batch(self, Partition partition, uint8_t *records, Py_ssize_t size):
        """A message set of version 0 or 1 as a batch; empty if no message in it is whole."""
        partition.check_leader(-1)
        return bytearray(up_convert(
            records[:max(size, 0)],
            size_max=self.limits_for(partition.log).decompressed_size_max))

    cdef BatchLimits limits_for(self, PartitionLog log):
        """What this topic allows of a batch, now."""
        cdef BatchLimits limits
        config = log.config
        found = self.limits.get(id(config))
        if found is None or found[0] is not config:
            if len(self.limits) > 4096:
                self.limits.clear()
            found = (config, limits_of(config))
            self.limits[id(config)] = found
        limits = <BatchLimits>found[1]
        limits.now_ms = self.broker.clock.now_ms()
        return limits

    cdef int hold(
        self, Partition partition, Writer reply, int acks, int64_t required, Py_ssize_t error_at
    ) except -1:
        """Promise the acknowledgement for when the batch is as durable as it has to be.

        With acks=all that is once clients can read it. With less only flush.messages may ask for a
        flush; the batch before it may wait for one without this batch's own having to.
        """
        if acks != -1 and partition.flush_wanted_upto < required:
            return 0
        if acks != 0:
            if self.pending is None:
                self.pending = PendingReply(
                    reply, self.notify, self.flusher.loop.time() + self.timeout_ms * 0.001)
            self.pending.promise(partition, required, error_at)
        self.flusher.want(partition)
        return 0
