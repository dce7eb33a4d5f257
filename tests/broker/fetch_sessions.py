"""Fetches in a session (KIP-227), and what they answered."""

from __future__ import annotations

from typing import Any

from ottla.wire.messages import FetchRequest
from tests.broker.produce_fetch import fetch_request, values
from tests.broker.running import WireClient


def session_fetch(
    client: WireClient,
    topic: str,
    session_id: int,
    epoch: int,
    offsets: dict[int, int],
    **fields: Any,
) -> Any:
    """A fetch in a session: `offsets` are the partitions that the request names."""
    request = fetch_request(topic, session_id=session_id, session_epoch=epoch, **fields)
    request.topics[0].partitions = [
        FetchRequest.Topic.Partition(
            partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        for partition, offset in offsets.items()
    ]
    if not offsets:
        request.topics = []
    return client.call(request, 11)


def told(response: Any) -> dict[int, list[bytes | None]]:
    return {
        answer.partition_index: values(answer)
        for topic in response.responses
        for answer in topic.partitions
    }
