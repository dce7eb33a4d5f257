"""Topics for tests of a broker: the one `create` that they share."""

from __future__ import annotations

from ottla.wire.messages import CreateTopicsRequest
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
