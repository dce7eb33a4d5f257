"""The examples that need more than the broker that test_commands.py shares for all others. Their
commands start or stop a broker, keep running, or need a terminal, a broker with an HTTP port, a
second cluster, a login or a cluster's directory.

Other tests run some of these examples. Those of `cluster start`, `restart-broker`, `stop-broker`
and `create` need ZooKeeper: compat_tests/test_cluster.py and compat_tests/test_first_broker.py run
them. test_drain.py runs the example of `cluster drain`, and
tests/broker/cluster/test_maintenance.py runs that of `reassign plan`.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.broker.cluster.metadata_checkpoint import MARK
from ottla.tools.commands.table import read
from tests.broker.running import RunningBroker, kept_port
from tests.broker.security.logging_in import SaslBroker
from tests.tools.browse.screens import Screen
from tests.tools.cli.member_directory import member_directory
from tests.tools.cli.ottla_command import EXAMPLES_APART, Ottla
from tests.tools.kafka_names.stage import OVERRIDES

EXAMPLES = {
    command.words: example.removeprefix("ottla ")
    for file in ("ottla", "kafka")
    for command in read(file).values()
    for example in command.examples
}
START = ["server", "start", "--override", "listeners=PLAINTEXT://127.0.0.1:0",
         "--log-level", "error"]  # fmt: skip
LOGIN = """security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
username="alice" password="alice-secret";
"""


STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    yield
    while STARTED:
        STARTED.pop().kill()


def start(words: list[str], folder: Path) -> subprocess.Popen[str]:
    """Starts a command in a process of its own, with its output in a pipe."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", *words], cwd=folder, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=os.environ | {"XDG_RUNTIME_DIR": str(folder), "LOG_DIR": str(folder)},
    )  # fmt: skip
    STARTED.append(process)
    return process


def line_with(process: subprocess.Popen[str], text: str) -> str:
    """Returns the next line of the process's output that contains this text."""
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return line
    raise AssertionError(f"it ended without {text!r}")


def end(process: subprocess.Popen[str]) -> None:
    """Waits until the process ends, and asserts that its exit status is 0."""
    with process:
        process.communicate(timeout=60)
    assert process.returncode == 0


def server_dev(folder: Path) -> None:
    process = start(shlex.split(EXAMPLES["server dev"]), folder)
    address = line_with(process, "BOOTSTRAP_SERVERS=").strip().partition("=")[2]
    assert Ottla(address).ok("topic describe orders -o jsonl").count("\n") == 3
    end(process)                # closes its standard input, so it stops


def server_stop(folder: Path) -> None:
    process = start([*START, "--override", "log.dirs=data"], folder)
    line_with(process, "ottla ready")
    end(start(shlex.split(EXAMPLES["server stop"]), folder))
    end(process)


