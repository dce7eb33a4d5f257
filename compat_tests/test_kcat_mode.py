"""`ottla kcat` sends the same records and prints the same text as kcat."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from compat_tests.brokers import Broker
from compat_tests.requirements import program

OURS = [str(Path(sys.executable).with_name("ottla")), "kcat"]
SENT = b"key:value\nonly a value\n:no key\n\nempty value:\nsame:\xc3\xa9\n"
FORMAT = r"%t [%p] at %o: %k|%K|%s|%S|%R|%T|%h|%%\x41\n"
SIZED = "%p %o %S %K\\n"


def run(broker: Broker, command: list[str], options: list[str], stdin: bytes = b"") -> bytes:
    """What a command prints, and its messages about partition ends. All lines are sorted, because
    partitions may come in any order."""
    done = subprocess.run(
        [*command, "-b", broker.bootstrap, *options], input=stdin, capture_output=True, timeout=180)
    assert done.returncode == 0, done.stderr
    ends = sorted(
        line.removesuffix(b": exiting") for line in done.stderr.splitlines() if b"end of" in line)
    # Sometimes kcat sends the request before it has connected to the broker by its id. The line
    # shows which of the two connections kcat used.
    out = re.sub(rb"from broker -?\d+: (\S+)/[\w]+\)", rb"from broker \1)", done.stdout)
    out = re.sub(rb'^.*"query":', b"", out)
    return b"\n".join([*sorted(out.splitlines()), *ends])


@pytest.fixture(scope="module")
def topic(broker: Broker, new_topic: Callable[..., str]) -> str:
    """A topic with three partitions: kcat sends the same records to 0 as `ottla kcat` to 1."""
    name = new_topic("kcat-mode", partitions=3)
    for command, partition in (([program("kcat")], "0"), (OURS, "1")):
        at = ["-P", "-t", name, "-p", partition]
        run(broker, command, [*at, "-K:", "-H", "h=v", "-H", "none", "-z", "gzip"], SENT)
        run(broker, command, [*at, "-Z", "-K:"], SENT)
        run(broker, command, [*at, "-k", "fixed", "-D,"], b"1,2,,3")
    return name


def test_both_send_the_same(broker: Broker, topic: str) -> None:
    def records(partition: str) -> list[bytes]:
        options = ["-C", "-t", topic, "-p", partition, "-e", "-q", "-f", r"%o %K %k %S %s %h\n"]
        return run(broker, [program("kcat")], options).splitlines()

    assert records("0") == records("1") and len(records("0")) == 13


@pytest.mark.parametrize("options", [
    "-L -t {}", "-L -t {} -J", "-C -t {} -e", "-C -t {} -e -J", "-C -t {} -e -Z -J",
    "-C -t {} -e -K,", "-C -t {} -e -Z -K\\t -D\\x42", "-C -t {} -e -O -K,", "-C -t {} -e -u -q",
    "-C -t {} -p 1 -e -o 3", "-C -t {} -p 1 -e -o -2", "-C -t {} -e -o end", "-C -t {} -p 0 -c 3",
    "-C -t {} -e -o beginning", "-C -t {} -e -o s@0", "-C -t {} -e -q -s s", "-Q -t {}:0:0",
    "-Q -t {}:0:-1 -t {}:1:-2", "-Q -t {}:2:0", "-Q -t {}:0:99999999999999",
])
def test_both_print_the_same(broker: Broker, topic: str, options: str) -> None:
    words = options.format(*[topic] * 2).split()
    assert run(broker, OURS, words) == run(broker, [program("kcat")], words)


@pytest.mark.parametrize("text", [FORMAT, SIZED, "%s"])
def test_both_format_the_same(broker: Broker, topic: str, text: str) -> None:
    for null in ([], ["-Z"]):
        words = ["-C", "-t", topic, "-e", "-q", *null, "-p", "0", "-f", text]
        assert run(broker, OURS, words) == run(broker, [program("kcat")], words)


def test_both_hide_what_is_not_committed(
    broker: Broker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("kcat-atomic")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for value, end in (("kept", producer.commit_transaction), ("lost", producer.abort_transaction),
                       ("open", producer.flush)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush()
        end()
    for options in (f"-C -t {topic} -e", f"-C -t {topic} -e -o -1",
                    f"-C -t {topic} -e -o -4", f"-C -t {topic} -e -o end", f"-Q -t {topic}:0:-1"):
        assert run(broker, OURS, options.split()) == run(broker, [program("kcat")], options.split())
    producer.abort_transaction()


def test_both_begin_again_if_a_group_is_told_to(broker: Broker, topic: str) -> None:
    read = [
        run(broker, command, ["-q", "-G", f"{topic}-{name}", "-o", "beginning", "-e", topic])
        for name, command in (("theirs", [program("kcat")]), ("ours", OURS)) for _ in range(2)
    ]
    assert len(set(read)) == 1 and read[0] != b""


def test_both_read_as_a_group(broker: Broker, topic: str) -> None:
    read = [
        run(broker, command, [
            "-q", "-G", f"{topic}-{number}", "-o", "beginning", "-c", "26", topic])
        for number, command in enumerate(([program("kcat")], OURS))
    ]
    assert read[0] == read[1]


@pytest.mark.parametrize("setting", ["foo=bar", "linger.ms=abc", "security.protocol=foo"])
@pytest.mark.parametrize("options", ["-L", "-C -t t -e", "-P -t t"])
def test_both_refuse_a_setting_that_librdkafka_does_not_take(
    broker: Broker, setting: str, options: str
) -> None:
    for command in (OURS, [program("kcat")]):
        words = [*command, "-b", broker.bootstrap, "-X", setting, *options.split()]
        done = subprocess.run(words, input=b"", capture_output=True, timeout=180)
        assert done.returncode == 1 and b"ERROR" in done.stderr and not done.stdout, done
