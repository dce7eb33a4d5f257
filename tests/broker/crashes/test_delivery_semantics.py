"""The programs of `examples/delivery` keep their promises when they are killed at each of their
steps, and when they or the broker are killed at random.

At most once never writes a record twice, at least once never loses one, and exactly once does
neither. `OTTLA_CRASHES=100` kills 100 times at random; the default is a few times. Seeds are fixed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.crashes.programs import ROOT, KillableBroker, Program

CRASHES = int(os.environ.get("OTTLA_CRASHES", "2"))
BATCH = 20
SECONDS = 20
PARTITIONS = 2
pytestmark = pytest.mark.timeout(60 + 5 * CRASHES)

# The calls of one round of each program, in their order.
STEPS = {
    "at_most_once": ["consume", "commit", "produce", "flush"],
    "at_least_once": ["consume", "produce", "flush", "commit"],
    "exactly_once": [
        "init_transactions", "consume", "begin_transaction", "produce",
        "send_offsets_to_transaction", "commit_transaction",
    ],
}  # fmt: skip


class Pipe:
    """One program between a source and a sink."""

    def __init__(self, broker: KillableBroker, program: str) -> None:
        self.broker, self.name = broker, program
        self.source, self.sink = f"in-{program}", f"out-{program}"
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        made = admin.create_topics([NewTopic(t, PARTITIONS, 1) for t in (self.source, self.sink)])
        for each in made.values():
            each.result(SECONDS)
        self.filled = 0
        self.running: list[Program] = []

    def fill(self, records: int) -> None:
        """Add records to the source."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for number in range(self.filled, self.filled + records):
            producer.produce(self.source, b"Record %d" % number, partition=number % PARTITIONS)
        assert producer.flush(SECONDS) == 0
        self.filled += records

    def start(self, stop_at: str = "nothing:0") -> Program:
        """Start the program. It stops at the call `stop_at` of its client, by default at none."""
        command = (script(self.name), self.broker.bootstrap, self.source, self.sink)
        self.running.append(Program(stop_at, *command))
        return self.running[-1]

    def run_dry(self, program: Program) -> Program:
        """Wait until everything is read. If the program ends, start it again, as a service manager
        would. Returns the program that was started last."""
        while self.left():
            if program.ended():
                program = self.start()
        return program

    def left(self) -> int:
        """How many records of the source the program has not committed as read."""
        consumer = reader(self.broker, f"{self.source}-to-{self.sink}")
        wanted = [TopicPartition(self.source, index) for index in range(PARTITIONS)]
        at = sum(max(each.offset, 0) for each in consumer.committed(wanted, SECONDS))
        consumer.close()
        return self.filled - at

    def wait_for_records(self) -> None:
        """Wait until the sink has records, committed or not."""
        consumer = reader(self.broker, "watermarks", "read_uncommitted")
        deadline = time.monotonic() + SECONDS
        while not any(
            consumer.get_watermark_offsets(TopicPartition(self.sink, index), SECONDS)[1]
            for index in range(PARTITIONS)
        ):
            assert time.monotonic() < deadline, f"no record in {self.sink} within {SECONDS} s"
        consumer.close()

    def written(self, isolation: str = "read_committed") -> Counter[bytes]:
        """The records of the sink, with their counts."""
        consumer = reader(self.broker, "assigned-only", isolation)
        consumer.assign([TopicPartition(self.sink, index, 0) for index in range(PARTITIONS)])
        values: Counter[bytes] = Counter()
        ended = 0
        while ended < PARTITIONS:
            message = consumer.poll(SECONDS)
            assert message is not None, f"no end of {self.sink} within {SECONDS} s"
            if message.error() is None:
                values[message.value()] += 1
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended += 1
        consumer.close()
        return values


def reader(broker: KillableBroker, group: str, isolation: str = "read_committed") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )


