# cython: boundscheck=False, wraparound=False
"""Checks transactional batches: a batch passes only if its partition is in the open transaction.

While a producer has an open transaction in a partition, its batches pass. About the first batch in
a partition, this broker asks the transaction's coordinator. Up to Produce 11, the coordinator
answers whether the client has added the partition; from version 12 on, it adds the partition
(KIP-890). The addition has to be durable before the batch may be appended: otherwise a crash could
leave a transaction open that no coordinator knows.

In a cluster the coordinator may be another broker, so requests of all versions are verified before
they are served. A verdict is valid only if the producer's state in the partition has not
changed meanwhile (`coordination.transaction_verifier`).
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from ottla.broker.api.records.produce_state cimport ProducedPartition, ProduceState
from ottla.log.files.producers cimport Producers, ProducerState
from ottla.replication.partition cimport Partition
cimport ottla.wire.batch as fields

from ottla.broker.security.access import access_of
from ottla.replication.controller.access import Operation
from ottla.wire.errors import ProtocolError


cdef enum:
    IMPLICIT = 12                       # first Produce version that adds its partitions implicitly


cdef class TransactionGate:
    """Asks transaction coordinators, on this broker or elsewhere, whether to append batches."""

    def __init__(self, broker):
        self.broker, self.authorizer = broker, broker.authorizer
        self.by_name, self.by_id = broker.replicas.by_name, broker.replicas.by_id
        self.coordinators, self.verifier = broker.coordinators, broker.coordinators.verifier

    cdef object admission(self, ProduceState state):
        """Ask the coordinator about partitions that are not yet in the request's transaction, if
        the client may write to them. From Produce 12 on, the coordinator adds these partitions to
        the transaction. For older versions, it verifies that the client has added them; on a
        standalone broker, `check` does that instead.

        Returns a future with the `refusal` for `check`; None if there is nothing to wait for.
        """
        cdef Py_ssize_t at
        cdef const uint8_t *batch
        cdef ProducedPartition *part
        cdef str transactional_id = state.transactional_id
        cdef int version = state.version
        cdef Partition partition
        producer, missing, partitions = None, {}, None
        access = None
        if self.authorizer is not None:
            access = access_of(self.broker, state.client, None)
            if not access.transaction(Operation.WRITE, transactional_id):
                return None                     # ProduceHandler then refuses each topic
        elsewhere = None if self.verifier is None else self.verifier.elsewhere(transactional_id)
        if elsewhere is None and version < IMPLICIT and self.verifier is None:
            return None                         # `check` asks the local coordinator
        for at in range(state.count):
            part = state.parts + at
            if part.partitions > 0:
                partitions = self.find_topic(state, part)
                if (partitions is not None and access is not None
                        and not may_write(access, partitions)):
                    partitions = None
            batch = state.body + part.records_at
            if (partitions is None or not 0 <= part.index < len(partitions)
                    or part.sent < fields.HEADER_SIZE
                    or not fields.attributes(batch) & fields.TRANSACTIONAL):
                continue
            partition = partitions[part.index]
            # Offline partitions are refused when the produce is served.
            if partition is None or partition.log.offline is not None:
                continue
            try:
                if is_open(partition, batch):
                    continue
            except ProtocolError:
                pass                    # the log cannot be read; the append reports it
            producer = producer_of(batch)
            missing[partition.topic, part.index] = partition
        if not missing:
            return None
        if elsewhere is not None:
            return self.verifier.ask(
                elsewhere, transactional_id, producer, list(missing.values()), version)
        if version < IMPLICIT:
            return self.verifier.ask_here(
                transactional_id, producer, list(missing.values()), version)
        return self.coordinators.add_batches(transactional_id, producer, frozenset(missing))

    cdef object find_topic(self, ProduceState state, ProducedPartition *part):
        if state.version >= 13:
            return self.by_id.get(state.topic_id(part))
        return self.by_name.get(state.topic_name(part))

    cdef int check(
        self, Partition partition, const uint8_t *batch, int version, str transactional_id,
        object refusal
    ) except -1:
        """Raise ProtocolError unless the batch's transaction may write to the partition. `refusal`
        is the result of `admission`: an error, a coordinator's verdicts, or None if there is
        neither."""
        if is_open(partition, batch):
            return 0
        if type(refusal) is dict:
            self.verifier.require(refusal, partition, producer_of(batch))
            return 0
        if refusal is not None:
            raise refusal
        self.coordinators.check_batch(
            transactional_id, producer_of(batch), (partition.topic, partition.index), version)
        return 0


cdef bint may_write(access, found) except -1:
    for partition in found:
        if partition is not None:               # one is enough: all have the same topic
            return access.topic(Operation.WRITE, partition.topic)
    return False


cdef object producer_of(const uint8_t *batch):
    from ottla.groups.records import Producer       # imported only for transactions
    return Producer(fields.producer_id(batch), fields.producer_epoch(batch))


cdef bint is_open(Partition partition, const uint8_t *batch) except -1:
    """Whether the batch's producer has an open transaction in the partition."""
    cdef Producers producers = partition.log.producers
    cdef ProducerState producer = producers.states.get(fields.producer_id(batch))
    return (producer is not None and producer.transaction_start >= 0
            and producer.epoch == fields.producer_epoch(batch))
