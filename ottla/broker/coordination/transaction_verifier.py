"""Verifies transactional batches with coordinators, usually on other brokers (KIP-890).

Between the request to the coordinator and the append, the transaction may end, with a marker that
arrives before the answer. Or the partition may move to another leader and return. If the batch were
appended nevertheless, it would open a transaction that never ends. So the coordinator's permission
is stored with the state that the partition had before the request, and is valid only while that
state is unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.coordination.marker_rules import later_marker
from ottla.broker.coordination.produce_errors import IMPLICIT_FROM, as_produce_error
from ottla.broker.peers.peers import Peers, PeerUnavailable
from ottla.groups.records import Producer
from ottla.groups.routing import TRANSACTION_TOPIC, partition_for
from ottla.groups.transactions.records import TopicIndex
from ottla.replication.partition import Partition
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.marks import reached
from ottla.wire.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

if TYPE_CHECKING:
    from ottla.broker.cluster.metadata_log import Metadata
    from ottla.broker.coordination.coordinators import Coordinators

LANE = "transactions"
VERIFY_VERSION, ADD_VERSION = 4, 5
REQUEST_SECONDS = 10.0
_UNHEARD = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED)
"""Errors of a coordinator for partitions that are led here. Either the coordinator does not know a
topic of the request yet, or the topic was deleted and this broker does not know that yet. In both
cases the coordinator has neither checked nor added any of the request's partitions."""


class Guard(NamedTuple):
    """The state that must be the same at the append as it was before the request."""

    transactional_id: str
    producer: Producer
    leader_epoch: int
    marked_at: int
    coordinator_epoch: int
    """The coordinator's epoch, according to this broker's image."""


Verdicts = dict[Partition, Guard | ProtocolError]
Refusals = dict[TopicIndex, ProtocolError]


class TransactionVerifier:
    """Verifies batches with their coordinators."""

    def __init__(
        self, node_id: int, metadata: Metadata, coordinators: Coordinators, peers: Peers
    ) -> None:
        self.node_id, self.metadata = node_id, metadata
        self.coordinators, self.peers = coordinators, peers

    def elsewhere(self, transactional_id: str | None) -> int | None:
        """Return the id of the other node that coordinates a transactional id, or -1 if no node
        does. Return None if this node does, if the transactional id is empty, or if
        `__transaction_state` does not exist."""
        topic = self.metadata.image.topics.get(TRANSACTION_TOPIC)
        if not transactional_id or topic is None:
            return None
        leader = topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader
        return None if leader == self.node_id else leader

    def ask(
        self,
        node_id: int,
        transactional_id: str,
        producer: Producer,
        partitions: Sequence[Partition],
        version: int,
    ) -> asyncio.Future[Verdicts]:
        """Ask a coordinator about batches of a Produce request of this version. From version 12 on,
        this also adds the partitions to the transaction."""
        # Take the guards now: in a later image, another broker may be the coordinator.
        guards = self.guards(transactional_id, producer, partitions)
        request = _request(transactional_id, producer, partitions, version < IMPLICIT_FROM)
        return self.peers.loop.create_task(self._ask(node_id, request, guards, version))

    async def _ask(
        self, node_id: int, request: AddPartitionsToTxnRequest, guards: Verdicts, version: int
    ) -> Verdicts:
        try:
            answer = await self.peers.ask(
                node_id, request, VERIFY_VERSION if version < IMPLICIT_FROM else ADD_VERSION,
                REQUEST_SECONDS, LANE,
            )
        except PeerUnavailable as error:
            # Every client retries after this code, even if the coordinator has moved.
            reached("a transaction could not be verified")
            refusal = ProtocolError(str(error), ErrorCode.NOT_ENOUGH_REPLICAS)
            return dict.fromkeys(guards, refusal)
        return _verdicts(guards, _refusals(answer, guards), version)

    def ask_here(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Sequence[Partition],
        version: int,
    ) -> asyncio.Future[Verdicts] | None:
        """Ask this broker's own coordinator. Returns None if the coordinator has permitted the
        batches of all partitions without a wait."""
        guards = self.guards(transactional_id, producer, partitions)
        coordinator = self.coordinators.transactions
        asked = [(each.topic, each.index) for each in partitions]
        answer = coordinator.verify(transactional_id, producer, asked)
        if answer.done() and not answer.exception() and not answer.result() and not any(
            isinstance(guard, ProtocolError) for guard in guards.values()
        ):
            return None
        return self.peers.loop.create_task(self._here(answer, guards, version))

    async def _here(
        self, answer: asyncio.Future[Refusals], guards: Verdicts, version: int
    ) -> Verdicts:
        try:
            refusals = await answer
        except ProtocolError as error:
            refusals = {(each.topic, each.index): error.kept() for each in guards}
        return _verdicts(guards, refusals, version)

    def guards(
        self, transactional_id: str, producer: Producer, partitions: Sequence[Partition]
    ) -> Verdicts:
        """The state of each partition before the request, or an error for a partition that refuses
        the batch whatever the coordinator answers."""
        epoch = self._coordinator_epoch(transactional_id)
        return {each: _guard(each, transactional_id, producer, epoch) for each in partitions}

    def _coordinator_epoch(self, transactional_id: str) -> int:
        image = self.metadata.image
        topic = image.topics.get(TRANSACTION_TOPIC)
        if topic is None or not transactional_id:
            return -1
        index = partition_for(transactional_id, len(topic.partitions))
        return image.leader_epoch(topic, topic.partitions[index])

    def require(self, verdicts: Verdicts, partition: Partition, producer: Producer) -> None:
        """Raise ProtocolError unless the producer may begin its transaction here now."""
        verdict = verdicts.get(partition)
        if isinstance(verdict, ProtocolError):
            raise verdict
        if verdict is None or verdict != _guard(
            partition, verdict.transactional_id, producer,
            self._coordinator_epoch(verdict.transactional_id),
        ):
            reached("a transaction changed while a partition asked about it")
            raise ProtocolError(
                f"the transaction changed while the leader of {partition!r} was verifying it;"
                " send the batch again",
                ErrorCode.NOT_ENOUGH_REPLICAS,
            )


