"""Kafka Streams' word count, killed and restarted: through a repartition topic and a changelog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from compat_tests.brokers import Broker
from compat_tests.jvms import JavaProgram, compiled

pytestmark = pytest.mark.timeout(180)
WORDS = [f"word{number}" for number in range(20)]
LINES_A_ROUND = 1_000
ROUNDS = 3


class Counts:
    """What the application has told so far, as a reader of committed records sees it."""

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
        """Take what there is; how many counts there are by now."""
        for message in self._consumer.consume(10_000, timeout=0.2):
            assert message.error() is None, message.error()
            self.told[message.key().decode()].append(int(message.value()))
        return sum(len(counts) for counts in self.told.values())

    def last(self) -> Counter[str]:
        """The last count of every word."""
        return Counter({word: max(counts, default=0) for word, counts in self.told.items()})

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()


@pytest.fixture
def word_count(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> Iterator[Callable[[str], tuple[JavaProgram, str, Counts]]]:
    """Starts the application: `program, input_topic, counts = word_count("exactly_once_v2")`."""
    begun: list[tuple[JavaProgram, Counts]] = []

    def begin(guarantee: str) -> tuple[JavaProgram, str, Counts]:
        lines, counted = new_topic("lines", partitions=2), new_topic("counted", partitions=2)
        arguments = (broker.bootstrap, f"app-{lines}", lines, counted, guarantee)
        program = JavaProgram(
            tmp_path,
            "WordCount",
            *arguments,
            str(tmp_path / "state"),
            classes=compiled("WordCount"),
        )
        counts = Counts(broker.bootstrap, counted, partitions=2)
        begun.append((program, counts))
        program.start()
        return program, lines, counts

    yield begin
    for program, counts in begun:
        program.kill()
        counts.close()


def send_lines(bootstrap: str, topic: str) -> Counter[str]:
    """Every word LINES_A_ROUND / 10 times, four to a line; what was sent."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    sent: Counter[str] = Counter()
    for number in range(LINES_A_ROUND):
        words = [WORDS[(number + step) % len(WORDS)] for step in (0, 3, 7, 7)]
        sent.update(words)
        producer.produce(topic, " ".join(words), partition=number % 2)
    assert producer.flush(30) == 0
    return sent


def count_through_kills(
    bootstrap: str, program: JavaProgram, lines: str, counts: Counts
) -> Counter[str]:
    """Kill the application in the middle of each round but the last; what was sent in all."""
    sent: Counter[str] = Counter()
    for number in range(ROUNDS):
        before = sent.total()
        sent += send_lines(bootstrap, lines)
        middle = (before + sent.total()) // 2
        program.wait_until(lambda at=middle: counts.read() >= at, f"{middle} counts")
        if number < ROUNDS - 1:
            program.kill()
            program.start()
    program.wait_until(lambda: counts.read() > 0 and counts.last() >= sent, f"all {sent.total()}")
    return sent


def test_at_least_once_loses_no_word_when_it_is_killed(
    broker: Broker, word_count: Callable[[str], tuple[JavaProgram, str, Counts]]
) -> None:
    program, lines, counts = word_count("at_least_once")
    sent = count_through_kills(broker.bootstrap, program, lines, counts)
    assert counts.last() >= sent  # more than was sent is what the guarantee allows


def test_exactly_once_counts_every_word_once_when_it_is_killed(
    broker: Broker, word_count: Callable[[str], tuple[JavaProgram, str, Counts]]
) -> None:
    program, lines, counts = word_count("exactly_once_v2")
    sent = count_through_kills(broker.bootstrap, program, lines, counts)
    for word, told in counts.told.items():
        assert told == list(range(1, sent[word] + 1)), word
