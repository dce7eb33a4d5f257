"""Tests Python frameworks: each reads a topic and writes every record to another topic.

`python -m compat_tests.frameworks_tried` creates an environment with the frameworks (some minutes
the first time), runs each, and prints the results. A framework that processes exactly once is
killed in the middle of its work, and run again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.brokers import KafkaBroker, OttlaBroker
from compat_tests.requirements import COMPAT_DIR

PACKAGES = ("quixstreams==3.28.1", "faststream[kafka,confluent]==0.7.8", "bytewax[kafka]==0.21.1",
            "pathway==0.33.0")  # fmt: skip
FOLDER = Path(__file__).parent / "frameworks"
RECORDS = 3_000
WAIT_SECONDS = 180
"""Long, because the group notices a killed member only after its session timeout of 45 s."""


@dataclass(frozen=True)
class Framework:
    """A program of `frameworks/`, with additional arguments.

    With `killed`, it must continue after kill -9 without a lost or duplicate record. With `keyed`,
    it counts the records of each key.
    """

    name: str
    program: str
    more: tuple[str, ...] = ()
    killed: bool = False
    keyed: bool = True


FRAMEWORKS = (
    Framework("Quix Streams, exactly once, killed", "with_quixstreams.py", ("{state}",), True),
    Framework("FastStream, aiokafka", "with_faststream.py", ("aiokafka",)),
    Framework("FastStream, confluent-kafka", "with_faststream.py", ("confluent",)),
    Framework("bytewax", "with_bytewax.py"),
    Framework("Pathway", "with_pathway.py", keyed=False),
)


def environment() -> Path:
    """The path of Python in an environment with the frameworks; creates the environment once."""
    place = COMPAT_DIR / "frameworks"
    listed = place / "packages.txt"
    if not listed.exists() or listed.read_text() != "\n".join(PACKAGES):
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
        subprocess.run([place / "bin" / "pip", "install", "-q", *PACKAGES], check=True)
        listed.write_text("\n".join(PACKAGES))
    return place / "bin" / "python"


def read_committed(bootstrap: str, topic: str, partitions: int) -> list[bytes]:
    """The committed values of a topic, up to its last stable offset."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "judge", "enable.partition.eof": True,
        "isolation.level": "read_committed",
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    values, ended = [], 0
    while ended < partitions:
        for message in consumer.consume(1000, 0.2):
            if message.error() is None:
                values.append(message.value())
            else:
                ended += 1
    consumer.close()
    return values


def attempt(python: Path, bootstrap: str, framework: Framework, number: int, place: Path) -> str:
    """Run a framework; return "ok", or what is wrong with its output."""
    source, sink, partitions = f"in-{number}", f"out-{number}", 3
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(t, partitions, 1) for t in (source, sink)]).values():
        made.result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(RECORDS):
        producer.produce(source, b"v%d" % n, b"k%d" % (n % 10))
    producer.flush(30)
    more = [word.format(state=place / "state") for word in framework.more]
    command = [python, FOLDER / framework.program, bootstrap, source, sink, *more]
    seen: Counter[bytes] = Counter()
    wanted = RECORDS * (2 if framework.killed else 1)
    deadline, kills = time.monotonic() + WAIT_SECONDS, int(framework.killed)
    with (place / f"{number}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=place)
        try:
            while len(seen) < wanted and time.monotonic() < deadline and process.poll() is None:
                time.sleep(0.2)
                values = read_committed(bootstrap, sink, partitions)
                seen = Counter(value.split(b" ")[0] for value in values)
                if kills and seen:
                    process.kill()
                    process.wait()
                    for n in range(RECORDS, 2 * RECORDS):
                        producer.produce(source, b"v%d" % n, b"k%d" % (n % 10))
                    producer.flush(30)
                    process = subprocess.Popen(command, stdout=log, stderr=log, cwd=place)
                    kills, seen = 0, Counter()
        finally:
            process.kill()
            process.wait()
    values = read_committed(bootstrap, sink, partitions)
    return judge(values, wanted, framework, (place / f"{number}.log").read_text()[-1500:])


def judge(values: Sequence[bytes], wanted: int, framework: Framework, log: str) -> str:
    """Return "ok" if every record is there once, with the right count of its key, or what is
    wrong."""
    seen = Counter(value.split(b" ")[0] for value in values)
    lost, doubled = wanted - len(seen), sum(seen.values()) - len(seen)
    if lost or doubled:
        return f"{lost} lost, {doubled} doubled\n{log}"
    if framework.keyed:
        counts = Counter(value.split(b" ")[1] for value in values)
        if counts != Counter(b"%d" % n for n in range(1, wanted // 10 + 1) for _ in range(10)):
            return "the counts of the keys are wrong"
    return "ok"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=("ottla", "kafka"), default="ottla")
    options = parser.parse_args()
    python, failed = environment(), 0
    with tempfile.TemporaryDirectory(prefix="ottla-frameworks-") as directory:
        place = Path(directory)
        kind = OttlaBroker if options.broker == "ottla" else KafkaBroker
        broker = kind(place / "broker")
        broker.start()
        try:
            for number, framework in enumerate(FRAMEWORKS):
                begin = time.monotonic()
                outcome = attempt(python, broker.bootstrap, framework, number, place)
                failed += outcome != "ok"
                print(f"{framework.name}: {outcome} ({time.monotonic() - begin:.0f} s)", flush=True)
        finally:
            broker.stop()
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