def _guard(
    partition: Partition, transactional_id: str, producer: Producer, coordinator_epoch: int
) -> Guard | ProtocolError:
    """The partition's present state, to be stored with the coordinator's answer; or the error with
    which the partition refuses the batch whatever the answer is."""
    try:
        refusal = later_marker(partition, producer, coordinator_epoch)
        state = partition.log.producers.get(producer.producer_id)
    except ProtocolError as error:          # the log cannot be read
        return error.kept()
    if refusal is not None:
        return refusal
    marked_at = -1 if state is None else state.marked_at
    return Guard(
        transactional_id, producer, partition.leader_epoch, marked_at, coordinator_epoch
    )


def _verdicts(guards: Verdicts, refusals: Refusals, version: int) -> Verdicts:
    verdicts: Verdicts = {}
    for each, guard in guards.items():
        refusal = refusals.get((each.topic, each.index))
        verdicts[each] = guard if refusal is None else as_produce_error(refusal, version)
    return verdicts


def _request(
    transactional_id: str, producer: Producer, partitions: Sequence[Partition], verify_only: bool
) -> AddPartitionsToTxnRequest:
    made = AddPartitionsToTxnRequest
    topics: dict[str, list[int]] = {}
    for each in partitions:
        topics.setdefault(each.topic, []).append(each.index)
    return made(transactions=[made.Transaction(
        transactional_id=transactional_id, producer_id=producer.producer_id,
        producer_epoch=producer.epoch, verify_only=verify_only,
        topics=[made.Topic(name=name, partitions=indexes) for name, indexes in topics.items()],
    )])


def _refusals(
    answer: AddPartitionsToTxnResponse, partitions: Iterable[Partition]
) -> Refusals:
    whole: int = answer.error_code
    codes = {
        (topic.name, each.partition_index): ErrorCode(whole or each.partition_error_code)
        for transaction in answer.results_by_transaction
        for topic in transaction.topic_results
        for each in topic.results_by_partition
    }
    refusals: Refusals = {}
    for each in partitions:
        where = each.topic, each.index
        code = codes.get(where, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if code in _UNHEARD:
            code = ErrorCode.NOT_ENOUGH_REPLICAS        # every client sends the batch again
        if code is not ErrorCode.NONE:
            text = f"the coordinator does not confirm that {each!r} belongs to the transaction"
            refusals[where] = ProtocolError(text, code)
    return refusals
