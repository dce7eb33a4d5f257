"""In case of trouble, our tools end with the same exit status as Apache Kafka's own tools (4.4.0)
on the same broker.

`tests/tools/command_lines.py` has a working command line for each tool. DIFFERENT lists intended
differences with their reasons.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

import pytest

from compat_tests.kafka_tools import CLASSES, KafkaTools, Ran
from ottla.tools.kafka_names import common
from tests.broker.running import RunningBroker
from tests.tools.cli.ottla_command import Ottla
from tests.tools.command_lines import (
    ABOUT_A_TOPIC,
    CREATE,
    CREATES_NOTHING,
    FOLDER_FILES,
    LOCAL,
    REFUSING,
    fill,
    line_of,
)
from tests.tools.forks import Forks
from tests.tools.kafka_names.comparison import run

REMOTE = [name for name in sorted(CLASSES) if name not in LOCAL]
TIMEOUTS = """default.api.timeout.ms=3000
request.timeout.ms=1500
delivery.timeout.ms=3000
max.block.ms=2000
"""
"""Client settings, because Kafka's tools would otherwise wait for a minute."""
IMPATIENT = """default.api.timeout.ms=800
request.timeout.ms=400
delivery.timeout.ms=1500
max.block.ms=600
"""
"""Client settings for an address at which no broker will ever answer."""
MORE = {
    "kafka-console-consumer": ["--timeout-ms", "2000"],
    "kafka-consumer-perf-test": ["--timeout", "2000"],
}
WAITS = {"kafka-verifiable-consumer", "kafka-producer-perf-test"}
"""Kafka's tools that are not tested without a broker or without a topic: the consumer would wait
forever, and the producer would wait a while for each record."""
PATIENT = {"kafka-configs", "kafka-streams-application-reset", "kafka-verifiable-producer"}
"""Kafka's tools have their own timeouts for an unreachable broker, up to 30 s."""
DIFFERENT: dict[tuple[str, str], str] = {}
"""By trouble and tool, the reason why our exit status differs from Kafka's."""
INPUT = b"a\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fill(tmp_path, "orders", "")
    (tmp_path / "admin.properties").write_text(TIMEOUTS)
    return tmp_path


def words_of(
    name: str, address: str, folder: Path, topic: str = "orders", timeouts: str = TIMEOUTS,
    more: dict[str, list[str]] = MORE,
) -> list[str]:
    """A tool's working command line, with files in `folder`, and with timeouts."""
    fill(folder, topic, address)
    (folder / "admin.properties").write_text(timeouts)
    known = {*FOLDER_FILES, "from.properties", "to.properties"}
    line = [str(folder / word) if word in known else word for word in line_of(name, address, topic)]
    if "--command-config" not in line and name not in LOCAL:
        at = line.index("--bootstrap-server") + 2       # before a sub-command
        line[at:at] = ["--command-config", str(folder / "admin.properties")]
    return line + more.get(name, [])


def differences(
    trouble: str, lines: list[list[str]], tools: KafkaTools,
    begun: Mapping[str, Future[Ran]] = MappingProxyType({}),
) -> list[str]:
    """The command lines whose exit status differs from Kafka's although DIFFERENT does not say so,
    or the reverse. `begun` has runs of Kafka's tools that were started before."""
    found = []
    for name, *arguments in lines:
        running = begun.get(name)
        theirs = running.result() if running else tools.run(name, arguments, INPUT)
        ours = run([name, *arguments], INPUT)
        print(trouble, name, theirs.status, ours.status)
        if (theirs.status == ours.status) == ((trouble, name) in DIFFERENT):
            found.append(
                f"{name} {' '.join(arguments)}\nKafka's: {theirs.status} {theirs.stdout[:300]}"
                f"{theirs.stderr[:500]}\nours: {ours.status} {ours.stdout[:300]}{ours.stderr}"
            )
    return found


def test_wrong_flags(tools: KafkaTools, folder: Path) -> None:
    lines = [[*words_of(name, "127.0.0.1:1", folder), "--no-such-flag"] for name in sorted(CLASSES)]
    wrong = differences("flag", lines, tools)
    assert not wrong, "\n".join(wrong)


def test_no_arguments(tools: KafkaTools) -> None:
    wrong = differences("none", [[name] for name in sorted(CLASSES)], tools)
    assert not wrong, "\n".join(wrong)


