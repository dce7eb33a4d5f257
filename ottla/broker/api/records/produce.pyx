# cython: boundscheck=False, wraparound=False
"""Produce (key 0), versions 0-13: what a request holds is appended and answered in one pass.

`produce_parts` has read the request, so that nothing of a malformed one is appended. Record bytes
are never copied: they are checked, numbered and written to the segment from the receive buffer;
`preparation` replaces them only for message sets (versions 0-2) and for topics with another codec.

A thread prepares a batch that takes long, and also the next batch of a request that has held the
loop for TURN_SECONDS. Until it has finished, the request and later frames wait; earlier partitions
are appended already, and other connections are served.
"""

from cpython.long cimport PyLong_FromVoidPtr
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

from ottla.broker.api.records.current_leader cimport (
    ProduceReply, absent, new_leader, write_endpoints, write_leader,
)
from ottla.broker.api.records.preparation cimport LATER, Preparation, TopicLimits, prepare_on_loop
from ottla.broker.api.records.produce_parts cimport Part, Serving
from ottla.broker.api.records.transaction_gate cimport TransactionGate
from ottla.broker.network.promises cimport PendingReply
from ottla.broker.security.client cimport Client
from ottla.log.files.producers cimport Producers
from ottla.log.partition.partition_log cimport PartitionLog
from ottla.replication.partition cimport Partition
from ottla.wire.batch cimport (
    HEADER_SIZE, LOG_APPEND_TIME, TRANSACTIONAL, attributes, last_offset_delta, magic,
    max_timestamp, one_batch, producer_id, restamp,
)
from ottla.wire.codec cimport Writer

import logging

from ottla.broker.dispatch import handles
from ottla.broker.security.access import access_of
from ottla.broker.security.decisions import by_item
from ottla.log.files.index_file import RebuildNeeded
from ottla.replication.controller.access import Operation
from ottla.wire.apis import ApiKey
from ottla.wire.errors import (
    CorruptMessage, DuplicateSequence, ErrorCode, InvalidRecord, InvalidTopic, ProtocolError,
    UnknownTopicId, UnknownTopicOrPartition,
)

log = logging.getLogger("ottla.produce")

TURN_SECONDS = 0.010

cdef enum:
    PRODUCE_KEY = 0
    LEADERS_SINCE = 10                  # first version with the new leader (KIP-951)
    LOOK_SIZE = 1 << 20                 # bytes of work between two reads of the clock
    PARTITION_COST = 1 << 17            # what a partition costs besides its bytes, in bytes

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

WITHOUT_LOG_START = frozenset({
    int(ErrorCode.CORRUPT_MESSAGE), int(ErrorCode.MESSAGE_TOO_LARGE),
    int(ErrorCode.KAFKA_STORAGE_ERROR), int(ErrorCode.NOT_LEADER_OR_FOLLOWER),
})

SENT_AGAIN = frozenset({
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
})
"""Refusals that pass: clients send the same batch again."""

cdef int16_t UNKNOWN_SERVER_ERROR = ErrorCode.UNKNOWN_SERVER_ERROR
cdef int16_t STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
cdef int16_t NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
cdef int16_t MESSAGE_TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE


@handles(ApiKey.PRODUCE, versions=range(0, 14), access=by_item)
def produce(request, context):
    """Served by the connection, through ProduceHandler; this registers the versions."""
    raise AssertionError("Produce does not pass through dispatch")


