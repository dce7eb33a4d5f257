"""Kafka Streams counts words, with a repartition topic and a changelog, although the application or
its broker is killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.brokers import Broker
from compat_tests.jvms import JavaProgram, compiled
from compat_tests.word_counts import WORDS, Counts

LINES_A_ROUND = 1_000


@pytest.fixture(scope="module")
def own_broker(new_broker: Callable[..., Broker]) -> Iterator[Broker]:
    """A broker that may be killed."""
    broker = new_broker()
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def word_count(
    own_broker: Broker, tmp_path: Path
) -> Iterator[Callable[[str], tuple[JavaProgram, str, Counts]]]:
    """A function that creates topics and starts the application:
    `program, input_topic, counts = word_count("exactly_once_v2")`."""
    begun: list[tuple[JavaProgram, Counts]] = []

    def begin(guarantee: str) -> tuple[JavaProgram, str, Counts]:
        lines, counted = f"lines-{guarantee}", f"counted-{guarantee}"
        admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
        for made in admin.create_topics([NewTopic(t, 2, -1) for t in (lines, counted)]).values():
            made.result(60)
        arguments = (own_broker.bootstrap, f"app-{guarantee}", lines, counted, guarantee)
        program = JavaProgram(
            tmp_path,
            "WordCount",
            *arguments,
            str(tmp_path / "state"),
            classes=compiled("WordCount"),
        )
        counts = Counts(own_broker.bootstrap, counted, partitions=2)
        begun.append((program, counts))
        program.start()
        return program, lines, counts

    yield begin
    for program, counts in begun:
        program.kill()
        counts.close()


def send_lines(bootstrap: str, topic: str) -> Counter[str]:
    """Send LINES_A_ROUND lines of four words; return how often each word was sent."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    sent: Counter[str] = Counter()
    for number in range(LINES_A_ROUND):
        words = [WORDS[(number + step) % len(WORDS)] for step in (0, 3, 7, 7)]
        sent.update(words)
        producer.produce(topic, " ".join(words), partition=number % 2)
    assert producer.flush(60) == 0
    return sent


def count_through_kills(
    broker: Broker, program: JavaProgram, lines: str, counts: Counts, *killed: str
) -> Counter[str]:
    """Send lines in rounds, and kill the application or the broker, as `killed` says, in the middle
    of each round except the last. Return how often each word was sent."""
    sent: Counter[str] = Counter()
    for dies in (*killed, "nothing"):
        before = sent.total()
        sent += send_lines(broker.bootstrap, lines)
        middle = (before + sent.total()) // 2
        program.wait_until(lambda at=middle: counts.read() >= at, f"{middle} counts")
        if dies == "program":
            program.kill()
            program.start()
        elif dies == "broker":
            broker.kill()
            broker.start()
    program.wait_until(lambda: counts.read() > 0 and counts.last() >= sent, f"all {sent.total()}")
    return sent


def test_at_least_once_loses_no_word_when_it_or_the_broker_is_killed(
    own_broker: Broker, word_count: Callable[[str], tuple[JavaProgram, str, Counts]]
) -> None:
    program, lines, counts = word_count("at_least_once")
    sent = count_through_kills(own_broker, program, lines, counts, "program", "broker")
    assert counts.last() >= sent  # the guarantee allows counts that are too high


def test_exactly_once_counts_every_word_once_when_it_or_the_broker_is_killed(
    own_broker: Broker, word_count: Callable[[str], tuple[JavaProgram, str, Counts]]
) -> None:
    program, lines, counts = word_count("exactly_once_v2")
    killed = ("program", "broker", "program")
    sent = count_through_kills(own_broker, program, lines, counts, *killed)
    for word, told in counts.told.items():
        assert told == list(range(1, sent[word] + 1)), word
