"""Scenes of commands that read: no record is lost, and none is committed before it is printed."""

from __future__ import annotations

from collections import Counter
from contextlib import closing

from confluent_kafka import Consumer, TopicPartition

from compat_tests.librdkafka_answers import answer_of
from compat_tests.tool_chaos.running import Outcome
from compat_tests.tool_chaos.seed import ALL, BROKERS, PROCESS, Seed
from compat_tests.tool_chaos.world import EACH, PARTITIONS, RECORD_BYTES, SOURCE

SIZE = PARTITIONS * EACH * (RECORD_BYTES + 1)
PIPE_BYTES = 1 << 16
QUICK = ["session.timeout.ms=3000", "heartbeat.interval.ms=500", "auto.commit.interval.ms=300"]
"""With these settings, the group notices a killed member soon, and offsets are committed while a
command reads."""


def plain(seed: Seed) -> None:
    """Without a group, a command prints each partition from its beginning on; with status 0, it
    prints all records."""
    words = seed.chance.choice([
        ["consume", SOURCE, "--exit"],
        ["consume", SOURCE, "--exit", "--format", "%v\n"],
        ["kcat", "-C", "-q", "-e", "-o", "beginning", "-t", SOURCE],
        ["kafka-console-consumer", "--topic", SOURCE, "--from-beginning", "--max-messages",
         str(PARTITIONS * EACH), "--bootstrap-server", seed.world.bootstrap],
    ])  # fmt: skip
    if words[0] == "kcat":
        words += ["-b", seed.world.bootstrap]
    names = (*PROCESS[:2], "kill", *BROKERS, "close the reader", "nothing")
    outcome = seed.run(words, seed.event(names, SIZE))
    check_prefixes(outcome)


def check_prefixes(outcome: Outcome) -> None:
    """Check that each partition was printed in order from its beginning on, without duplicates.
    After status 0, all records must have been printed, unless the command has a name of Kafka's.
    """
    nexts = Counter[int]()
    for partition, offset in map(place_of, outcome.lines):
        expected = nexts[partition]
        assert offset == expected, f"partition {partition}: {offset} instead of {expected}"
        nexts[partition] += 1
    if outcome.status == 0 and not outcome.words[0].startswith("kafka-"):
        assert nexts == dict.fromkeys(range(PARTITIONS), EACH), f"status 0 with {nexts}"


def place_of(line: bytes) -> tuple[int, int]:
    """The partition and offset that are written in a record's value."""
    partition, offset = line.rstrip(b".").split()
    return int(partition), int(offset)


def committed_at(bootstrap: str, group: str, topic: str = SOURCE) -> dict[int, int]:
    """The offsets that a group has committed for the source topic or a copy of it."""
    with closing(client_of(bootstrap, group)) as client:
        asked = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        found = answer_of(lambda: client.committed(asked, timeout=30))
    return {one.partition: one.offset for one in found if one.offset >= 0}


def commit_at(bootstrap: str, group: str, offset: int) -> None:
    """Commit an offset of every partition of the source."""
    with closing(client_of(bootstrap, group)) as client:
        wanted = [TopicPartition(SOURCE, partition, offset) for partition in range(PARTITIONS)]
        answer_of(lambda: client.commit(offsets=wanted, asynchronous=False))


def client_of(bootstrap: str, group: str) -> Consumer:
    """A consumer that never joins its group. librdkafka's admin client cannot be used: it aborts
    the process if the coordinator goes away during a request for offsets (a known fault)."""
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})


def member(seed: Seed, group: str) -> list[str]:
    """A command that joins a group, reads, and ends when nothing is left to read."""
    settings = list(QUICK)
    if seed.chance.random() < 0.3:
        settings.append("partition.assignment.strategy=cooperative-sticky")
    if seed.chance.random() < 0.7:
        return ["consume", SOURCE, "--group", group, "--exit", "--offset", "beginning",
                *(word for one in settings for word in ("-X", one))]  # fmt: skip
    return ["kafka-console-consumer", "--topic", SOURCE, "--from-beginning", "--group", group,
            "--timeout-ms", "8000", "--bootstrap-server", seed.world.bootstrap,
            *(word for one in settings for word in ("--command-property", one))]  # fmt: skip


def group(seed: Seed) -> None:
    """Members run one after the other, and an event happens during each run except the last. No
    record is lost, and none is committed before it was printed. None is printed twice, unless a
    member got SIGKILL or a second SIGTERM, or a broker was away."""
    name, words = "", []
    name = seed.name("readers")
    words = member(seed, name)
    seen = Counter[tuple[int, int]]()
    in_order = True
    for left in range(seed.chance.randint(1, 3), -1, -1):
        event = seed.event(ALL, SIZE) if left else None
        outcome = seed.run(words, event)
        seen.update(map(place_of, outcome.lines))
        in_order &= event is None or not (event.kills or event.hits_brokers)
        for partition, offset in committed_at(seed.world.bootstrap, name).items():
            missing = [n for n in range(offset) if (partition, n) not in seen]
            assert not missing, (
                f"committed {offset} of partition {partition}, never written: {missing[:5]}"
                f" and more, {len(missing)} of them")
        assert outcome.status or left or outcome.words[0] != "consume" or (
            len(seen) == PARTITIONS * EACH), f"status 0 with {len(seen)} records"
    assert len(seen) == PARTITIONS * EACH, f"{PARTITIONS * EACH - len(seen)} records are lost"
    twice = [place for place, count in seen.items() if count > 1]
    assert not (in_order and twice), f"{len(twice)} records came twice, {twice[:5]}"


def closed_reader(seed: Seed) -> None:
    """If the reader of the pipe goes away, only records that were written to the pipe are
    committed."""
    name = seed.name("closed")
    outcome = seed.run(member(seed, name), seed.event(("close the reader",), SIZE))
    read = sum(len(line) + 1 for line in outcome.lines)
    done = sum(committed_at(seed.world.bootstrap, name).values())
    assert done * (RECORD_BYTES + 1) <= read + PIPE_BYTES + (1 << 14), (
        f"{done} records are committed, of {read} bytes that were read")


def two_members(seed: Seed) -> None:
    """Two members run at the same time, and one of them gets a signal. With a third that follows,
    they read every record, and none twice unless the signal killed the member."""
    name = seed.name("pair")
    words = member(seed, name)
    other = seed.start(words)
    try:
        event = seed.event(PROCESS, SIZE)
        outcome = seed.run(words, event)
        other.read_rest()
        rest = other.wait(90)
    finally:
        other.kill()
    seen = Counter(map(place_of, [*outcome.lines, *rest.lines]))
    last = seed.run(words)
    seen.update(map(place_of, last.lines))
    assert len(seen) == PARTITIONS * EACH, f"{PARTITIONS * EACH - len(seen)} records are lost"
    twice = [place for place, count in seen.items() if count > 1]
    assert event.kills or not twice, f"{len(twice)} records came twice, {twice[:5]}"
