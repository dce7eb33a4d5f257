"""Our reading commands and stock clients are members of one group. A killed command has printed all
that it committed, the next member gets the rest, and no record is lost or read twice when members
join and leave."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path
from termios import FIONREAD
from typing import IO

import pytest
from confluent_kafka import Consumer, TopicPartition

from compat_tests.brokers import Broker
from compat_tests.group_members import (
    PARTITIONS,
    PROTOCOLS,
    RECORDS,
    Member,
    members,
    produce,
    wait_for,
)
from compat_tests.kafka_tools import KafkaTools
from tests.tools.kafka_names.comparison import run

READERS = {
    "consume": "consume {topic} -G {topic} -o beginning -f '%p %o\\n' -X",
    "console": "kafka-console-consumer --bootstrap-server {address} --topic {topic} --group {topic}"
    " --from-beginning --formatter-property print.partition=true"
    " --formatter-property print.offset=true --formatter-property print.value=false"
    " --command-property",
    "kcat": "kcat -b {address} -q -G {topic} -f '%p %o\\n' {topic}"
    " -X auto.offset.reset=earliest -X",
}
"""Commands that print the partition and offset of each record. Each command ends with an option
that takes a client setting, which a test appends."""
ENDED = {"consume": 143, "console": 143, "kcat": 0}
"""The exit status after SIGTERM."""
MANY = 40_000
"""So many records that a pipe cannot hold their printed lines."""


@contextmanager
def reading(
    broker: Broker, name: str, topic: str, setting: str, out: IO[bytes] | int
) -> Iterator[subprocess.Popen[bytes]]:
    """Run one of our readers in another process, as a member of the group named like the topic."""
    line = f"{READERS[name]} {setting}".format(topic=topic, address=broker.bootstrap)
    with subprocess.Popen(
        [sys.executable, "-m", "ottla", *shlex.split(line)], stdout=out,
        env=os.environ | {"OTTLA_BOOTSTRAP_SERVERS": broker.bootstrap, "HOME": "/nonexistent"},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def places(text: str) -> list[tuple[int, int]]:
    """Partition and offset of each record whose line was printed completely."""
    return [
        (int(one), int(other)) for one, other in
        re.findall(r"^\D*(\d+)\D+(\d+)\n", text, re.MULTILINE)
    ]


def committed(broker: Broker, topic: str, partitions: int) -> list[int]:
    """The committed offset of each partition in the group named like the topic; negative if there
    is none."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic})
    wanted = [TopicPartition(topic, number) for number in range(partitions)]
    found = consumer.committed(wanted, timeout=60)
    consumer.close()
    return [one.offset for one in found]


def values(printed: str) -> list[int]:
    """The values that a verifiable consumer read, according to its output."""
    events = map(json.loads, filter(None, printed.splitlines()))
    return [int(event["value"]) for event in events if event["name"] == "record_data"]


def test_kafka_verifiable_consumer_leaves_to_kafkas_what_it_has_not_read(
    broker: Broker, new_topic: Callable[..., str], tools: KafkaTools
) -> None:
    """Kafka's consumer would start at the end of a partition without a committed offset, so ours
    must commit an offset for each partition."""
    topic = new_topic("verifiable-rest", partitions=PARTITIONS)
    produce(broker, topic)
    line = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--group-id", topic,
            "--verbose", "--max-messages"]  # fmt: skip
    first, count = RECORDS // PARTITIONS, RECORDS - RECORDS // PARTITIONS
    ours = run(["kafka-verifiable-consumer", *line, str(first)], b"")
    read = values(ours.stdout)
    offsets = committed(broker, topic, PARTITIONS)
    assert ours.status == 0 and len(read) == first == sum(offsets) and min(offsets) >= 0, offsets
    theirs = tools.run(
        "kafka-verifiable-consumer", [*line, str(count), "--reset-policy", "latest"])
    assert sorted(read + values(theirs.stdout)) == [*range(RECORDS)]


