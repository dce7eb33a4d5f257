"""The words for an application that counts words (Kafka Streams or Flink), and its counts."""

from __future__ import annotations

from collections import Counter

from confluent_kafka import Consumer, TopicPartition

WORDS = [f"word{number}" for number in range(20)]


class Counts:
    """The application's output so far, as a read_committed reader sees it."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.told: dict[str, list[int]] = {word: [] for word in WORDS}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"reader-of-{topic}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])

    def read(self) -> int:
        """Read the counts that are available; returns how many have been read so far."""
        for message in self._consumer.consume(10_000, timeout=0.2):
            assert message.error() is None, message.error()
            self.told[message.key().decode()].append(int(message.value()))
        return sum(len(counts) for counts in self.told.values())

    def last(self) -> Counter[str]:
        """The highest count of every word so far."""
        return Counter({word: max(counts, default=0) for word, counts in self.told.items()})

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()
