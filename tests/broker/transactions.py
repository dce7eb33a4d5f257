"""The requests of a transactional producer, each in any version."""

from __future__ import annotations

import time
from typing import Any

from ottla.groups.records import Producer
from ottla.wire.compression import Codec
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from ottla.wire.records import Record, build_batch
from tests.broker.running import WireClient

READ_COMMITTED = 1
OK = ErrorCode.NONE


def find(client: WireClient, key: str, key_type: int = 1) -> None:
    """Find the coordinator, which creates the internal topic, and assert that it is available."""
    assert find_code(client, key, key_type) == 0


def find_code(client: WireClient, key: str, key_type: int = 1) -> int:
    """Send FindCoordinator; returns the error code."""
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    return int(client.call(request, 6).coordinators[0].error_code)


def init(
    client: WireClient,
    key: str,
    version: int = 5,
    expected: Producer | None = None,
    timeout_ms: int = 60_000,
) -> Any:
    """InitProducerId; returns the producer, or the error code."""
    request = InitProducerIdRequest(transactional_id=key, transaction_timeout_ms=timeout_ms)
    if expected is not None:
        request.producer_id, request.producer_epoch = expected
    answer = client.call(request, version)
    if answer.error_code:
        return ErrorCode(answer.error_code)
    return Producer(answer.producer_id, answer.producer_epoch)


def add(
    client: WireClient, key: str, producer: Producer, topic: str, *partitions: int,
    version: int = 3, verify_only: bool = False,
) -> list[ErrorCode]:
    """AddPartitionsToTxn; returns an error code for each partition. `verify_only` needs version 4
    or later."""
    made = AddPartitionsToTxnRequest
    topics = [made.Topic(name=topic, partitions=list(partitions))]
    if version < 4:
        answer = client.call(
            made(
                v3_and_below_transactional_id=key,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.epoch,
                v3_and_below_topics=topics,
            ),
            version,
        )
        results = answer.results_by_topic_v3_and_below
    else:
        transaction = made.Transaction(
            transactional_id=key,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=verify_only,
            topics=topics,
        )
        answer = client.call(made(transactions=[transaction]), version)
        results = answer.results_by_transaction[0].topic_results
    return [ErrorCode(p.partition_error_code) for t in results for p in t.results_by_partition]


def add_offsets(
    client: WireClient, key: str, producer: Producer, group: str, version: int
) -> ErrorCode:
    """AddOffsetsToTxn; returns the error code."""
    request = AddOffsetsToTxnRequest(
        transactional_id=key, producer_id=producer.producer_id, producer_epoch=producer.epoch,
        group_id=group,
    )
    return ErrorCode(client.call(request, version).error_code)


def commit_offset(
    client: WireClient,
    key: str,
    producer: Producer,
    group: str,
    topic: str | bytes,
    offset: int,
    version: int,
) -> ErrorCode:
    """TxnOffsetCommit of partition 0; returns the error code."""
    made = TxnOffsetCommitRequest.Topic
    partition = made.Partition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = TxnOffsetCommitRequest(
        transactional_id=key,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[
            made(topic_id=topic, partitions=[partition])
            if isinstance(topic, bytes)
            else made(name=topic, partitions=[partition])
        ],
    )
    return ErrorCode(client.call(request, version).topics[0].partitions[0].error_code)


def end(
    client: WireClient, key: str, producer: Producer, commit: bool, version: int = 4
) -> Any:
    """EndTxn; returns the producer of the next transaction, or the error code."""
    request = EndTxnRequest(
        transactional_id=key, producer_id=producer.producer_id, producer_epoch=producer.epoch,
        committed=commit,
    )
    answer = client.call(request, version)
    if answer.error_code:
        return ErrorCode(answer.error_code)
    if version < 5:
        return producer
    return Producer(answer.producer_id, answer.producer_epoch)


def write(
    client: WireClient,
    key: str | None,
    producer: Producer,
    topic: str | bytes,
    *values: bytes,
    sequence: int = 0,
    partition: int = 0,
    version: int = 11,
    codec: Codec = Codec.NONE,
) -> ErrorCode:
    """Produce a transactional batch; returns the error code."""
    # The marker has the current time. If the records were old, the marker would begin another
    # segment.
    now_ms = int(time.time() * 1000)
    records = build_batch(
        [Record(offset=n, timestamp=now_ms, value=value) for n, value in enumerate(values)],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        transactional=True,
        codec=codec,
    )
    made = ProduceRequest.TopicData
    data = made.PartitionData(index=partition, records=records)
    named = (
        made(topic_id=topic, partition_data=[data])
        if isinstance(topic, bytes)
        else made(name=topic, partition_data=[data])
    )
    request = ProduceRequest(
        transactional_id=key, acks=-1, timeout_ms=10_000, topic_data=[named]
    )
    return ErrorCode(client.call(request, version).responses[0].partition_responses[0].error_code)


def end_offset(client: WireClient, topic: str, isolation: int, partition: int = 0) -> int:
    """The end of the partition for a reader of this isolation level (ListOffsets)."""
    made = ListOffsetsRequest.Topic
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            made(
                name=topic,
                partitions=[made.Partition(partition_index=partition, timestamp=-1)],
            )
        ],
    )
    offset: int = client.call(request, 7).topics[0].partitions[0].offset
    return offset
