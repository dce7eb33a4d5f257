"""Batches sent and fetched with the package's own codec: for perf, and unusual records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.client.errors import check
from ottla.tools.admin.topics import leaders
from ottla.wire.messages import FetchRequest, ProduceRequest
from ottla.wire.records import Record, build_batch

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster

Headers = Sequence[tuple[str, bytes | None]]
PRODUCE_MAX, FETCH_MAX = 12, 12
"""The last versions that name topics instead of their ids."""


def produce_request(
    topic: str,
    partition: int,
    batch: bytes,
    *,
    acks: int = -1,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
) -> Any:
    """A Produce request with one batch."""
    data = ProduceRequest.TopicData
    part = data.PartitionData(index=partition, records=batch)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[data(name=topic, partition_data=[part])],
    )


def check_produced(response: Any) -> int:
    """The base offset of the one batch; raises Refused if it was rejected."""
    [topic] = response.responses
    [part] = topic.partition_responses
    check(part.error_code, part.error_message, f"{topic.name}-{part.index}")
    return int(part.base_offset)


def fetch_request(
    topic: str,
    offsets: Sequence[tuple[int, int]],
    *,
    partition_bytes: int = 1 << 20,
    wait_ms: int = 500,
    min_bytes: int = 1,
    committed: bool = False,
) -> Any:
    """A Fetch request without a session for partitions and their offsets."""
    kind = FetchRequest.Topic
    parts = [
        kind.Partition(partition=index, fetch_offset=offset, partition_max_bytes=partition_bytes)
        for index, offset in offsets
    ]
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=64 << 20,
        isolation_level=1 if committed else 0,
        session_epoch=-1,
        topics=[kind(topic=topic, partitions=parts)],
    )


def sendable(key: bytes | None, value: bytes | None, headers: Headers) -> bool:
    """Whether kafka-python can send such a record: it needs a key or a value, no null headers."""
    return not (key is None and value is None) and all(one is not None for _, one in headers)


def send_one(cluster: Cluster, topic: str, record: Record, partition: int | None) -> int:
    """Send one record by itself; returns its offset once every in-sync replica has it."""
    index = partition or 0
    batch = build_batch([record])

    def ask() -> int:
        leader = leaders(cluster, [topic])[topic, index]
        request = produce_request(topic, index, batch)
        return check_produced(cluster.node(leader).call(request, at_most=PRODUCE_MAX))

    return int(cluster.patiently(ask))
