"""Requests that many tests make: produce a batch, fetch records."""

from __future__ import annotations

from typing import Any

from ottla.wire.batch import batches
from ottla.wire.messages import (
    FetchRequest,
    ProduceRequest,
)
from ottla.wire.records import Record, build_batch
from tests.broker.running import WireClient


def batch(*values: bytes | None, **fields: Any) -> bytes:
    """A batch of records without keys; `fields` are passed to build_batch."""
    return build_batch(
        [Record(offset=n, timestamp=1, key=None, value=v) for n, v in enumerate(values)], **fields
    )


def produce_request(
    topic: str | bytes,
    records: bytes | None,
    *,
    partition: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """A Produce request for one partition. A topic in bytes is a topic id."""
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            ProduceRequest.TopicData(
                **({"topic_id": topic} if isinstance(topic, bytes) else {"name": topic}),
                partition_data=[
                    ProduceRequest.TopicData.PartitionData(index=partition, records=records)
                ],
            )
        ],
    )


def produce(
    client: WireClient, topic: str, records: bytes | None, version: int = 9, **fields: Any
) -> Any:
    """Produce and return the partition's answer."""
    response = client.call(produce_request(topic, records, **fields), version)
    return response.responses[0].partition_responses[0]


def fetch_request(
    topic: str,
    offset: int = 0,
    *,
    partition: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    replica_id: int = -1,
    **fields: Any,
) -> FetchRequest:
    """A Fetch request for one partition."""
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[
            FetchRequest.Topic(
                topic=topic,
                partitions=[
                    FetchRequest.Topic.Partition(
                        partition=partition,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                    )
                ],
            )
        ],
        **fields,
    )


def fetch(client: WireClient, topic: str, offset: int = 0, version: int = 11, **fields: Any) -> Any:
    """Fetch and return the partition's answer."""
    response = client.call(fetch_request(topic, offset, **fields), version)
    assert response.error_code == 0
    return response.responses[0].partitions[0]


def values(answer: Any) -> list[bytes | None]:
    """The record values in a fetch's answer."""
    return [r.value for view in batches(answer.records or b"") for r in view.records()]


def code(answer: Any) -> int:
    """The error code in the answer to a Produce to one partition."""
    return int(answer.responses[0].partition_responses[0].error_code)