def server_connections(folder: Path) -> None:
    """The command finds the address of the HTTP port in the broker's settings."""
    with kept_port() as port, RunningBroker(
        folder / "data", ottla_http_listener=f"127.0.0.1:{port}"
    ) as broker:
        ottla = Ottla(f"127.0.0.1:{broker.port}")
        ottla.ok("topic create orders --partitions 1")
        ottla.ok("produce orders", b"first\n")
        consumer = Consumer({"bootstrap.servers": ottla.address, "group.id": "g",
                             "client.id": "till", "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition("orders", 0, 0)])
        assert consumer.poll(30) is not None
        for more in ("", f"--url http://127.0.0.1:{port}"):
            shown = json.loads(ottla.ok(f"{EXAMPLES['server connections']} {more} -o json"))
            [software] = {row["software"].split()[0] for row in shown if row["client"] == "till"}
            assert software == "confluent-kafka-python"
            assert {row["broker"] for row in shown} == {broker.server.broker.node_id}
        consumer.close()


def console(folder: Path) -> None:
    with RunningBroker(folder / "data") as broker:
        address = f"127.0.0.1:{broker.port}"
        words = shlex.split(EXAMPLES["console"].replace("localhost:9092", address))
        more = ["--listen", "localhost:0", "--history", str(folder / "history"), "--with-parent"]
        process = start([*words, *more], folder)
        assert line_with(process, "ottla console").startswith(f"ottla console of {address} on ")
        end(process)            # closes its standard input, so it stops


def whys(folder: Path) -> None:
    """The commands find the address of the HTTP port in the broker's settings."""
    with RunningBroker(folder / "first", **OVERRIDES) as without:
        refused = Ottla(f"127.0.0.1:{without.port}")
        refused.ok("topic create orders --partitions 1")
        assert "Set the broker's ottla.http.listener" in refused(EXAMPLES["topic why"]).err
    with kept_port() as port, RunningBroker(
        folder / "data", ottla_http_listener=f"127.0.0.1:{port}",
        group_initial_rebalance_delay_ms=0,
    ) as broker:
        ottla = Ottla(f"127.0.0.1:{broker.port}")
        ottla.ok("topic create orders --partitions 1")
        ottla.ok("produce orders", b"first\nsecond\n")
        consumer = Consumer({"bootstrap.servers": ottla.address, "group.id": "billing",
                             "client.id": "till", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        record = consumer.poll(30)
        assert record is not None
        consumer.commit(record, asynchronous=False)
        consumer.close()
        shown = ottla.ok(EXAMPLES["group why"])
        assert "group billing: Empty, classic, 0 members, coordinated by broker " in shown
        assert "the group has had no members for " in shown and "1 record (" in shown
        joined, _, left, emptied = shown.splitlines()[-4:]
        assert "  member till-" in joined
        assert joined.endswith(" of 127.0.0.1 joined with a subscription to orders")
        assert "  member till-" in left and left.endswith(" of 127.0.0.1 left at its own request")
        assert emptied.endswith("the last member is gone: the group is empty")
        (document,) = json.loads(ottla.ok(f"{EXAMPLES['group why']} -o json"))
        assert [each["kind"] for each in document["now"]] == ["no_members", "lag"]
        assert ottla.ok(f"{EXAMPLES['group why']} -o name") == "billing\n"
        assert "nothing is wrong with it" in ottla.ok(EXAMPLES["topic why"])
        assert ottla("group why none").status == ottla("topic why none").status == 1
        assert "localhost:1" in ottla("group why billing --url http://localhost:1").err


def mirror(folder: Path) -> None:
    with (
        RunningBroker(folder / "from", **OVERRIDES) as source,
        RunningBroker(folder / "to", **OVERRIDES) as target,
    ):
        first, second = (Ottla(f"127.0.0.1:{one.port}") for one in (source, target))
        first.ok("topic create orders orders-old other --partitions 1")
        first.ok("produce orders", b"1\n")
        given = EXAMPLES["mirror"].replace("localhost:9092", first.address)
        first.ok(given.replace("localhost:9192", second.address))
        assert second.ok("topic list -o name").split() == ["orders", "orders-old"]
        assert second.ok("consume orders -e") == "1\n"


def kafka_mirror_maker(folder: Path) -> None:
    with (
        RunningBroker(folder / "from", **OVERRIDES) as source,
        RunningBroker(folder / "to", **OVERRIDES) as target,
    ):
        first, second = (Ottla(f"127.0.0.1:{one.port}") for one in (source, target))
        (folder / "from.properties").write_text(f"bootstrap.servers={first.address}\n")
        (folder / "to.properties").write_text(f"bootstrap.servers={second.address}\n")
        first.ok("topic create orders --partitions 1")
        first.ok("produce orders", b"1\n")
        process = start([*shlex.split(EXAMPLES["kafka-mirror-maker"]), "--once"], folder)
        end(process)
        assert second.ok("consume orders -e") == "1\n"


def kafka_server_start_and_stop(folder: Path) -> None:
    (folder / "server.properties").write_text("listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs=data\n")
    process = start(shlex.split(EXAMPLES["kafka-server-start"]), folder)
    address = line_with(process, "ottla ready").partition("PLAINTEXT://")[2].partition(",")[0]
    ottla = Ottla(address)
    ottla.ok("topic create orders")
    assert ottla.ok("topic describe orders -o jsonl").count("\n") == 3, "what --override says"
    end(start(shlex.split(EXAMPLES["kafka-server-stop"]), folder))
    end(process)


def topic_browse(folder: Path) -> None:
    with RunningBroker(folder / "data", **OVERRIDES) as broker:
        ottla = Ottla(f"127.0.0.1:{broker.port}")
        ottla.ok("topic create orders --partitions 1")
        ottla.ok("produce orders", b"the last one\n")
        words = shlex.split(EXAMPLES["topic browse"].replace("--offset end", "--offset -1"))
        for given in (words, shlex.split(EXAMPLES["topic browse"])):
            with Screen(given, ottla.address) as screen:
                screen.wait("the last one" if given is words else "orders")
                screen.press("q")
                assert screen.end() == 0


def kafka_delegation_tokens(folder: Path) -> None:
    (folder / "admin.properties").write_text(LOGIN)
    with SaslBroker(folder / "data", {"delegation.token.secret.key": "master"}) as broker:
        address = "{}:{}".format(*broker.inside)
        ottla = Ottla(address)
        line = EXAMPLES["kafka-delegation-tokens"].replace("localhost:9092", address)
        ottla.ok(line.replace("--describe", "--create --max-life-time-period -1"))
        printed = ottla.ok(line)
        assert "HMAC" in printed and "User:alice" in printed


def cluster_accept_backup(folder: Path) -> None:
    path = member_directory(folder / "data")
    end(start(shlex.split(EXAMPLES["cluster accept-backup"]), folder))
    assert not (path / MARK).exists()


RUN: dict[str, Callable[[Path], None]] = {
    "server dev": server_dev,
    "server stop": server_stop,
    "server connections": server_connections,
    "console": console,
    "group why": whys,
    "topic why": whys,
    "mirror": mirror,
    "kafka-mirror-maker": kafka_mirror_maker,
    "kafka-server-start": kafka_server_start_and_stop,
    "topic browse": topic_browse,
    "kafka-delegation-tokens": kafka_delegation_tokens,
    "cluster accept-backup": cluster_accept_backup,
}


@pytest.mark.parametrize("words", sorted(RUN))
def test_its_example_works(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    RUN[words](tmp_path)


def test_no_example_is_left_out() -> None:
    assert {
        *RUN, "kafka-server-stop", "cluster create", "cluster drain", "cluster restart-broker",
        "cluster stop-broker",
        "cluster start", "reassign plan",
    } == EXAMPLES_APART