def test_numbers_that_are_none(tools: KafkaTools, tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "data") as broker:
        address = f"127.0.0.1:{broker.address[1]}"
        ottla = Ottla(address)
        ottla.ok("topic create orders")
        ottla("produce orders", stdin=INPUT)
        perf = ["kafka-consumer-perf-test", "--bootstrap-server", address, "--topic", "orders"]
        e2e = ["kafka-e2e-latency", "--bootstrap-server", address, "--topic", "orders",
               "--num-records", "1", "--producer-acks", "all", "--record-size", "8"]
        wrong = differences("number", [
            [*perf, "--num-records", "1", "--timeout", "x"],
            [*perf, "--num-records", "1", "--timeout=x"],
            [*perf, "--num-records", "x"],
            [*e2e, "--record-key-size", "x"],
            [*e2e, "--record-key-size=x"],
        ], tools)
    assert not wrong, "\n".join(wrong)


def test_a_broker_out_of_reach(
    tools: KafkaTools, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "SECONDS", 0.2)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        names = [name for name in REMOTE if name not in WAITS]
        more = MORE | {"kafka-consumer-groups": ["--timeout", "2000"]}
        lines = [
            words_of(name, address, folder, timeouts=IMPATIENT, more=more)
            for name in sorted(names, key=PATIENT.__contains__)
        ]
        with ThreadPoolExecutor(len(PATIENT)) as pool:
            begun = {
                name: pool.submit(tools.run_alone, name, arguments, INPUT)
                for name, *arguments in lines if name in PATIENT
            }  # fmt: skip
            wrong = differences("unreachable", lines, tools, begun)
    assert not wrong, "\n".join(wrong)


def test_a_refused_operation(tools: KafkaTools, folder: Path) -> None:
    with RunningBroker(folder / "data", **REFUSING) as broker:
        address = f"127.0.0.1:{broker.port}"
        names = [name for name in REMOTE if name != "kafka-producer-perf-test"]
        lines = [words_of(name, address, folder) for name in names]
        wrong = differences("refused", lines, tools)
    assert not wrong, "\n".join(wrong)


def test_a_topic_that_does_not_exist(tools: KafkaTools, folder: Path) -> None:
    with RunningBroker(folder / "data", **CREATES_NOTHING) as broker:
        address = f"127.0.0.1:{broker.port}"
        names = [name for name in REMOTE if name in ABOUT_A_TOPIC and name not in WAITS]
        lines = [words_of(name, address, folder, "nothing") for name in names]
        wrong = differences("unknown", lines, tools)
    assert not wrong, "\n".join(wrong)


ALONE = ("kafka-topics", "kafka-console-consumer", "kafka-consumer-groups", "kafka-configs")
"""One tool of each kind, because each gets a JVM of its own, and all tools of a kind end alike."""


@pytest.fixture
def forks() -> Iterator[Forks]:
    made = Forks()
    yield made
    made.close()


@pytest.mark.parametrize("name", ALONE)
def test_output_that_nobody_reads(
    name: str, tools: KafkaTools, folder: Path, forks: Forks
) -> None:
    with RunningBroker(folder / "data", **CREATES_NOTHING) as broker:
        ottla = Ottla(f"127.0.0.1:{broker.port}")
        ottla.ok("topic create orders --partitions 3")
        ottla.ok("perf produce orders --records 10000 --size 10")
        ottla.ok("consume orders -G billing -n 2 -o beginning")
        line = words_of(name, ottla.address, folder)
        if name in CREATE:
            ottla.ok("topic delete orders --yes")
        reader, writer = os.pipe()
        os.close(reader)
        theirs = subprocess.run(
            tools.command(*line), stdin=subprocess.DEVNULL, stdout=writer,
            stderr=subprocess.PIPE, timeout=180,
        )  # fmt: skip
        os.close(writer)
        if name in CREATE:
            ottla.ok("topic delete orders --yes")
        forks.start(line, folder, ottla.address, closed_stdout=True)
        ours = forks.wait()
    assert ours.status == theirs.returncode, (ours, theirs)


def heed_interrupts() -> None:
    """Restore SIGINT's default action. A program that a shell starts in the background ignores
    SIGINT, and its children inherit this."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("name", ALONE)
def test_ctrl_c(name: str, tools: KafkaTools, folder: Path, forks: Forks) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        silent.settimeout(60)
        line = words_of(name, f"127.0.0.1:{silent.getsockname()[1]}", folder, more={})
        line = [word for word in line if word != "--command-config" and "admin.p" not in word]
        with subprocess.Popen(
            tools.command(*line), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, preexec_fn=heed_interrupts,
        ) as theirs:  # fmt: skip
            with silent.accept()[0] as kept:        # a closed connection would end the tool
                kept.recv(1)
                theirs.send_signal(signal.SIGINT)
                assert theirs.wait(60) == 130
        child = forks.start(line, folder, "")
        with silent.accept()[0] as kept:
            kept.recv(1)
            os.kill(child, signal.SIGINT)
            assert forks.wait().status == 130
