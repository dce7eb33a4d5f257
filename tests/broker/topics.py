"""Topics for tests of a broker: `create`, which all of them use, and what Metadata reports."""

from __future__ import annotations

from typing import Any

from ottla.wire.messages import (
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    ListOffsetsRequest,
    MetadataRequest,
)
from tests.broker.running import WireClient


def create(client: WireClient, name: str, partitions: int = 1, **configs: object) -> str:
    """Create a topic with one replica and settings such as `retention_ms=5`; returns its name."""
    topic = CreateTopicsRequest.Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            CreateTopicsRequest.Topic.Config(name=key.replace("_", "."), value=str(value))
            for key, value in configs.items()
        ],
    )
    answer = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
    assert answer.topics[0].error_code == 0, answer.topics[0].error_message
    return name


def metadata(client: WireClient, topic: str) -> dict[int, Any]:
    """A topic's partitions as Metadata reports them, by their indexes."""
    asked = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)])
    answer = client.call(asked, 9).topics[0]
    return {partition.partition_index: partition for partition in answer.partitions}


def delete(client: WireClient, topic: str) -> None:
    answer = client.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 4)
    assert answer.responses[0].error_code == 0


def delete_below(client: WireClient, topic: str, offset: int, version: int = 2) -> Any:
    item = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.Topic(name=topic, partitions=[item])], timeout_ms=10_000
    )
    return client.call(request, version).topics[0].partitions[0]


def earliest(client: WireClient, topic: str) -> int:
    item = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=-2)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.Topic(name=topic, partitions=[item])]
    )
    return int(client.call(request, 5).topics[0].partitions[0].offset)
