# cython: boundscheck=False, wraparound=False
"""Lets transactional batches into partitions: only those of a transaction that is open there.

Whoever has a transaction open in a partition goes on writing to it. The first batch asks the
coordinator: up to Produce 11 whether the client has added the partition, from 12 on the partition
is added by that very batch (KIP-890). That has to be on the disk before the batch may be
appended, or a crash would leave a transaction open of which no coordinator knows.

In a cluster the coordinator may be another broker. Then every version asks before it is served,
and what the answer allows counts only for a partition in which nothing has happened meanwhile
(`coordination.transaction_verifier`).
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from ottla.broker.security.client cimport Client
from ottla.log.producers cimport Producers, ProducerState
from ottla.replication.partition cimport Partition
cimport ottla.wire.batch as fields
from ottla.wire.codec cimport Cursor

from ottla.broker.security.access import access_of
from ottla.replication.controller.access import Operation


cdef enum:
    FLEXIBLE = 9                        # first Produce with compact lengths
    IMPLICIT = 12                       # first one that adds its partitions by itself


cdef class TransactionGate:
    """`check_batch` and `add_batches` lead to the coordinator (`transaction_coordinator`)."""

    def __init__(self, broker, check_batch, add_batches, verifier=None):
        self.broker, self.authorizer = broker, broker.authorizer
        self.by_name, self.by_id = broker.replicas.by_name, broker.replicas.by_id
        self.check_batch, self.add_batches, self.verifier = check_batch, add_batches, verifier

    cdef object admission(self, Cursor request, int version, Client client):
        """Add the partitions of a checked Produce from version 12 on that are not yet in its
        transaction, as far as the client may write there; below, have another broker that
        coordinates it say that they are.

        Returns a future of what `check` is to go by; None if there is nothing to wait for.
        """
        cdef Py_ssize_t topics, partitions, size
        cdef int32_t index
        cdef const uint8_t *batch
        cdef bint flexible = version >= FLEXIBLE
        cdef str transactional_id = request.read_string(flexible)
        cdef Partition partition
        producer, missing = None, {}
        request.read_int16()
        request.read_int32()
        access = None if self.authorizer is None else access_of(self.broker, client)
        if access is not None and not access.transaction(Operation.WRITE, transactional_id):
            return None                         # it is refused topic by topic, when it is served
        elsewhere = None if self.verifier is None else self.verifier.elsewhere(transactional_id)
        if elsewhere is None and version < IMPLICIT:
            return None                         # `check` asks the coordinator, which is here
        topics = request.read_count(flexible, 3)
        while topics > 0:
            topics -= 1
            if version >= 13:
                found = self.by_id.get(request.read_uuid())
            else:
                found = self.by_name.get(request.read_string(flexible))
            if found is None or access is not None and not may_write(access, found):
                found = None
            partitions = request.read_count(flexible, 5)
            while partitions > 0:
                partitions -= 1
                index = request.read_int32()
                size = request.read_bytes_length(flexible)
                batch = request.take(max(size, 0), "records")
                if flexible:
                    request.skip_tags()
                if (found is None or not 0 <= index < len(found) or size < fields.HEADER_SIZE
                        or not fields.attributes(batch) & fields.TRANSACTIONAL):
                    continue
                partition = found[index]
                # What is offline is refused when the produce is served.
                if (partition is None or partition.log.offline is not None
                        or is_open(partition, batch)):
                    continue
                producer = producer_of(batch)
                missing[partition.topic, index] = partition
            if flexible:
                request.skip_tags()
        if not missing:
            return None
        if elsewhere is not None:
            return self.verifier.ask(
                elsewhere, transactional_id, producer, list(missing.values()), version)
        return self.add_batches(transactional_id, producer, frozenset(missing))

    cdef int check(
        self, Partition partition, const uint8_t *batch, int version, str transactional_id,
        object refusal
    ) except -1:
        """Raise ProtocolError unless the batch's transaction may write to the partition; `refusal`
        is what the future of `admission` had: why it has not added it, None if it has, or another
        broker's verdicts."""
        if is_open(partition, batch):
            return 0
        if type(refusal) is dict:
            self.verifier.require(refusal, partition, producer_of(batch))
            return 0
        if refusal is not None:
            raise refusal
        self.check_batch(
            transactional_id, producer_of(batch), (partition.topic, partition.index), version)
        return 0


cdef bint may_write(access, found) except -1:
    return found[0] is not None and access.topic(Operation.WRITE, found[0].topic)


cdef object producer_of(const uint8_t *batch):
    from ottla.groups.records import Producer       # not before there are transactions
    return Producer(fields.producer_id(batch), fields.producer_epoch(batch))


cdef bint is_open(Partition partition, const uint8_t *batch) except -1:
    """Whether the batch's producer has a transaction open in the partition."""
    cdef Producers producers = partition.log.producers
    cdef ProducerState state = producers.states.get(fields.producer_id(batch))
    return (state is not None and state.transaction_start >= 0
            and state.epoch == fields.producer_epoch(batch))