@pytest.fixture(params=STEPS)
def pipe(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pipe]:
    """Each program with a broker of its own."""
    broker = KillableBroker(tmp_path / "data", "group.initial.rebalance.delay.ms=0")
    made = Pipe(broker, request.param)
    yield made
    for each in (*made.running, broker):
        each.kill()


def script(name: str) -> str:
    return str(ROOT / "examples" / "delivery" / f"{name}.py")


def check(pipe: Pipe) -> None:
    """Check the promise of this program, once everything is read."""
    written = pipe.written()
    expected = Counter(b"RECORD %d" % number for number in range(pipe.filled))
    assert not written.keys() - expected.keys(), "a record that nobody sent"
    if pipe.name != "at_least_once":
        assert max(written.values()) == 1, "a record is written twice"
    if pipe.name != "at_most_once":
        assert not expected - written, "a record is lost"


def test_a_program_killed_at_each_of_its_steps_keeps_its_promise(pipe: Pipe) -> None:
    steps = STEPS[pipe.name]
    pipe.fill(BATCH * (len(steps) + 1))
    for step in steps:
        program = pipe.start(f"{step}:1")
        assert program.stopped()
        if step == "commit_transaction":
            pipe.wait_for_records()         # a thread of the client sends them
        program.kill()
    pipe.run_dry(pipe.start()).end()
    check(pipe)
    # The kills had an effect: what the promise does not exclude has happened.
    committed, all_written = pipe.written(), pipe.written("read_uncommitted")
    match pipe.name:
        case "at_most_once":
            # The kill at `produce` loses a batch. The kill at `flush` loses unsent records.
            assert BATCH <= pipe.filled - committed.total() <= 2 * BATCH
        case "at_least_once":
            assert committed.total() > pipe.filled
        case "exactly_once":
            assert all_written.total() > committed.total()


def test_a_program_that_wakes_up_when_another_has_taken_over_is_fenced(pipe: Pipe) -> None:
    pipe.fill(3 * BATCH)
    zombie = pipe.start(f"{STEPS[pipe.name][-1]}:2")
    assert zombie.stopped()
    other = pipe.run_dry(pipe.start())
    zombie.let_call()
    assert zombie.status() != 0, "a zombie goes on as if nothing had happened"
    other.end()
    assert pipe.left() == 0, "a zombie's commit has taken the group back"
    check(pipe)


def test_kills_of_program_and_broker_at_random_break_no_promise(pipe: Pipe) -> None:
    chance = random.Random(pipe.name)
    for crash in range(CRASHES):
        pipe.fill(5 * BATCH)
        step = chance.choice(STEPS[pipe.name][1:])
        program = pipe.start(f"{step}:{chance.randrange(1, 4)}")
        assert program.stopped()
        if crash % 2 == 0:
            program.kill_within(chance.uniform(0, 0.02))
        else:
            pipe.broker.kill()
            program.let_call()
            pipe.broker.start()
            pipe.run_dry(program).kill()
    pipe.run_dry(pipe.start()).end()
    check(pipe)


def test_ctrl_c_ends_a_program_which_leaves_tombstones_as_they_are(pipe: Pipe) -> None:
    producer = Producer({"bootstrap.servers": pipe.broker.bootstrap})
    producer.produce(pipe.source, None, "deleted", partition=0)
    assert producer.flush(SECONDS) == 0
    pipe.filled = 1
    program = pipe.run_dry(pipe.start())
    program.interrupt()
    assert program.status() == 0
    assert pipe.written() == {None: 1}


def test_without_a_broker_a_program_ends_soon_with_one_line() -> None:
    programs = {
        name: subprocess.Popen(
            [sys.executable, script(name), "127.0.0.1:1", "in", "out"], stderr=subprocess.PIPE,
            text=True)
        for name in STEPS
    }
    for name, program in programs.items():
        _, said = program.communicate(timeout=SECONDS)
        lines = [line for line in said.splitlines() if "|FAIL|" not in line]
        assert lines == [f"{name}.py: Failed to get metadata: Local: Broker transport failure"]
        assert program.returncode == 1
