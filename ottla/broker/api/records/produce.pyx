# cython: boundscheck=False, wraparound=False
"""Produce (key 0), versions 0-13: one pass appends the records of a request and writes its reply.

`produce_state` reads the whole request first, so nothing of a malformed request is appended. Unless
the request has to wait, record bytes are not copied: they are checked, numbered and written to the
segment from the receive buffer. `preparation` replaces them only for message sets (versions 0-2)
and for topics whose codec is not the producer's.

A thread prepares a batch that takes long, and also the next batch of a request that has held the
loop for TURN_SECONDS. Until the thread has finished, the request and later frames of its connection
wait. Earlier partitions of the request are appended already, and other connections are served.
"""

from cpython.long cimport PyLong_FromVoidPtr
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

from ottla.broker.api.records.current_leader cimport (
    ProduceReply, absent, new_leader, write_endpoints, write_leader,
)
from ottla.broker.api.records.preparation cimport LATER, Preparation, TopicLimits, prepare_on_loop
from ottla.broker.api.records.produce_state cimport ProducedPartition, ProduceState
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
    LEADERS_SINCE = 10                  # first version whose reply can name a new leader (KIP-951)
    LOOK_SIZE = 1 << 20                 # bytes of work between two reads of the clock
    PARTITION_COST = 1 << 17            # fixed cost of a partition, in bytes of work

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

WITHOUT_LOG_START = frozenset({
    int(ErrorCode.CORRUPT_MESSAGE), int(ErrorCode.MESSAGE_TOO_LARGE),
    int(ErrorCode.KAFKA_STORAGE_ERROR), int(ErrorCode.NOT_LEADER_OR_FOLLOWER),
})

SENT_AGAIN = frozenset({
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.KAFKA_STORAGE_ERROR,
})
"""Temporary errors, after which clients send the same batch again."""

cdef int16_t UNKNOWN_SERVER_ERROR = ErrorCode.UNKNOWN_SERVER_ERROR
cdef int16_t STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
cdef int16_t NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
cdef int16_t MESSAGE_TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE


@handles(ApiKey.PRODUCE, access=by_item)
def produce(request, context):
    """Never called: connections use ProduceHandler. This function is registered so that
    ApiVersions lists Produce."""
    raise AssertionError("dispatch must not serve Produce: connections use ProduceHandler")


