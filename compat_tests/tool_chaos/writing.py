"""Scenes of commands that write: no reported record is lost, and no record is written twice."""

from __future__ import annotations

import re
import shlex

from compat_tests.flights import Lines
from compat_tests.readers import read_with_confluent_kafka
from compat_tests.tool_chaos.reading import commit_at, committed_at
from compat_tests.tool_chaos.running import PROGRAM, Outcome
from compat_tests.tool_chaos.seed import ALL, Seed
from compat_tests.tool_chaos.world import EACH, PARTITIONS, SOURCE, TARGET, text

COUNT = 20_000
SIGNALS = ("term", "int", "term twice", "kill a broker, then term")
SENT = re.compile(r"(\d+) records? sent")


def values(lines: Lines) -> dict[int, list[bytes]]:
    """The values in each partition, from lines in the format of flights.py."""
    return {at: [one.split(b"\t")[-1] for one in found] for at, found in lines.items()}


def check_in_order(written: list[bytes], given: list[bytes], outcome: Outcome) -> None:
    """Check that `written` has values of `given`, in order and none twice, and at least as many as
    the command reported. If the command ended with status 0 and no message, `written` must have all
    values. If a signal ended it without a message, `written` must be the beginning of `given`."""
    number = {value: at for at, value in enumerate(given)}
    at = [number[value] for value in written]
    assert len(set(at)) == len(at), f"{len(at) - len(set(at))} records were written twice"
    assert at == sorted(at), "records are out of order"
    told = SENT.search(outcome.err)
    if told is not None:
        assert len(at) >= int(told[1]), f"{len(at)} are there, it said {told[0]}"
    if outcome.status == 0 and not outcome.err.strip():
        assert len(at) == len(given), f"status 0, and {len(given) - len(at)} records are missing"
    elif outcome.status in (143, 130, -9, -15, -2) and not outcome.err.strip():
        assert at == list(range(len(at))), "records are missing in the middle"


def lines(seed: Seed) -> None:
    """A producer writes the lines of its standard input to one partition."""
    topic = seed.name("lines")
    seed.world.create(topic)
    given = [text(n) for n in range(COUNT)]
    words = seed.chance.choice([
        ["produce", topic], ["produce", topic, "--compression", "lz4"],
        ["kafka-console-producer", "--topic", topic, "--bootstrap-server", seed.world.bootstrap],
        ["kcat", "-P", "-t", topic, "-b", seed.world.bootstrap],
    ])  # fmt: skip
    data = b"".join(one + b"\n" for one in given)
    event = seed.event(ALL, len(data))
    outcome = seed.run(words, event, data)
    if words[0] == "kcat" and event.name in SIGNALS:
        outcome.status = outcome.status or 143          # kcat itself ends with 0 after a signal
    found = values(read_with_confluent_kafka(seed.world.bootstrap, topic)).get(0, [])
    check_in_order(found, given, outcome)


def pipeline(seed: Seed) -> None:
    """`consume | produce` copies all partitions of the source."""
    topic = seed.name("copy")
    seed.world.create(topic, PARTITIONS)
    ottla = shlex.join(PROGRAM)
    line = (f"{ottla} consume {SOURCE} --exit --output jsonl |"
            f" {ottla} produce {topic} --input jsonl")  # fmt: skip
    outcome = seed.run(["bash", "-o", "pipefail", "-c", line], seed.event())
    found = values(read_with_confluent_kafka(seed.world.bootstrap, topic))
    for partition in range(PARTITIONS):
        given = [text(partition, offset) for offset in range(EACH)]
        check_in_order(found.get(partition, []), given, outcome)


def performance(seed: Seed) -> None:
    """If `perf` ends with status 0, it has written, or read, the requested number of records."""
    topic, count = seed.name("perf"), seed.chance.choice((500, 20_000))
    seed.world.create(topic, 2)
    words = ["perf", "produce", topic, "--records", str(count), "--size", "200"]
    if seed.chance.random() < 0.4:
        words = ["kafka-producer-perf-test", "--topic", topic, "--num-records", str(count),
                 "--record-size", "200", "--throughput", "-1", "--bootstrap-server",
                 seed.world.bootstrap]  # fmt: skip
    outcome = seed.run(words, seed.event())
    found = read_with_confluent_kafka(seed.world.bootstrap, topic)
    there = sum(map(len, found.values()))
    if outcome.status == 0 and not outcome.err.strip():
        assert there >= count, f"status 0 with {there} of {count} records"
    read = seed.run(["perf", "consume", topic, "--records", str(max(there, 1)), "-o", "json"],
                    seed.event())  # fmt: skip
    if read.status == 0 and there and "has only" not in read.err:
        assert f'"records": {there}'.encode() in read.out, read.out


def mirror(seed: Seed) -> None:
    """A mirror copies every record once, and the committed offsets, although the mirror and brokers
    of both clusters are killed."""
    group, prefix = seed.name("pilots"), seed.name("m") + "-"
    offset = seed.chance.randrange(1, EACH)
    commit_at(seed.world.bootstrap, group, offset)
    words = ["mirror", "--from", seed.world.bootstrap, "--to", seed.world.target.bootstrap,
             "--topics", SOURCE, "--groups", group, "--prefix", prefix, "--once", "--report",
             "0.5"]  # fmt: skip
    for _ in range(seed.chance.randint(1, 3)):
        seed.run(words, seed.event(also=(TARGET, TARGET)))
    seed.run(words)
    found = values(read_with_confluent_kafka(seed.world.target.bootstrap, prefix + SOURCE))
    for partition in range(PARTITIONS):
        given = [text(partition, one) for one in range(EACH)]
        there = found.get(partition, [])
        assert there == given, (
            f"partition {partition}: {len(there)} records of {EACH}, {len(set(there))} different")
    carried = committed_at(seed.world.target.bootstrap, group, prefix + SOURCE)
    assert carried == dict.fromkeys(range(PARTITIONS), offset), carried


