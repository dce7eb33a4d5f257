"""Every command that fails prints one clear line to stderr and no traceback. Commands with the
names of Kafka's tools end with Kafka's exit status.

The commands, and a working line for each, come from the command table. So new commands are tested,
too.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.tools.cli import mirror, target_topic
from ottla.tools.kafka_names import common
from ottla.tools.kafka_names.main import ENDS_WITH_0, NOT_YET
from tests.broker.running import RunningBroker
from tests.tools.cli.ottla_command import Done, Ottla
from tests.tools.command_lines import (
    ABOUT_A_TOPIC,
    CLUSTER,
    COMMANDS,
    CREATE,
    CREATES_NOTHING,
    EXAMPLES,
    REFUSING,
    REMOTE,
    fill,
    line_of,
)
from tests.tools.forks import Forks

NO_RECORDS = "Processed a total of 0 messages\n"
"""What kafka-console-consumer prints at its end, for whatever reason it ends."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the files that the examples name."""
    fill(tmp_path, "orders", CLUSTER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def clear(done: Done, *, ok: bool = False) -> None:
    """Assert that the command failed with one line on stderr. With `ok`, it may succeed, too."""
    assert "Traceback" not in done.err and "unexpected" not in done.err, done
    if done.status or not ok:
        assert done.status in (1, 2), done
        said = done.err.replace(NO_RECORDS, "", 1)
        assert len(said.splitlines()) == 1 and len(said) > 20, done


@pytest.mark.parametrize("words", sorted({*EXAMPLES} - {"server dev"}))
def test_a_wrong_flag(words: str) -> None:
    ottla = Ottla("127.0.0.1:1")
    done = ottla([*line_of(words, "127.0.0.1:1"), "--no-such-flag"])
    clear(done)
    assert "no-such-flag" in done.err
    assert done.status == (1 if words.startswith("kafka-") else 2), "Kafka's tools end with 1"


def test_a_pattern_that_is_no_regular_expression() -> None:
    tool = "kafka-console-consumer --bootstrap-server 127.0.0.1:1 --include"
    done = Ottla("127.0.0.1:1")([*tool.split(), "or(ders"])
    clear(done)
    assert "or(ders is an invalid regex" in done.err and done.status == 1


@pytest.mark.parametrize("words", sorted(NOT_YET))
def test_a_tool_that_is_not_there_yet(words: str) -> None:
    clear(Ottla("127.0.0.1:1")([words, "--bootstrap-server", CLUSTER]))


@pytest.mark.parametrize("words", REMOTE)
def test_a_broker_out_of_reach(
    words: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        fill(folder, "orders", address)
        given = line_of(words, address)
        monkeypatch.setattr(common, "SECONDS", 0.2)
        monkeypatch.setattr(mirror, "CONNECT_SECONDS", 0.2)
        if "cluster" in COMMANDS[words].marks:
            given += ["--timeout", "0.2"]
        done = Ottla(address)(given, b"a\n")
    # Apache Kafka's consumer-groups, and other tools, print "Error: …" and end with 0.
    clear(done, ok=words == "kafka-consumer-groups" or words in ENDS_WITH_0)
    assert f"cannot reach a broker at {address}" in done.err, done.err


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("locked"), **REFUSING) as broker:
        yield broker


FILTERED = {
    "topic list", "topic offsets", "group list", "cluster info", "cluster apis", "cluster check",
    "server status", "transaction list", "transaction hanging", "group describe", "group reset",
    "reassign list", "acl list", "user list", "quota list", "feature list", "config show",
    "kafka-topics", "kafka-groups", "kafka-consumer-groups", "kafka-get-offsets", "kafka-cluster",
    "kafka-broker-api-versions", "kafka-features", "kafka-transactions",
    "kafka-console-producer", "kafka-verifiable-producer",
}
"""Commands that may succeed and show less, because a broker shows only what the user may describe;
and Kafka's producers, which report unacknowledged records and end with 0."""


@pytest.mark.parametrize("words", REMOTE)
def test_an_operation_that_is_refused(words: str, locked: RunningBroker, folder: Path) -> None:
    address = f"127.0.0.1:{locked.port}"
    fill(folder, "orders", address)
    done = Ottla(address)(line_of(words, address), b"a\n")
    clear(done, ok=words in FILTERED or words in ENDS_WITH_0)


@pytest.fixture(scope="module")
def open_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("open"), **CREATES_NOTHING) as broker:
        yield broker


def stock(ottla: Ottla) -> None:
    """Create the examples' topic and group if they are missing: some examples delete them."""
    if "orders" not in ottla.ok("topic list -o name").split():
        ottla.ok("topic create orders --partitions 3")
        ottla.ok("perf produce orders --records 10000 --size 10")
    if "billing" not in ottla.ok("group list -o name").split():
        ottla.ok("consume orders -G billing -n 2 -o beginning")


MISSING_IS_FINE = {
    "acl add", "acl delete", "mirror", "kafka-mirror-maker", "kafka-console-producer",
    "kafka-verifiable-producer", "kafka-streams-application-reset", "reassign cancel",
}
"""Commands that may succeed: the topic that they name need not exist yet, or Apache Kafka's tool
ends with 0 as well."""


@pytest.mark.parametrize("words", ABOUT_A_TOPIC)
def test_a_topic_that_does_not_exist(
    words: str, open_broker: RunningBroker, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"127.0.0.1:{open_broker.port}"
    fill(folder, "nothing", address)
    monkeypatch.setattr(target_topic, "TOPIC_SECONDS", 0.3)
    given = line_of(words, address, "nothing")
    if words in ("kafka-console-producer", "kafka-verifiable-producer"):
        given += ["--command-config", "admin.properties"]
    done = Ottla(address)(given, b"a\n")
    clear(done, ok=words in MISSING_IS_FINE or words in ENDS_WITH_0)


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    made = Forks()
    yield made
    made.close()


@pytest.mark.parametrize("words", [*REMOTE, "completion", "kafka-storage"])
def test_output_that_nobody_reads(
    words: str, open_broker: RunningBroker, folder: Path, forks: Forks
) -> None:
    address = f"127.0.0.1:{open_broker.port}"
    fill(folder, "orders", address)
    ottla = Ottla(address)
    if words in CREATE:
        ottla("topic delete orders --yes")
    else:
        stock(ottla)
    forks.start(line_of(words, address), folder, address, b"a\n", closed_stdout=True)
    done = forks.wait()
    if words in CREATE:
        ottla("topic delete orders --yes")
    same = "same cluster" in done.err          # the mirror's source and target are one cluster here
    assert done.status == 0 or not words.startswith("kafka-") or same, done     # as Java's tools do
    said = [line for line in done.err.splitlines() if line]
    assert len(said) <= 1 and "Traceback" not in done.err, done
    assert "BrokenPipe" not in done.err and "unexpected" not in done.err, done


@pytest.mark.parametrize("words", REMOTE)
def test_ctrl_c_while_a_broker_does_not_answer(
    words: str, folder: Path, forks: Forks
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        silent.settimeout(30)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        fill(folder, "orders", address)
        child = forks.start(line_of(words, address), folder, address, b"a\n")
        connected, _ = silent.accept()
        connected.settimeout(30)
        assert connected.recv(1), "it has sent a request"
        os.kill(child, signal.SIGINT)
        done = forks.wait()
        connected.close()
    assert done.status == 130, done
    assert done.err.replace(NO_RECORDS, "") == "", done