cdef class ProduceHandler:
    def __init__(self, broker, TransactionGate gate not None):
        self.broker, self.gate, self.clock = broker, gate, broker.clock
        self.flusher = broker.flusher
        self.by_name, self.by_id = broker.replicas.by_name, broker.replicas.by_id
        self.authorizer = broker.authorizer
        self.limits = {}
        self.turn_seconds = TURN_SECONDS

    cdef int begin(self, ProduceState state, Writer reply) except -1:
        """Begin the reply to a request that was read; `serve_partitions` continues the reply."""
        state.reply = reply
        if state.transactional_id is None and state.transactional_batches:
            state.refusal = ProtocolError(
                "the request has a transactional batch, but no transactional id",
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        reply.write_count(state.topics, state.version >= 9)
        return 0

    cdef bint serve_partitions(self, ProduceState state) except -1:
        """Append the records of the request and write the body of its reply.

        Returns False if a thread has to prepare a batch first: call `serve_partitions` again once
        `state.preparation` has run. After True, the reply is whole. It is sent at once if
        `state.pending` is None or has no open promises, that is, if no batch has to become durable
        first. Otherwise it waits in `state.pending.frame` until all promises have ended.
        """
        cdef Writer reply = state.reply
        cdef bint flexible = state.version >= 9
        cdef ProducedPartition *part
        while state.next < state.count:
            part = state.parts + state.next
            if part.partitions > 0 and state.preparation is None:
                state.topic_partitions = self.find_topic(state, part)
                reply.write_count(part.partitions, flexible)
            if not self.serve_partition(state, part):
                return False
            state.next += 1
            if flexible and (state.next == state.count
                             or state.parts[state.next].partitions > 0):
                reply.write_int8(0)                     # the topic's tags
        if state.version >= 1:
            reply.write_int32(0)                        # throttle_time_ms
        if state.version >= LEADERS_SINCE and state.pending is not None:
            (<ProduceReply>state.pending).leaders = state.leaders
            (<ProduceReply>state.pending).endpoints_at = reply.size
        if state.leaders is not None:
            write_endpoints(
                reply, self.broker.image, state.leaders, state.client.listener)
        else:
            reply.write_no_tags(flexible)
        return True

    cdef object find_topic(self, ProduceState state, ProducedPartition *part):
        """Write the topic's name or id into the reply. Returns the topic's partitions, or an
        exception: the answer for all partitions of the topic in the request."""
        cdef Writer reply = state.reply
        cdef int version = state.version
        cdef str name
        cdef bytes topic_id
        if version >= 13:
            topic_id = state.topic_id(part)
            reply.write_raw(<const char *>topic_id, 16)
            partitions = self.by_id.get(topic_id)
            if partitions is None:
                return UnknownTopicId("no topic has this id")
            partition = partitions[0]
            name = (partition.topic if partition is not None
                    else topic_name(partitions, topic_id, self.broker.image))
            if name is None:
                return UnknownTopicId("this broker does not know the topic's name yet")
        else:
            name = state.topic_name(part)
            reply.write_string(name, version >= 9)
            partitions = self.by_name.get(name)
        state.topic = name
        if self.authorizer is not None:
            refusal = self.refusal_of(state, name)
            if refusal is not None:
                return refusal
        state.internal = name if name in INTERNAL_TOPICS else None
        if partitions is None:
            return UnknownTopicOrPartition("no such topic")
        if state.client.samples_writes:
            state.client.sampled(True, name)
        return partitions

    cdef object refusal_of(self, ProduceState state, str name):
        """Return the error if the client may not write to the topic or in this transaction,
        otherwise None."""
        cdef Client client = state.client
        rules = self.authorizer.known
        if state.transactional_id is None and client.allowed(rules, True, name):
            return None
        if state.access is None:
            state.access = access_of(self.broker, client, PRODUCE_KEY)
        try:
            if state.transactional_id is not None:
                state.access.need_transaction(Operation.WRITE, state.transactional_id)
            state.access.need_topic(Operation.WRITE, name)
        except ProtocolError as refusal:
            return refusal
        client.allow(rules, True, name)
        return None

    cdef bint serve_partition(self, ProduceState state, ProducedPartition *part) except -1:
        """Append one partition's records and write its part of the reply. Returns False if a thread
        has to prepare the batch first."""
        cdef int64_t base = -1
        cdef int16_t code = 0
        cdef str message = None
        cdef tuple record_errors = ()
        cdef Partition partition = None
        if state.preparation is None:
            state.records, state.size = state.body + part.records_at, part.sent
            state.in_log = False
        try:
            if state.transactional_id is None and state.refusal is not None:
                raise state.refusal
            partition = self.find_partition(state.topic_partitions, part.index)
            if state.internal is not None:
                raise InvalidTopic(f"only brokers may write to {state.internal}")
            if not self.prepare(state, partition):
                return False
            base = self.append(state, partition)
        except ProtocolError as error:
            state.failed = True
            code, message = int(error.code), error.message or None
            record_errors = error.record_errors
            if partition is not None and error.code in SENT_AGAIN:
                hold_back_later(state, partition)
            if code == STORAGE_ERROR and state.version < 4:
                code = NOT_LEADER                       # these clients retry after this code
        except Exception:
            state.failed = True
            code, message = UNKNOWN_SERVER_ERROR, "an internal error; the broker's log says why"
            log.exception("produce to %r failed", partition)
        state.preparation = None
        self.write_answer(state, part.index, partition, base, code, message, record_errors)
        state.stored = None
        return True

    cdef int write_answer(
        self, ProduceState state, int32_t index, Partition partition, int64_t base, int16_t code,
        str message, tuple record_errors
    ) except -1:
        cdef Writer reply = state.reply
        cdef int version = state.version
        cdef int64_t append_time = -1, required
        cdef Py_ssize_t error_at
        if code == 0 and partition.log.duplicate:
            append_time = (<Producers>partition.log.producers).repeated_timestamp
        elif code == 0 and attributes(state.records) & LOG_APPEND_TIME:
            append_time = max_timestamp(state.records)
        if partition is not None:
            partition.counters.produces += 1
            partition.counters.failed_produces += code != 0
            if code == MESSAGE_TOO_LARGE:
                partition.counters.bytes_rejected += state.size
            elif code == 0 and state.stored is not None:
                partition.counters.produce_conversions += last_offset_delta(state.records) + 1
        if code != 0:
            self.broker.counts.failed(PRODUCE_KEY, code)
        reply.write_int32(index)
        error_at = reply.size
        reply.write_int16(code)
        reply.write_int64(base)
        if version >= 2:
            reply.write_int64(append_time)
        if version >= 5:
            # As in Kafka, the log start is sent with errors of the log, but not with other errors.
            reply.write_int64(
                partition.log.log_start_offset
                if code == 0 or (state.in_log and code not in WITHOUT_LOG_START) else -1)
        if version >= 8:
            self.write_record_errors(reply, record_errors, version >= 9)
            reply.write_string(message, version >= 9)
        if code == NOT_LEADER and version >= LEADERS_SINCE:
            self.write_new_leader(state, index)
        else:
            reply.write_no_tags(version >= 9)
        required = base + last_offset_delta(state.records) + 1 if code == 0 else 0
        if code == 0 and required > partition.high_watermark:
            self.hold(state, partition, required, error_at)
        return 0

    cdef int write_new_leader(self, ProduceState state, int32_t index) except -1:
        leader = new_leader(self.broker.image, state.topic, index)
        if leader is None:
            return state.reply.write_no_tags(True)
        state.leaders = [*(state.leaders or ()), leader[0]]
        return write_leader(state.reply, 0, leader)

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

    cdef bint prepare(self, ProduceState state, Partition partition) except -1:
        """Prepare the records for the log. Returns False if a thread has to prepare them."""
        cdef Preparation preparation = state.preparation
        cdef TopicLimits topic
        cdef uint8_t[::1] view
        cdef object waited = None
        if preparation is not None and preparation.rebuild is not None:
            waited = preparation.rebuild
            preparation = state.preparation = None
        if preparation is None:
            if state.acks < -1 or state.acks > 1:
                raise ProtocolError("acks must be -1, 0 or 1", ErrorCode.INVALID_REQUIRED_ACKS)
            partition.check_leader(-1)
            if state.size <= 0:
                raise InvalidRecord("the request has no records for the partition")
            if state.version >= 3:
                state.size = one_batch(state.records, state.size, state.version >= 7)
                state.in_log = True
            if not (partition.log.appends_at_once() or self.has_files(state, partition, waited)):
                return False
            topic = self.limits_for(partition.log)
            topic.limits.zstd = state.version >= 7
            stored = LATER
            if not self.turn_is_over(state):
                stored = prepare_on_loop(state.records, state.size, state.version, topic)
            if stored is LATER:
                state.preparation = Preparation.__new__(Preparation)
                state.preparation.limits = topic.limits.copy()
                return False
            state.stored = stored
        else:
            preparation.raise_error()
            state.stored = preparation.stored
        if state.stored is not None:
            view = state.stored
            state.records, state.size = &view[0], view.shape[0]
        if preparation is not None:
            restamp(state.records, state.size, self.clock.now_ms())
        return True

    cdef bint has_files(self, ProduceState state, Partition partition, object waited) except -1:
        """Whether records can be appended to the log now. False if a thread first has to rebuild an
        index or read the log again. The append reports any other problem."""
        cdef PartitionLog plog = partition.log
        try:
            plog.prepare_append(True)
        except RebuildNeeded as needed:
            try:
                needed.rebuild.check_new(waited)
            except (OSError, EOFError, CorruptMessage):
                return True
            state.preparation = Preparation.__new__(Preparation)
            state.preparation.rebuild = needed.rebuild
            return False
        except (OSError, EOFError, ProtocolError):
            pass
        return True

    cdef bint turn_is_over(self, ProduceState state) except -1:
        """Whether the request's time on the loop is over; called for each partition."""
        state.unlooked += state.size + PARTITION_COST
        if state.unlooked < LOOK_SIZE:
            return False
        state.unlooked = 0
        if state.turn_ends == 0:
            state.turn_ends = self.clock.monotonic() + self.turn_seconds
            return False
        return self.clock.monotonic() > state.turn_ends

    cdef int64_t append(self, ProduceState state, Partition partition) except -2:
        cdef const uint8_t *records = state.records
        state.in_log = False
        partition.check_leader(-1)
        if attributes(records) & TRANSACTIONAL:
            self.gate.check(
                partition, records, state.version, state.transactional_id, state.refusal)
        state.in_log = True
        try:
            return partition.append(state.records, state.size, state.acks == -1)
        except DuplicateSequence:
            if state.acks == -1:
                require_kept(partition, records)
            raise

    cdef int suspend(self, ProduceState state, Py_ssize_t start) except -1:
        """Copy the rest of the request out of the connection's memory, for a thread.

        The reply, which began at `start` of a shared writer, gets a writer of its own.
        """
        cdef Writer reply = Writer()
        cdef Preparation preparation = state.preparation
        cdef ProducedPartition *part = state.parts + state.next
        state.keep(part.records_at)
        state.records = state.body + part.records_at
        preparation.frame = state.frame
        preparation.records, preparation.size = state.records, state.size
        preparation.version = state.version
        if state.pending is None:
            reply.write_raw(state.reply.data + start, state.reply.size - start)
        else:
            state.pending.move_to(reply, start)
            state.pending.open_promises += 1          # for the thread: `resume` ends it
        state.reply = reply
        return 0

    cdef int resume(self, ProduceState state) except -1:
        state.turn_ends = 0
        if state.pending is not None:
            state.pending.open_promises -= 1
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

    cdef PendingReply pending_reply(self, ProduceState state):
        """The object that holds the reply back, at most until the request's timeout."""
        cdef double deadline = self.flusher.loop.time() + state.timeout_ms * 0.001
        cdef ProduceReply reply
        if state.version < LEADERS_SINCE:
            return PendingReply(state.reply, state.receiver, deadline)
        reply = ProduceReply(state.reply, state.receiver, deadline)
        reply.broker, reply.listener = self.broker, state.client.listener
        return reply

    cdef int hold(
        self, ProduceState state, Partition partition, int64_t required, Py_ssize_t error_at
    ) except -1:
        """Add a promise to acknowledge the batch once it is as durable as required.

        With acks=all, the batch is durable enough once clients can read it. With acks=1, a promise
        is needed only if flush.messages requires a flush that includes this batch; other replicas
        are not waited for. With acks=0 there is no reply that could wait, so the flush is only
        requested.
        """
        if state.acks != -1 and (partition.flush_wanted_upto < required
                                 or partition.log.durable_offset() >= required):
            return 0
        if state.acks != 0:
            if state.pending is None:
                state.pending = self.pending_reply(state)
            state.pending.promise(partition, required, state.acks != -1, error_at)
        if not partition.role.replicated or partition.wants_flush():
            self.flusher.want(partition)
        return 0


cdef str topic_name(list partitions, bytes topic_id, image):
    """The name of a topic that is given by its id. A new topic's replicas have the name before the
    image has it. If this broker has no replica of the topic, the name is None until then."""
    name = image.names.get(topic_id)
    if name is None:
        for partition in partitions:
            if partition is not None:
                return (<Partition>partition).topic
    return name


cdef int hold_back_later(ProduceState state, Partition partition) except -1:
    """Note that a batch was refused with a retriable error. The client may already have sent a
    later batch. That batch may arrive after the cause of the error has ended: for example, the
    in-sync set has grown, or this broker has begun to lead. If the log does not know the producer,
    it would then accept the later batch as the producer's first. With the note it refuses the later
    batch until the client has sent the refused one again."""
    cdef PartitionLog plog = partition.log
    if state.size < HEADER_SIZE or magic(state.records) != 2:
        return 0
    if plog.health.offline is not None:
        plog.note_refused(<const uint8_t[:state.size]>state.records)
        return 0
    if plog.at_rest is not None and plog.at_rest.segments:
        return 0                        # do not read an idle log for a refused request
    try:
        (<Producers>plog.producers).note_unwritten(state.records)
    except (OSError, ProtocolError):
        pass
    return 0


cdef int require_kept(Partition partition, const uint8_t *records) except -1:
    """Require that a duplicate batch is as durable as acks=all requires, since clients take the
    answer for an acknowledgement. The batch is older than the producer's known batches, so its own
    offset is unknown: everything before the oldest known batch must be durable."""
    cdef PartitionLog plog = partition.log
    cdef int64_t end = (<Producers>plog.producers).first_known(producer_id(records))
    if partition.flush_before_ack and partition.role.alone:
        if plog.durable_offset() < end:
            plog.flush()
    elif partition.role.replicated and partition.high_watermark < end:
        raise ProtocolError(
            f"the batch is in {partition!r}, but not all in-sync replicas have it yet",
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    return 0
