"""A reader of a group commits only records that it has written, however the reader is ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.tools.cli.ottla_command import Ottla

READERS = {
    "consume": "consume {topic} --group {group} --offset beginning",
    "console": "kafka-console-consumer --bootstrap-server {address} --topic {topic} --group {group}"
    " --from-beginning",
    "kcat": "kcat -b {address} -q -G {group} -o beginning {topic}",
}
STATUS = {
    signal.SIGTERM: {"consume": 143, "console": 143, "kcat": 0},
    signal.SIGINT: {"consume": 130, "console": 130, "kcat": 0},
    signal.SIGKILL: dict.fromkeys(READERS, -9),
}


class Running:
    """A reader in a process of its own, with its output in a pipe."""

    def __init__(self, ottla: Ottla, line: str, topic: str = "", group: str = "") -> None:
        line = READERS.get(line, line).format(topic=topic, group=group, address=ottla.address)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ottla.tools.command", *line.split()], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, bufsize=0,     # nothing is read ahead
            env=os.environ | {"OTTLA_BOOTSTRAP_SERVERS": ottla.address, "HOME": "/nonexistent"},
        )  # fmt: skip

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def end(self, number: int) -> tuple[list[str], str, int]:
        """Send a signal; return the rest of the output, the standard error and the exit status."""
        self.process.send_signal(number)
        out, said = self.process.communicate(timeout=60)
        return out.decode().split(), said.decode(), self.process.returncode


@pytest.fixture
def running() -> Iterator[list[Running]]:
    started: list[Running] = []
    yield started
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


def offsets(ottla: Ottla, group: str) -> dict[int, int | None]:
    rows = json.loads(ottla.ok(f"group describe {group} -o json"))
    return {row["partition"]: row["offset"] for row in rows}


@pytest.mark.parametrize(("name", "number"), [
    ("consume", signal.SIGTERM), ("consume", signal.SIGINT), ("consume", signal.SIGKILL),
    ("console", signal.SIGTERM), ("console", signal.SIGKILL), ("kcat", signal.SIGTERM),
    ("kcat", signal.SIGKILL),
])
def test_a_pipe_gets_slow_records_at_once_and_what_is_committed_was_written(
    ottla: Ottla, running: list[Running], name: str, number: signal.Signals
) -> None:
    topic = group = f"slow-{name}-{number.name}"
    ottla.ok(f"topic create {topic} --partitions 1")
    reader = Running(ottla, name, topic, group)
    running.append(reader)
    for value in ("0", "1", "2"):
        ottla.ok(f"produce {topic}", value.encode() + b"\n")
        assert reader.line() == value, "while no further record comes"
    rest, said, status = reader.end(number)
    assert rest == [] and "Traceback" not in said
    assert status == STATUS[number][name], said
    if number != signal.SIGKILL:
        assert offsets(ottla, group) == {0: 3}
    ottla.ok(f"produce {topic}", b"3\n")
    again = ottla.ok(READERS[name].format(topic=topic, group=f"{group}-2", address=ottla.address)
                     + (" -c 4" if name == "kcat" else
                        " -n 4" if name == "consume" else " --max-messages 4"))
    assert again.split() == ["0", "1", "2", "3"]


@pytest.mark.parametrize("name", [*READERS])
def test_what_the_next_member_reads_is_the_rest(ottla: Ottla, name: str) -> None:
    """That includes the partitions from which the first member printed nothing."""
    topic = group = f"rest-{name}"
    ottla.ok(f"topic create {topic} --partitions 5")
    ottla.ok(f"produce {topic} -K :", b"".join(b"%d:%d\n" % (n, n) for n in range(2000)))
    line = READERS[name].format(topic=topic, group=group, address=ottla.address)
    counted = {"consume": "-n 500", "console": "--max-messages 500", "kcat": "-c 500"}[name]
    first = ottla.ok(f"{line} {counted}").split()
    assert len(first) == 500 and None not in offsets(ottla, group).values()
    rest = {"consume": "consume {topic} --group {group} -o end -n 1500",
            "console": "kafka-console-consumer --bootstrap-server {address} --topic {topic}"
                       " --group {group} --max-messages 1500",
            "kcat": "kcat -b {address} -q -G {group} -c 1500 {topic}"}[name]
    second = ottla.ok(rest.format(topic=topic, group=group, address=ottla.address)).split()
    assert sorted(map(int, first + second)) == [*range(2000)]


@pytest.mark.parametrize("name", [*READERS])
def test_a_reader_whose_pipe_is_full_or_closed_commits_what_went_into_it(
    ottla: Ottla, running: list[Running], name: str
) -> None:
    topic = group = f"full-{name}"
    ottla.ok(f"topic create {topic} --partitions 1")
    ottla.ok(f"perf produce {topic} --records 5000 --size 100")
    reader = Running(ottla, name, topic, group)
    running.append(reader)
    assert len(reader.line()) == 100
    rest, said, status = reader.end(signal.SIGTERM)     # the pipe holds 65,536 bytes
    assert "Traceback" not in said and status == STATUS[signal.SIGTERM][name], said
    committed = offsets(ottla, group)[0] or 0
    assert committed <= len(rest) + 1
    closed = Running(ottla, name, topic, group)
    running.append(closed)
    assert closed.line()
    assert closed.process.stdout is not None and closed.process.stderr is not None
    closed.process.stdout.close()
    assert b"Traceback" not in closed.process.stderr.read()
    closed.process.wait(60)
    assert (offsets(ottla, group)[0] or 0) < 5000


def members_with_partitions(ottla: Ottla, group: str) -> int:
    members = json.loads(ottla.ok(f"group describe {group} --members -o json"))
    return sum(bool(one["partitions"]) for one in members)


@pytest.mark.parametrize("more", ["", "--group waiting"])
def test_a_topic_that_does_not_exist_yet_is_waited_for_in_so_many_words(
    ottla: Ottla, running: list[Running], more: str
) -> None:
    topic = "coming" if more else "late"
    ottla.ok(f"topic create {topic}s --partitions 1")
    reader = Running(ottla, f"consume {topic} {more}")
    running.append(reader)
    assert reader.process.stderr is not None
    assert reader.process.stderr.readline().decode() == (
        f"waiting for topic {topic!r}, which does not exist; similar: {topic}s\n")
    ottla.ok(f"produce {topic}", b"1\n")        # this creates the topic
    assert reader.line() == "1"


def test_a_reader_with_a_time_limit_says_that_its_topic_does_not_exist(ottla: Ottla) -> None:
    ottla.ok("topic create limits --partitions 1")
    ran = ottla(f"kafka-console-consumer --bootstrap-server {ottla.address} --topic limit"
                " --timeout-ms 200")
    assert ran.err == (
        "topic 'limit' does not exist; similar: limits\nProcessed a total of 0 messages\n")


def test_no_record_comes_twice_or_is_lost_while_members_come_and_go(
    ottla: Ottla, running: list[Running]
) -> None:
    topic = group = "shared"
    ottla.ok(f"topic create {topic} --partitions 4")
    seen: list[str] = []
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        ottla.ok(f"produce {topic} -K :", b"".join(
            b"%d:%d\n" % (n, n) for n in range(sent, sent + count)))
        sent += count

    send(200)
    first = Running(ottla, "consume", topic, group)
    running.append(first)
    seen += [first.line() for _ in range(200)]
    other = Running(ottla, "consume", topic, group)
    running.append(other)
    while members_with_partitions(ottla, group) < 2:
        send(20)                                # records come while the group rebalances
    send(100)
    rest, _, status = other.end(signal.SIGTERM)
    assert status == 143
    seen += rest
    rest, _, _ = first.end(signal.SIGINT)
    seen += rest
    if len(seen) < sent:
        seen += ottla.ok(f"consume {topic} --group {group} -n {sent - len(seen)}").split()
    assert sorted(map(int, seen)) == [*range(sent)]
