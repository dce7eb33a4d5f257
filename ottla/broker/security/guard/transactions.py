"""Guards of APIs about producer ids and transactions."""

from __future__ import annotations

from typing import Any

from ottla.broker.security.access import (
    CLUSTER_REFUSED,
    TOPIC_REFUSED,
    TRANSACTION_REFUSED,
    Access,
    ClusterRefused,
    split,
)
from ottla.broker.security.decisions import Amend, Answered
from ottla.broker.security.guard.groups import guard_offsets, refuse_topics
from ottla.replication.controller.access import Operation, Resource
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AddPartitionsToTxnResponse,
    DescribeTransactionsResponse,
    WriteTxnMarkersResponse,
)

NOT_ATTEMPTED = int(ErrorCode.OPERATION_NOT_ATTEMPTED)


def guard_init(request: Any, access: Access) -> None:
    """WRITE of the transactional id; without one, WRITE of any topic or IDEMPOTENT_WRITE."""
    if request.transactional_id is not None:
        access.need_transaction(Operation.WRITE, request.transactional_id)
    elif not access.cluster(Operation.IDEMPOTENT_WRITE) and not access.may_with_any(
        Operation.WRITE, Resource.TOPIC
    ):
        raise ClusterRefused("Cluster authorization failed.")


def guard_add_offsets(request: Any, access: Access) -> None:
    """WRITE of the transactional id, READ of the group."""
    access.need_transaction(Operation.WRITE, request.transactional_id)
    access.need_group(Operation.READ, request.group_id)


def guard_add_partitions(request: Any, access: Access) -> None:
    """WRITE of the transactional id and of every topic, or none is added. From version 4 on only
    brokers send it."""
    if access.version >= 4:
        access.need_cluster(Operation.CLUSTER_ACTION)
        return
    topics = request.v3_and_below_topics
    if not access.transaction(Operation.WRITE, request.v3_and_below_transactional_id):
        codes = [TRANSACTION_REFUSED] * len(topics)
    else:
        allowed = [access.topic(Operation.WRITE, topic.name) for topic in topics]
        if all(allowed):
            return
        codes = [NOT_ATTEMPTED if each else TOPIC_REFUSED for each in allowed]
    made = AddPartitionsToTxnResponse.TopicResult
    results = [
        made(
            name=topic.name,
            results_by_partition=[
                made.ResultsByPartition(partition_index=index, partition_error_code=code)
                for index in topic.partitions
            ],
        )
        for topic, code in zip(topics, codes, strict=True)
    ]
    raise Answered(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))


def guard_commit(request: Any, access: Access) -> Amend | None:
    """WRITE of the transactional id, READ of the group and of each topic."""
    if not access.transaction(Operation.WRITE, request.transactional_id):
        raise Answered(refuse_topics(access.key, request.topics, TRANSACTION_REFUSED))
    return guard_offsets(request, access)


def guard_markers(request: Any, access: Access) -> None:
    """Sent by brokers: CLUSTER_ACTION, or ALTER of the cluster (KIP-664)."""
    if access.cluster(Operation.CLUSTER_ACTION) or access.cluster(Operation.ALTER):
        return
    made = WriteTxnMarkersResponse.Marker
    raise Answered(
        WriteTxnMarkersResponse(
            markers=[
                made(
                    producer_id=marker.producer_id,
                    topics=[
                        made.Topic(
                            name=topic.name,
                            partitions=[
                                made.Topic.Partition(
                                    partition_index=index, error_code=CLUSTER_REFUSED
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )
    )


def guard_describe(request: Any, access: Access) -> Amend:
    """DESCRIBE of each transactional id; of its topics those that the client may describe."""
    request.transactional_ids, refused = split(
        request.transactional_ids, lambda each: access.transaction(Operation.DESCRIBE, each)
    )
    made = DescribeTransactionsResponse.TransactionState

    def amend(response: DescribeTransactionsResponse) -> None:
        for each in response.transaction_states:
            each.topics = [
                topic for topic in each.topics if access.topic(Operation.DESCRIBE, topic.topic)
            ]
        response.transaction_states = [
            *response.transaction_states,
            *(made(transactional_id=each, error_code=TRANSACTION_REFUSED) for each in refused),
        ]

    return amend


def guard_list(request: Any, access: Access) -> Amend:
    """The transactional ids that the client may describe."""

    def amend(response: Any) -> None:
        response.transaction_states = [
            each
            for each in response.transaction_states
            if access.transaction(Operation.DESCRIBE, each.transactional_id)
        ]

    return amend


