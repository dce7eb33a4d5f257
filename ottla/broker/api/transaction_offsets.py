"""TxnOffsetCommit (key 28): offsets that take effect when their transaction commits (KIP-98)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.api.group_offsets import commit_code
from ottla.broker.api.refusals import refused_topics
from ottla.broker.coordination.answers import answer_of
from ottla.broker.coordination.produce_errors import GENERIC_ERRORS_FROM, IMPLICIT_FROM
from ottla.broker.dispatch import handles
from ottla.broker.request_context import RequestContext
from ottla.broker.security.access import GROUP_REFUSED, TOPIC_REFUSED, TRANSACTION_REFUSED, Access
from ottla.broker.security.decisions import by_item
from ottla.broker.threads.slices import Slices, in_parts
from ottla.groups.errors import InvalidGroupId, NotCoordinator
from ottla.groups.offset_requests import Commit, OffsetToCommit
from ottla.groups.records import Producer
from ottla.groups.result import Result
from ottla.groups.routing import OFFSETS_TOPIC
from ottla.groups.shard import OFFSETS_AT_ONCE, Shard
from ottla.groups.transactions.records import TopicIndex
from ottla.replication.controller.access import Operation
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext

IDS_FROM = 6
"""First version that names topics by their ids."""
EPOCHS_FROM = 5
"""First version that adds the group's partition to the transaction implicitly (KIP-890)."""
_PRODUCE_VERSION = (0, 0, 0, 0, GENERIC_ERRORS_FROM, IMPLICIT_FROM)
"""For each version of TxnOffsetCommit, the Produce version whose clients know the same errors."""