cdef class ProduceHandler:
    def __init__(self, broker, TransactionGate gate not None):
        self.broker, self.gate, self.clock = broker, gate, broker.clock
        self.flusher = broker.flusher
        self.by_name, self.by_id = broker.replicas.by_name, broker.replicas.by_id
        self.authorizer = broker.authorizer
        self.limits = {}
        self.turn_seconds = TURN_SECONDS

    cdef int begin(self, Serving serving, Writer reply) except -1:
        """Begin the reply to a request that was read, for `go_on`."""
        serving.reply = reply
        if serving.transactional_id is None and serving.transactional_batches:
            serving.refusal = ProtocolError(
                "a transactional batch in a request without a transactional id",
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        reply.write_count(serving.topics, serving.version >= 9)
        return 0

    cdef bint go_on(self, Serving serving) except -1:
        """Append what the request holds and write the body of its reply.

        Returns False if a thread has to prepare a batch first: call `go_on` again once
        `serving.preparation` has run. After True the reply may be sent if `serving.pending` is
        None or has no open promises; otherwise its frame is the reply.
        """
        cdef Writer reply = serving.reply
        cdef bint flexible = serving.version >= 9
        cdef Part *part
        while serving.next < serving.count:
            part = serving.parts + serving.next
            if part.partitions > 0 and serving.preparation is None:
                serving.found = self.find_topic(serving, part)
                reply.write_count(part.partitions, flexible)
            if not self.serve_partition(serving, part):
                return False
            serving.next += 1
            if flexible and (serving.next == serving.count
                             or serving.parts[serving.next].partitions > 0):
                reply.write_int8(0)                     # the topic's tags
        if serving.version >= 1:
            reply.write_int32(0)                        # throttle_time_ms
        if serving.version >= LEADERS_SINCE and serving.pending is not None:
            (<ProduceReply>serving.pending).leaders = serving.leaders
            (<ProduceReply>serving.pending).endpoints_at = reply.size
        if serving.leaders is not None:
            write_endpoints(
                reply, self.broker.image, serving.leaders, serving.client.listener)
        else:
            reply.write_no_tags(flexible)
        return True

    cdef object find_topic(self, Serving serving, Part *part):
        """The topic's partitions, or the exception for each of its partitions in the request."""
        cdef Writer reply = serving.reply
        cdef int version = serving.version
        cdef str name
        cdef bytes topic_id
        if version >= 13:
            topic_id = serving.topic_id(part)
            reply.write_raw(<const char *>topic_id, 16)
            found = self.by_id.get(topic_id)
            if found is None:
                return UnknownTopicId("no topic has this id")
            partition = found[0]
            name = partition.topic if partition is not None else self.broker.image.names.get(
                topic_id, "")
        else:
            name = serving.topic_name(part)
            reply.write_string(name, version >= 9)
            found = self.by_name.get(name)
        serving.topic = name
        if self.authorizer is not None:
            refusal = self.refusal_of(serving, name)
            if refusal is not None:
                return refusal
        serving.internal = name if name in INTERNAL_TOPICS else None
        if found is None:
            return UnknownTopicOrPartition("no such topic")
        if serving.client.samples_writes:
            serving.client.sampled(True, name)
        return found

    cdef object refusal_of(self, Serving serving, str name):
        """Why the client may not write to the topic, or not in this transaction; None if it may."""
        cdef Client client = serving.client
        rules = self.authorizer.known
        if serving.transactional_id is None and client.allowed(rules, True, name):
            return None
        if serving.access is None:
            serving.access = access_of(self.broker, client, PRODUCE_KEY)
        try:
            if serving.transactional_id is not None:
                serving.access.need_transaction(Operation.WRITE, serving.transactional_id)
            serving.access.need_topic(Operation.WRITE, name)
        except ProtocolError as refusal:
            return refusal
        client.allow(rules, True, name)
        return None

    cdef bint serve_partition(self, Serving serving, Part *part) except -1:
        """Append one partition's records and write its part of the reply; False as in `go_on`."""
        cdef int64_t base = -1
        cdef int16_t code = 0
        cdef str message = None
        cdef tuple record_errors = ()
        cdef Partition partition = None
        if serving.preparation is None:
            serving.records, serving.size = serving.body + part.records_at, part.sent
            serving.in_log = False
        try:
            if serving.transactional_id is None and serving.refusal is not None:
                raise serving.refusal
            partition = self.find_partition(serving.found, part.index)
            if serving.internal is not None:
                raise InvalidTopic(f"{serving.internal} is written by the broker only")
            if not self.prepare(serving, partition):
                return False
            base = self.append(serving, partition)
        except ProtocolError as error:
            serving.failed = True
            code, message = int(error.code), error.message or None
            record_errors = error.record_errors
            if partition is not None and error.code in SENT_AGAIN:
                hold_back_later(serving, partition)
            if code == STORAGE_ERROR and serving.version < 4:
                code = NOT_LEADER                       # these clients know it, and retry
        except Exception:
            serving.failed = True
            code, message = UNKNOWN_SERVER_ERROR, "the broker failed; its log says why"
            log.exception("produce to %r failed", partition)
        serving.preparation = None
        self.write_answer(serving, part.index, partition, base, code, message, record_errors)
        serving.stored = None
        return True

    cdef int write_answer(
        self, Serving serving, int32_t index, Partition partition, int64_t base, int16_t code,
        str message, tuple record_errors
    ) except -1:
        cdef Writer reply = serving.reply
        cdef int version = serving.version
        cdef int64_t append_time = -1, required
        cdef Py_ssize_t error_at
        if code == 0 and partition.log.duplicate:
            append_time = (<Producers>partition.log.producers).repeated_timestamp
        elif code == 0 and attributes(serving.records) & LOG_APPEND_TIME:
            append_time = max_timestamp(serving.records)
        if partition is not None:
            partition.counters.produces += 1
            partition.counters.failed_produces += code != 0
            if code == MESSAGE_TOO_LARGE:
                partition.counters.bytes_rejected += serving.size
            elif code == 0 and serving.stored is not None:
                partition.counters.produce_conversions += last_offset_delta(serving.records) + 1
        if code != 0:
            self.broker.counts.failed(PRODUCE_KEY, code)
        reply.write_int32(index)
        error_at = reply.size
        reply.write_int16(code)
        reply.write_int64(base)
        if version >= 2:
            reply.write_int64(append_time)
        if version >= 5:
            # As in Kafka, errors of the log include the log start, others do not.
            reply.write_int64(
                partition.log.log_start_offset
                if code == 0 or (serving.in_log and code not in WITHOUT_LOG_START) else -1)
        if version >= 8:
            self.write_record_errors(reply, record_errors, version >= 9)
            reply.write_string(message, version >= 9)
        if code == NOT_LEADER and version >= LEADERS_SINCE:
            self.write_new_leader(serving, index)
        else:
            reply.write_no_tags(version >= 9)
        required = base + last_offset_delta(serving.records) + 1 if code == 0 else 0
        if code == 0 and required > partition.high_watermark:
            self.hold(serving, partition, required, error_at)
        return 0

    cdef int write_new_leader(self, Serving serving, int32_t index) except -1:
        leader = new_leader(self.broker.image, serving.topic, index)
        if leader is None:
            return serving.reply.write_no_tags(True)
        serving.leaders = [*(serving.leaders or ()), leader[0]]
        return write_leader(serving.reply, 0, leader)

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
        if not isinstance(found, list):
            raise found
        partitions = <list>found
        if index < 0 or index >= len(partitions) or partitions[index] is None:
            raise absent(partitions, index)
        return <Partition>partitions[index]

    cdef bint prepare(self, Serving serving, Partition partition) except -1:
        """Turn the records into what the log stores; False if a thread has to do it."""
        cdef Preparation preparation = serving.preparation
        cdef TopicLimits topic
        cdef uint8_t[::1] view
        cdef object waited = None
        if preparation is not None and preparation.rebuild is not None:
            waited = preparation.rebuild
            preparation = serving.preparation = None
        if preparation is None:
            if serving.acks < -1 or serving.acks > 1:
                raise ProtocolError("acks is -1, 0 or 1", ErrorCode.INVALID_REQUIRED_ACKS)
            partition.check_leader(-1)
            if serving.size <= 0:
                raise InvalidRecord("a partition has no records")
            if serving.version >= 3:
                serving.size = one_batch(serving.records, serving.size, serving.version >= 7)
                serving.in_log = True
            if not (partition.log.appends_at_once() or self.has_files(serving, partition, waited)):
                return False
            topic = self.limits_for(partition.log)
            topic.limits.zstd = serving.version >= 7
            stored = LATER
            if not self.turn_is_over(serving):
                stored = prepare_on_loop(serving.records, serving.size, serving.version, topic)
            if stored is LATER:
                serving.preparation = Preparation.__new__(Preparation)
                serving.preparation.limits = topic.limits.copy()
                return False
            serving.stored = stored
        else:
            preparation.raise_error()
            serving.stored = preparation.stored
        if serving.stored is not None:
            view = serving.stored
            serving.records, serving.size = &view[0], view.shape[0]
        if preparation is not None:
            restamp(serving.records, serving.size, self.clock.now_ms())
        return True

    cdef bint has_files(self, Serving serving, Partition partition, object waited) except -1:
        """Whether the log can be appended to now; False if it waits for a thread, which rebuilds
        an index or reads the log again. Whatever else is wrong the append finds, and reports."""
        cdef PartitionLog plog = partition.log
        try:
            plog.prepare_append(True)
        except RebuildNeeded as needed:
            try:
                needed.rebuild.check_new(waited)
            except (OSError, EOFError, CorruptMessage):
                return True
            serving.preparation = Preparation.__new__(Preparation)
            serving.preparation.rebuild = needed.rebuild
            return False
        except (OSError, EOFError, ProtocolError):
            pass
        return True

    cdef bint turn_is_over(self, Serving serving) except -1:
        """Whether the request has held the loop for long enough; called for each partition."""
        serving.unlooked += serving.size + PARTITION_COST
        if serving.unlooked < LOOK_SIZE:
            return False
        serving.unlooked = 0
        if serving.turn_ends == 0:
            serving.turn_ends = self.clock.monotonic() + self.turn_seconds
            return False
        return self.clock.monotonic() > serving.turn_ends

    cdef int64_t append(self, Serving serving, Partition partition) except -2:
        cdef const uint8_t *records = serving.records
        serving.in_log = False
        partition.check_leader(-1)
        if attributes(records) & TRANSACTIONAL:
            self.gate.check(
                partition, records, serving.version, serving.transactional_id, serving.refusal)
        serving.in_log = True
        try:
            return partition.append(serving.records, serving.size, serving.acks == -1)
        except DuplicateSequence:
            if serving.acks == -1:
                require_kept(partition, records)
            raise

    cdef int suspend(self, Serving serving, Py_ssize_t start) except -1:
        """Copy the rest of the request out of the connection's memory, for a thread.

        The reply, which began at `start` of a shared writer, gets a writer of its own.
        """
        cdef Writer reply = Writer()
        cdef Preparation preparation = serving.preparation
        cdef Part *part = serving.parts + serving.next
        serving.keep(part.records_at)
        serving.records = serving.body + part.records_at
        preparation.frame = serving.frame
        preparation.records, preparation.size = serving.records, serving.size
        preparation.version = serving.version
        if serving.pending is None:
            reply.write_raw(serving.reply.data + start, serving.reply.size - start)
        else:
            serving.pending.move_to(reply, start)
            serving.pending.open_promises += 1          # its own: the reply is incomplete
        serving.reply = reply
        return 0

    cdef int resume(self, Serving serving) except -1:
        serving.turn_ends = 0
        if serving.pending is not None:
            serving.pending.open_promises -= 1
        return 0

    cdef TopicLimits limits_for(self, PartitionLog log):
        """The current limits of this topic for a batch."""
        cdef object key = PyLong_FromVoidPtr(<void *>log.config)
        cdef TopicLimits topic = self.limits.get(key)
        if topic is None or topic.config is not log.config:
            if len(self.limits) > 4096:
                self.limits.clear()
            topic = TopicLimits(log.config)
            self.limits[key] = topic
        topic.limits.now_ms = self.clock.now_ms()
        return topic

    cdef PendingReply pending_reply(self, Serving serving):
        """What holds the reply, until the request's time-out at the latest."""
        cdef double deadline = self.flusher.loop.time() + serving.timeout_ms * 0.001
        cdef ProduceReply reply
        if serving.version < LEADERS_SINCE:
            return PendingReply(serving.reply, serving.receiver, deadline)
        reply = ProduceReply(serving.reply, serving.receiver, deadline)
        reply.broker, reply.listener = self.broker, serving.client.listener
        return reply

    cdef int hold(
        self, Serving serving, Partition partition, int64_t required, Py_ssize_t error_at
    ) except -1:
        """Add a promise to acknowledge the batch once it is as durable as required.

        With acks=all that is once clients can read it. With less only flush.messages may require a
        flush; an earlier batch may wait for a flush that this batch does not need.
        """
        if serving.acks != -1 and partition.flush_wanted_upto < required:
            return 0
        if serving.acks != 0:
            if serving.pending is None:
                serving.pending = self.pending_reply(serving)
            serving.pending.promise(partition, required, error_at)
        if not partition.role.replicated or partition.wants_flush():
            self.flusher.want(partition)
        return 0


cdef int hold_back_later(Serving serving, Partition partition) except -1:
    """A batch was refused with a retriable error. Where its producer is not known, one that the
    client has sent after it must not be its first one, if the reason passes in between: as the
    in-sync set grows, this broker begins to lead, or the transaction's coordinator is found."""
    cdef PartitionLog plog = partition.log
    if (serving.size < HEADER_SIZE or magic(serving.records) != 2
            or plog.health.offline is not None):
        return 0
    if plog.at_rest is not None and plog.at_rest.segments:
        return 0                        # it is not read for a request that is refused
    try:
        (<Producers>plog.producers).note_unwritten(serving.records)
    except (OSError, ProtocolError):
        pass
    return 0


cdef int require_kept(Partition partition, const uint8_t *records) except -1:
    """A repeated batch is below what is known of its producer, at an offset that is not known. What
    it is answered clients take for an acknowledgement, so all that is there has to be as durable as
    acks=all requires."""
    cdef PartitionLog plog = partition.log
    cdef int64_t end = (<Producers>plog.producers).first_known(producer_id(records))
    if partition.flush_before_ack and partition.role.alone:
        if plog.durable_offset() < end:
            plog.flush()
    elif partition.role.replicated and partition.high_watermark < end:
        raise ProtocolError(
            f"{partition!r} has the batch, but not all replicas in sync have it yet",
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    return 0
