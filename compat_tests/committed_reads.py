"""Reads topics as a consumer of committed records does."""

from __future__ import annotations

from confluent_kafka import (
    Consumer,
    TopicPartition,
)

SECONDS = 60


def consumer(bootstrap: str, group: str) -> Consumer:
    """A consumer of committed records from the beginning."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )


def committed(bootstrap: str, topic: str, partitions: int = 1) -> list[bytes]:
    """The values of all committed records up to the last stable offsets."""
    reader = consumer(bootstrap, "assigned-only")
    reader.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values, ended = [], 0
    while ended < partitions:
        message = reader.poll(SECONDS)
        assert message is not None, f"nothing of {topic} within {SECONDS} s"
        if message.error():
            ended += 1
        else:
            values.append(message.value())
    reader.close()
    return values
