"""Apache Flink with its Kafka connector counts exactly once although job and broker are killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.brokers import Broker
from compat_tests.jvms import JavaProgram, compiled, maven_jars
from compat_tests.word_counts import WORDS, Counts

WORDS_A_ROUND = 4_000


@pytest.fixture
def own_broker(new_broker: Callable[..., Broker]) -> Iterator[Broker]:
    """A broker that may be killed."""
    broker = new_broker()
    broker.start()
    yield broker
    broker.stop()


def newest_checkpoint(directory: Path) -> list[str]:
    """The newest complete checkpoint as an argument of the job; empty if there is none."""
    found = sorted(directory.glob("*/chk-*/_metadata"), key=lambda file: file.stat().st_mtime)
    return [found[-1].parent.as_uri()] if found else []


def send(bootstrap: str) -> Counter[str]:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    sent: Counter[str] = Counter()
    for number in range(WORDS_A_ROUND):
        word = WORDS[number * 7 % len(WORDS)]
        sent[word] += 1
        producer.produce("words", word, partition=number % 2)
    assert producer.flush(60) == 0
    return sent


def test_a_job_counts_every_word_once_when_it_or_the_broker_is_killed(
    own_broker: Broker, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    for made in admin.create_topics([NewTopic(t, 2, 1) for t in ("words", "counts")]).values():
        made.result(60)
    checkpoints = tmp_path / "checkpoints"

    def job() -> JavaProgram:
        return JavaProgram(
            tmp_path, "-Xmx768m", "FlinkCount", own_broker.bootstrap, "words", "counts",
            checkpoints.as_uri(), *newest_checkpoint(checkpoints),
            classes=compiled("FlinkCount", "flink"), libraries=maven_jars("flink"),
        )  # fmt: skip

    counts = Counts(own_broker.bootstrap, "counts", partitions=2)
    program = job()
    program.start()
    sent: Counter[str] = Counter()
    try:
        for dies in ("program", "broker", "program", "nothing"):
            before = sent.total()
            sent += send(own_broker.bootstrap)
            program.wait_until(lambda at=before: counts.read() > at, f"more than {before} counts")
            if dies == "program":
                program.kill()
                assert newest_checkpoint(checkpoints)
                program = job()
                program.start()
            elif dies == "broker":
                own_broker.kill()
                own_broker.start()
        program.wait_until(
            lambda: counts.read() > 0 and counts.last() >= sent, f"all {sent.total()}"
        )
    finally:
        program.kill()
        counts.close()
    for word, told in counts.told.items():
        assert told == list(range(1, sent[word] + 1)), word