@handles(ApiKey.TXN_OFFSET_COMMIT, access=by_item)
async def txn_offset_commit(
    request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    """Record offsets in a transaction; each partition that does not exist gets an error.

    Requires WRITE on the transactional id, READ on the group and on each topic.
    """
    made, access = TxnOffsetCommitResponse.Topic, context.access
    refusal = _refusal(request, access)
    if refusal:
        return TxnOffsetCommitResponse(topics=refused_topics(made, request.topics, refusal))
    topics, refused = await access.divide(
        request.topics, lambda topic: access.topic_item(Operation.READ, topic)
    )
    response = TxnOffsetCommitResponse(topics=[])
    offsets, answers, slices = [], [], Slices()
    image = context.broker.image
    for topic in topics:
        if context.version >= IDS_FROM:
            known = image.topic_by_id(topic.topic_id)
            answered = made(topic_id=topic.topic_id, partitions=[])
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            known = image.topics.get(topic.name)
            answered = made(name=topic.name, partitions=[])
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not topic.partitions and known is not None:
            continue                    # as in Kafka, a topic without partitions is left out
        response.topics.append(answered)
        async for each in slices.each(topic.partitions):
            answer = made.Partition(partition_index=each.partition_index)
            answered.partitions.append(answer)
            if known is None:
                answer.error_code = int(unknown)
            elif not 0 <= each.partition_index < len(known.partitions):
                answer.error_code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                answers.append(answer)
                offsets.append(
                    OffsetToCommit(
                        known.name,
                        each.partition_index,
                        each.committed_offset,
                        each.committed_leader_epoch if context.version >= 2 else -1,
                        each.committed_metadata or "",
                        known.topic_id,
                    )
                )
    response.topics += refused_topics(made, refused, TOPIC_REFUSED)
    if not offsets:
        return response
    for answer, code in zip(answers, await _commit(request, offsets, context), strict=True):
        answer.error_code = int(code)
    return response


def _refusal(request: TxnOffsetCommitRequest, access: Access) -> int:
    """The error code for the whole request; 0 if the client may send it."""
    if not access.transaction(Operation.WRITE, request.transactional_id):
        return TRANSACTION_REFUSED
    return 0 if access.group(Operation.READ, request.group_id) else GROUP_REFUSED


async def _commit(
    request: TxnOffsetCommitRequest, offsets: list[OffsetToCommit], context: RequestContext
) -> list[ErrorCode]:
    names_member = context.version >= 3
    commit = Commit(
        request.group_id,
        offsets,
        request.member_id if names_member else "",
        request.group_instance_id if names_member else None,
        request.generation_id_or_member_epoch if names_member else -1,
        version=context.version,
        transactional=True,
    )
    producer = Producer(request.producer_id, request.producer_epoch)
    groups = context.broker.coordinators.groups
    try:
        if not request.group_id:
            raise InvalidGroupId("the group id is empty")
        codes: list[ErrorCode] = []
        index = groups.runtime.partition_of(request.group_id)
        for part in in_parts(offsets, OFFSETS_AT_ONCE):
            # Check before each part: the transaction may end between two parts.
            await _check(request, producer, index, context)
            codes += await answer_of(
                groups, request.group_id,
                partial(_commit_part, commit._replace(offsets=part), context.broker), producer,
            )
        return codes
    except ProtocolError as error:
        return [commit_code(error.code)] * len(offsets)


def _commit_part(
    commit: Commit, broker: BrokerContext, shard: Shard, result: Result
) -> list[ErrorCode]:
    """Commit offsets. A partition gets UNKNOWN_TOPIC_OR_PARTITION if its topic was deleted, or
    created again, since the request arrived."""
    topics, current = broker.image.topics, []
    for each in commit.offsets:
        known = topics.get(each.topic)
        if known is not None and known.topic_id == each.topic_id:
            current.append(each)
    codes = shard.commit(commit._replace(offsets=current), result)
    if len(current) == len(commit.offsets):
        return codes
    answers = dict(zip(current, codes, strict=True))
    return [answers.get(each, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for each in commit.offsets]


async def _check(
    request: TxnOffsetCommitRequest, producer: Producer, index: int, context: RequestContext
) -> None:
    """Have the transaction's coordinator check that the group's partition of the offsets topic is
    in the transaction, or add the partition. Produce does the same for a batch (KIP-890)."""
    transactions = context.broker.coordinators.transactions
    partition = (OFFSETS_TOPIC, index)
    version = _PRODUCE_VERSION[min(context.version, EPOCHS_FROM)]
    try:
        if await _checked_elsewhere(request, producer, partition, version, context):
            return
        if version >= IMPLICIT_FROM:
            error = await transactions.add_batches(
                request.transactional_id, producer, frozenset((partition,))
            )
            if error is not None:
                raise error
        else:
            await _refused_here(request, producer, partition, version, context)
        transactions.check_batch(request.transactional_id, producer, partition, version)
    except ProtocolError as error:
        if error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
            raise ProtocolError(error.message, ErrorCode.COORDINATOR_NOT_AVAILABLE) from None
        raise


async def _refused_here(
    request: TxnOffsetCommitRequest,
    producer: Producer,
    where: TopicIndex,
    version: int,
    context: RequestContext,
) -> None:
    """If this broker is the coordinator and refuses the request, raise the error. An error after
    which a producer gives up is raised only once this broker is confirmed as the coordinator."""
    verifier = context.broker.coordinators.verifier
    partition = context.broker.replicas.partition(*where)
    if verifier is not None and partition is not None:
        refused = verifier.ask_here(request.transactional_id, producer, [partition], version)
        if refused is not None:
            verifier.require(await refused, partition, producer)


async def _checked_elsewhere(
    request: TxnOffsetCommitRequest,
    producer: Producer,
    where: TopicIndex,
    version: int,
    context: RequestContext,
) -> bool:
    """If another broker is the coordinator, ask it to check; otherwise return False. The caller
    must append the offsets before it awaits anything else."""
    verifier = context.broker.coordinators.verifier
    if verifier is None or (node_id := verifier.elsewhere(request.transactional_id)) is None:
        return False
    partition = context.broker.replicas.partition(*where)
    if partition is None:
        raise NotCoordinator("this broker is not the coordinator of the group")
    state = partition.log.producers.get(producer.producer_id)
    if state is None or state.transaction_start < 0 or state.epoch != producer.epoch:
        verdicts = await verifier.ask(
            node_id, request.transactional_id, producer, [partition], version
        )
        verifier.require(verdicts, partition, producer)
    return True
