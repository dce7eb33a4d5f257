"""Verifies transactional batches with coordinators, on other brokers mostly (KIP-890).

Between the request and the append the transaction may end, with a marker that arrives before the
answer, or the partition may move to another leader and return. A batch that was allowed before
would then open a transaction that nobody ends. So a verdict is stored with the state that the
partition had before the request, and is valid only while that state is unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.coordination.answers import answer_of
from ottla.broker.peers.peers import Peers, PeerUnavailable
from ottla.groups.records import Producer
from ottla.groups.routing import TRANSACTION_TOPIC, partition_for
from ottla.groups.transactions.errors import REFUSALS
from ottla.replication.partition import Partition
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext

LANE = "transactions"
IMPLICIT_FROM = 12
"""First Produce that adds its partitions to the transaction by itself."""
VERIFY_VERSION, ADD_VERSION = 4, 5
REQUEST_SECONDS = 10.0


class Guard(NamedTuple):
    """The state that must be the same at the append as it was before the request."""

    producer: Producer
    leader_epoch: int
    marked_at: int


Verdicts = dict[Partition, Guard | ProtocolError]


class TransactionVerifier:
    """Verifies batches with coordinators on other brokers."""

    def __init__(self, broker: BrokerContext, peers: Peers) -> None:
        self.broker, self.peers = broker, peers

    def elsewhere(self, transactional_id: str | None) -> int | None:
        """The node that coordinates a transactional id, -1 if there is none; None for this node."""
        topic = self.broker.image.topics.get(TRANSACTION_TOPIC)
        if not transactional_id or topic is None:
            return None
        leader = topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader
        return None if leader == self.broker.node_id else leader

    def ask(
        self,
        node_id: int,
        transactional_id: str,
        producer: Producer,
        partitions: Sequence[Partition],
        version: int,
    ) -> asyncio.Future[Verdicts]:
        """Ask on behalf of a Produce of this version; from 12 on the partitions are added."""
        return self.peers.loop.create_task(
            self._ask(node_id, transactional_id, producer, partitions, version)
        )

    async def _ask(
        self,
        node_id: int,
        transactional_id: str,
        producer: Producer,
        partitions: Sequence[Partition],
        version: int,
    ) -> Verdicts:
        guards = {each: guard_of(each, producer) for each in partitions}
        request = _request(transactional_id, producer, partitions, version < IMPLICIT_FROM)
        try:
            answer = await self.peers.ask(
                node_id, request, VERIFY_VERSION if version < IMPLICIT_FROM else ADD_VERSION,
                REQUEST_SECONDS, LANE,
            )
            codes = _codes(answer)
        except PeerUnavailable as error:
            # Every client retries this, also after the coordinator has moved.
            refusal = ProtocolError(str(error), ErrorCode.NOT_ENOUGH_REPLICAS)
            return dict.fromkeys(partitions, refusal)
        verdicts: Verdicts = {}
        for each, guard in guards.items():
            code = codes.get((each.topic, each.index), ErrorCode.COORDINATOR_NOT_AVAILABLE)
            verdicts[each] = guard if code is ErrorCode.NONE else _refusal(each, code, version)
        return verdicts

    def ask_here(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Sequence[Partition],
        version: int,
    ) -> asyncio.Future[Verdicts] | None:
        """Ask this broker's own coordinator; None where it refuses nothing for good. What it does
        refuse is answered once it has confirmed that it still is the coordinator."""
        from ottla.broker.coordination.transaction_coordinator import as_produce_error

        runtime = self.broker.coordinators.transactions.runtime
        verdicts: Verdicts = {}
        final = False
        for each in partitions:
            try:
                runtime.shard(transactional_id).check_partition(
                    transactional_id, producer, (each.topic, each.index)
                )
                verdicts[each] = guard_of(each, producer)
            except ProtocolError as error:
                final = final or isinstance(error, REFUSALS)
                verdicts[each] = as_produce_error(error, version)
        if not final:
            return None
        return self.peers.loop.create_task(self._confirmed(transactional_id, verdicts, version))

    async def _confirmed(
        self, transactional_id: str, verdicts: Verdicts, version: int
    ) -> Verdicts:
        from ottla.broker.coordination.transaction_coordinator import as_produce_error

        try:
            await answer_of(
                self.broker.coordinators.transactions, transactional_id,
                lambda shard, result: shard.confirm(transactional_id, result),
            )
        except ProtocolError as error:
            return dict.fromkeys(verdicts, as_produce_error(error, version))
        return verdicts

    def require(self, verdicts: Verdicts, partition: Partition, producer: Producer) -> None:
        """Raise ProtocolError unless the producer may begin its transaction here now."""
        verdict = verdicts.get(partition)
        if isinstance(verdict, ProtocolError):
            raise verdict
        if verdict != guard_of(partition, producer):
            raise ProtocolError(
                f"the transaction was changed while {partition!r} asked about it; send it again",
                ErrorCode.NOT_ENOUGH_REPLICAS,
            )


def guard_of(partition: Partition, producer: Producer) -> Guard:
    """The state of a partition with which an answer about a producer's transaction is stored."""
    state = partition.log.producers.get(producer.producer_id)
    return Guard(producer, partition.leader_epoch, -1 if state is None else state.marked_at)


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


def _codes(answer: AddPartitionsToTxnResponse) -> dict[tuple[str, int], ErrorCode]:
    whole: int = answer.error_code
    return {
        (topic.name, each.partition_index): ErrorCode(whole or each.partition_error_code)
        for transaction in answer.results_by_transaction
        for topic in transaction.topic_results
        for each in topic.results_by_partition
    }


def _refusal(partition: Partition, code: ErrorCode, version: int) -> ProtocolError:
    from ottla.broker.coordination.transaction_coordinator import as_produce_error

    return as_produce_error(
        ProtocolError(f"the transaction's coordinator refuses {partition!r}", code), version
    )
