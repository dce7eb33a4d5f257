"""The indented command lines in the documentation do what their page says. The tests replace the
addresses and directories. The blocks of commands in the pages have other tests: see
tests/documents.py."""

from __future__ import annotations

import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.broker.running import RunningBroker, kept_port
from tests.documents import ROOT, shown_lines
from tests.tools.cli.ottla_command import Ottla
from tests.tools.kafka_directory import NODE, write_kafka
from tests.tools.logs import write_log


@contextmanager
def serving(words: list[str], folder: Path) -> Iterator[str]:
    """Run a command that starts a broker; yield its ready line, and stop it at the end."""
    command = [sys.executable, "-m", "ottla", *words, "--override", "listeners=PLAINTEXT://:0"]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as broker:
        try:
            assert broker.stdout is not None and broker.stderr is not None
            ready = broker.stdout.readline()
            assert ready.startswith("ottla ready: "), broker.stderr.read()
            yield ready
        finally:
            broker.terminate()
            broker.communicate(timeout=60)
    assert broker.returncode == 0


KAFKAS = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=/var/lib/kafka/data
log.retention.hours=-1
"""
"""A file like the one in Kafka's own distribution."""


def from_kafka(folder: Path, dry: list[str], take: list[str], start: list[str]) -> None:
    source = Path(take[-1])
    source.parent.mkdir(parents=True)
    write_kafka(source)
    ottla = Ottla("127.0.0.1:1")
    assert "would adopt" in ottla.ok(dry)
    assert not Path(take[take.index("--data-dir") + 1]).exists()
    assert "adopted 2 topics" in ottla.ok(take)
    start[start.index("node.id=1")] = f"node.id={NODE}"
    (folder / "server.properties").write_text(KAFKAS)
    with serving(start, folder) as ready:
        assert f"node {NODE} " in ready


def groups(folder: Path, formatter: list[str], interval: list[str], why: list[str]) -> None:
    """compat_tests/test_groups_tools.py runs the first line with Apache Kafka's own tool."""
    assert formatter[0] == "kafka-console-consumer" and "OffsetsMessageFormatter" in formatter[-1]
    with kept_port() as port, RunningBroker(
        folder / "data", ottla_http_listener=f"127.0.0.1:{port}",
        group_initial_rebalance_delay_ms=0,
    ) as broker:
        ottla = Ottla(f"127.0.0.1:{broker.port}")
        at = f"--bootstrap-server {ottla.address}"
        interval[interval.index("localhost:9092")] = ottla.address
        ottla.ok(interval)
        described = f"kafka-configs {at} --describe --entity-type groups --entity-name orders"
        assert "consumer.heartbeat.interval.ms=5000" in ottla.ok(described)
        ottla.ok("topic create orders --partitions 1")
        ottla.ok("produce orders", b"first\n")
        ottla.ok("consume orders -G billing -o beginning -n 1")
        assert ottla.ok(why).startswith("group billing: Empty, classic, 0 members, coordinated by")


def log_tools(folder: Path, dump: list[str], verify: list[str], take: list[str]) -> None:
    ottla = Ottla("127.0.0.1:1")
    write_log(folder / "data", "events-0")
    dumped = ottla.ok(dump)
    assert dumped.startswith("Dumping data/events-0/0") and "| offset: 0 CreateTime: 17" in dumped
    assert dumped.count("payload: ") == 3
    checked = "data/events-0: 2 segments, 5 batches, first offset 0, next offset 6, 413 B: sound"
    assert checked in ottla.ok(verify).splitlines()
    (folder / "data").rename(folder / "events")
    source = Path(next(word for word in take if "/var/lib/" in word))
    source.parent.mkdir(parents=True)
    write_kafka(source)
    assert "adopted 2 topics" in ottla.ok(take)


def monitoring(
    folder: Path, start: list[str], connections: list[str], subscribe: list[str]
) -> None:
    with kept_port() as port:
        given = [word.replace("localhost:9308", f"localhost:{port}") for word in start]
        with serving(given, folder) as ready:
            address = ready.partition("PLAINTEXT://")[2].partition(",")[0]
            url = f"http://localhost:{port}"
            with urllib.request.urlopen(f"{url}/metrics") as answer:
                assert b"kafka_server_" in answer.read()
            ottla = Ottla(address)
            consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "client.id": "me"})
            consumer.list_topics(timeout=30)
            head, *rows = ottla.ok([*connections, "--url", url]).splitlines()
            consumer.close()
            page = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
            assert head.split() in [line.split() for line in page.splitlines()]
            assert any(" me " in row for row in rows), rows
            subscribe[subscribe.index("localhost:9092")] = address
            ottla.ok(subscribe)
            shown = ottla.ok(f"kafka-client-metrics --bootstrap-server {address} --describe")
            assert "producers" in shown and "client_id=orders-.*" in shown


RUN: dict[str, Callable[..., None]] = {
    "docs/from_kafka.md": from_kafka,
    "docs/groups.md": groups,
    "docs/log_tools.md": log_tools,
    "docs/monitoring.md": monitoring,
}


@pytest.mark.parametrize("page", sorted(RUN))
def test_its_lines_work(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = []
    for of, line in shown_lines():
        if of == page:
            text = line.replace("\\\n", " ").replace("/var/lib/", f"{tmp_path}/var/lib/")
            lines.append(shlex.split(text.removeprefix("ottla "), comments=True))
    RUN[page](tmp_path, *lines)


def test_no_page_is_left_out() -> None:
    assert {page for page, _ in shown_lines()} == {*RUN}