@pytest.mark.parametrize("name", [*READERS])
def test_a_reader_that_is_killed_has_written_what_it_committed(
    broker: Broker, new_topic: Callable[..., str], name: str
) -> None:
    topic = new_topic(f"killed-{name}", partitions=PARTITIONS)
    produce(broker, topic, MANY)
    with reading(
        broker, name, topic, "auto.commit.interval.ms=1", subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        written = b"".join(process.stdout.readline() for _ in range(MANY // 2))
        seen = [-1]

        def waits() -> bool:
            """Whether the pipe no longer fills: it is full, and the reader's next write blocks."""
            seen.append(int.from_bytes(ioctl(process.stdout, FIONREAD, bytes(4)), sys.byteorder))
            return seen[-1] == seen[-2]

        wait_for(waits)
        process.send_signal(signal.SIGKILL)
        written += process.stdout.read()
    read, offsets = places(written.decode()), committed(broker, topic, PARTITIONS)
    assert len(read) < MANY and max(offsets) > 0, "it was killed before the end"
    for partition, offset in enumerate(offsets):
        here = [at for of, at in read if of == partition]
        assert here == [*range(len(here))] and offset <= len(here)


@pytest.mark.parametrize("name", [*READERS])
def test_no_record_comes_twice_or_is_lost_when_a_stock_member_joins_and_leaves(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path, name: str
) -> None:
    """Our reader commits only when it loses its partitions or ends, because its auto-commit
    interval is an hour."""
    topic = new_topic(f"joined-{name}", partitions=PARTITIONS)
    other = Member(broker, topic, topic, **PROTOCOLS["eager"])
    written, sent = tmp_path / "written", 0

    def send(count: int) -> None:
        nonlocal sent
        produce(broker, topic, count)
        sent += count

    def joined() -> bool:
        send(PARTITIONS)                # records arrive while the group rebalances
        return bool(other.owned)

    with written.open("wb") as out, reading(
        broker, name, topic, "auto.commit.interval.ms=3600000", out
    ) as process:
        send(RECORDS)
        wait_for(lambda: len(places(written.read_text())) == sent)
        with members(other):
            wait_for(joined)
            send(RECORDS)
        wait_for(lambda: len(places(written.read_text())) + len(other.read) >= sent)
        process.terminate()
        assert process.wait(60) == ENDED[name]
    read = places(written.read_text()) + other.read
    expected = [(number % PARTITIONS, number // PARTITIONS) for number in range(sent)]
    assert sorted(read) == sorted(expected)
    assert len(other.read) > 0 and sum(committed(broker, topic, PARTITIONS)) == sent


@pytest.mark.parametrize(("name", "protocol"), [
    ("consume", "eager"), ("consume", "cooperative"), ("kcat", "cooperative"),
    ("console", "kip848"),
])  # fmt: skip
def test_no_record_comes_twice_when_a_reader_ends_during_a_rebalance(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path, name: str, protocol: str
) -> None:
    """With a cooperative assignor, the ending reader keeps partitions during the rebalance, and its
    commit is refused at first."""
    topic = new_topic(f"ends-{name}-{protocol}", partitions=PARTITIONS)
    produce(broker, topic)
    settings = PROTOCOLS[protocol] | {"auto.commit.interval.ms": 3600000}
    setting = f" {READERS[name].split()[-1]} ".join(f"{key}={settings[key]}" for key in settings)
    first, other = tmp_path / "first", tmp_path / "other"
    with first.open("wb") as out, reading(broker, name, topic, setting, out) as ends:
        wait_for(lambda: len(places(first.read_text())) == RECORDS)
        with other.open("wb") as out, reading(broker, name, topic, setting, out) as stays:
            wait_for(lambda: max(committed(broker, topic, PARTITIONS)) > 0)
            produce(broker, topic)          # the first reader has just given up partitions
            wait_for(lambda: len(places(first.read_text())) > RECORDS or protocol == "eager")
            ends.terminate()
            assert ends.wait(60) == ENDED[name]
            wait_for(lambda: len((first.read_text() + other.read_text()).split()) >= 4 * RECORDS)
            stays.terminate()
            assert stays.wait(60) == ENDED[name]
    expected = [(number % PARTITIONS, number // PARTITIONS) for number in range(2 * RECORDS)]
    assert sorted(places(first.read_text()) + places(other.read_text())) == sorted(expected)
    assert sum(committed(broker, topic, PARTITIONS)) == 2 * RECORDS
