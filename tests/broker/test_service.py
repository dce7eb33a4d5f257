"""`ottla server start` as a service runs it: signals, closed terminals, logs that nobody reads."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.service import READY, WAIT_SECONDS, Service, serves
from tests.tools.kafka_directory import NODE, content, write_kafka
from tests.waiting import until

F_SETPIPE_SZ = 1031


RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    started = Service(tmp_path)
    yield started
    started.process.kill()
    started.process.wait()
    if started.process.stdout:
        started.process.stdout.close()


def test_a_second_broker_names_the_first_and_the_command_that_stops_it(service: Service) -> None:
    service.ready()
    second = subprocess.run(
        [sys.executable, "-m", "ottla", "server", "start", service.properties],
        stderr=subprocess.PIPE, text=True, timeout=WAIT_SECONDS,
    )  # fmt: skip
    assert second.returncode == 1
    assert re.search(
        r"ottla: (.*) is in use by another process.* `\S*ottla server stop --data-dir \1` stops"
        rf" process {service.process.pid}, which uses this directory\.$", second.stderr.rstrip(),
    ), second.stderr  # fmt: skip


def test_the_log_of_a_start_says_what_starts_and_where(service: Service) -> None:
    host, port = service.ready()
    text = service.text()
    for expected in (
        r"Ottla \d+\.\d+\.\d+ starts as node 4; settings from .*server\.properties; data in /.*",
        r"recovery: no log had to be checked",
        rf"listening on 127\.0\.0\.1:{port}, advertised as PLAINTEXT://{host}:{port}",
        r"serving cluster [\w-]{22} with 0 topics; the start took \d+\.\d\d s",
    ):
        assert re.search(expected, text), text
    assert service.stop() == 0
    assert service.text().rstrip().endswith("stopped: all data are on disk")


def test_the_level_of_each_documented_logger_can_be_set_before_the_logger_is_used() -> None:
    """A broker imports some modules only when it needs them. Other tests have imported them in this
    process, so another process looks."""
    page = Path(__file__).parents[2] / "docs" / "operations.md"
    rows = re.findall(r"^\| (`ottla\.[^|]*) \|", page.read_text(), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(ottla\.\w+)`", row)}
    at_the_start = (
        "ottla.broker.service", "ottla.broker.http.server", "ottla.broker.cluster.clustered_start",
        "ottla.replication.zookeeper", "ottla.broker.settings.loggers",
    )
    program = f"import {', '.join(at_the_start)} as it; print(*(name for name, _ in it.levels()))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True)
    made_by_the_connection = {"ottla.kazoo"}
    assert len(named) > 30 and not named - {*done.stdout.split()} - made_by_the_connection


def test_sighup_reads_dynamic_settings_again_and_never_kills(service: Service) -> None:
    address = service.ready()
    before = service.properties.read_text()
    service.properties.write_text(before + "log.retention.ms=60000\nnode.id=7\n"
                                  "num.network.threads=9\nlog.retention.m=1\n" + "k" * 64 + "\n")
    service.process.send_signal(signal.SIGHUP)
    service.wait_for("reload: log.retention.ms has changed from its default to 60000")
    service.wait_for("reload: node.id has changed and needs a restart")
    service.wait_for("reload: num.network.threads has changed without effect in Ottla")
    service.wait_for("reload: log.retention.m is not a setting .*; did you mean log.retention.ms")
    service.wait_for("reload: a line of 64 characters .* is not a setting")
    assert "k" * 64 not in service.text(), "it may be a line of a private key"
    service.properties.write_text(before + "log.retention.ms=soon\n")
    service.process.send_signal(signal.SIGHUP)
    service.wait_for(r"reload: log\.retention\.ms: .* \(.*, line \d+\); all settings are unchanged")
    service.properties.unlink()
    service.process.send_signal(signal.SIGHUP)
    gone = rf"reload: {service.properties}: no such file or directory;"
    service.wait_for(f"{gone} all settings are unchanged")
    service.properties.write_text(before + "log.retention.ms=60000\n")
    service.process.send_signal(signal.SIGHUP)
    service.wait_for("reload: nothing has changed")
    assert serves(address)
    assert service.stop() == 0


def test_sighup_while_a_broker_starts_waits_until_it_serves(service: Service) -> None:
    state = Path(f"/proc/{service.process.pid}/status")

    def blocked() -> bool:
        found = re.search(r"SigBlk:\s*(\w+)", state.read_text())
        return found is not None and bool(int(found[1], 16) & 1 << (signal.SIGHUP - 1))

    until(blocked, "the signal is kept")
    service.process.send_signal(signal.SIGHUP)
    address = service.ready()
    service.wait_for("reload: nothing has changed")
    assert serves(address) and not blocked()
    assert service.stop() == 0


def test_without_standard_streams_nothing_else_gets_their_numbers(tmp_path: Path) -> None:
    """The log is written to descriptor 2. If it were free, a segment or a client's socket would get
    this number."""
    service = Service(tmp_path, preexec_fn=lambda: (os.close(0), os.close(2)))
    address = service.ready()
    for number in (0, 2):
        assert os.readlink(f"/proc/{service.process.pid}/fd/{number}") == "/dev/null"
    assert serves(address)
    assert service.stop() == 0


def test_a_broker_outlives_its_terminal(tmp_path: Path) -> None:
    """A terminal that closes sends SIGHUP to its processes, and their writes to it fail."""
    master, slave = os.openpty()
    service = Service(
        tmp_path, "--log-level", "debug", stdout=slave, stderr=slave, stdin=slave,
        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, 0x540E, 0),  # TIOCSCTTY
    )
    os.close(slave)
    printed = b""
    while not (match := re.search(READY.pattern.replace(rb"\n", rb"\r\n"), printed)):
        printed += os.read(master, 1 << 16)
    os.close(master)
    try:
        assert serves((match[1].decode(), int(match[2])))
        assert service.process.poll() is None
    finally:
        assert service.stop() == 0


def test_a_log_that_nobody_reads_holds_nobody_up(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, F_SETPIPE_SZ, 4096)
    service = Service(tmp_path, "--log-level", "debug", stderr=writer)
    os.close(writer)
    address = service.ready()
    for _ in range(300):                # at debug level, this fills the pipe many times
        assert serves(address)
    assert service.stop() == 0
    os.close(reader)


def test_a_log_on_a_full_disk_holds_nobody_up(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        service = Service(tmp_path, stderr=full)
    assert serves(service.ready())
    assert service.stop() == 0


def test_logs_in_json_are_one_object_a_line(tmp_path: Path) -> None:
    """This includes the ready line, the console's lines, and the warnings that have a frame in text
    logs."""
    listener = ("--override", "ottla.console.listener=127.0.0.1:0")
    service = Service(tmp_path, "--log-format", "json", *listener)
    assert service.process.stdout is not None
    ready, console = (json.loads(service.process.stdout.readline()) for _ in range(2))
    assert ready["message"].startswith("ottla ready: node 4 on PLAINTEXT://")
    assert console["message"].startswith("ottla console of localhost:")
    port = int(console["message"].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"no request\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 400"
    service.wait_for('"logger": ?"ottla.console", ?"message": ?"a client at 127.0.0.1 sent an inv')
    assert service.stop() == 0
    lines = [json.loads(line) for line in service.text().splitlines()]
    for line in (ready, console, *lines):
        assert {"time", "level", "logger", "message"} <= line.keys()
        assert RFC_3339.fullmatch(line["time"]), line
        assert "****" not in line["message"]
    [warned] = [line for line in lines if line["message"].startswith("ATTENTION: log.dirs: ")]
    assert warned["level"] == "WARNING"
    assert lines[-1]["message"] == "stopped: all data are on disk"


def test_the_reason_of_a_failed_start_is_in_the_logs_form(tmp_path: Path) -> None:
    service = Service(tmp_path, "--log-format", "json", "--override", "num.partitions=none")
    assert service.process.wait(30) == 2
    said = json.loads(service.text().splitlines()[-1])
    assert said["level"] == "ERROR" and said["message"].startswith("ottla: num.partitions")


def test_a_console_that_cannot_be_configured_is_refused_before_anything_is_served(
    tmp_path: Path,
) -> None:
    broken = tmp_path / "client.properties"
    broken.write_text("sasl.username=\\u12\n")
    for named, why in ((tmp_path / "absent", "No such file"), (broken, "line 1: sasl.username")):
        service = Service(
            tmp_path, "--override", "ottla.console.listener=127.0.0.1:0",
            "--override", f"ottla.console.config={named}",
        )
        assert service.process.wait(WAIT_SECONDS) == 2
        assert service.process.stdout is not None and not service.process.stdout.read()
        said = service.text().splitlines()[-1]
        assert said.startswith(f"ottla: ottla.console.config: cannot read {named}: {why}"), said
        assert not (tmp_path / "data").exists(), "a refused start leaves nothing behind"


def test_the_console_serves_although_the_first_log_directory_has_failed(tmp_path: Path) -> None:
    service = Service(tmp_path)
    service.ready()
    assert service.stop() == 0
    (tmp_path / "file").write_text("no directory can be below this")
    service = Service(
        tmp_path, "--override", f"log.dirs={tmp_path / 'file' / 'a'},{tmp_path / 'data'}",
        "--override", "ottla.console.listener=127.0.0.1:0",
    )
    service.ready()
    until((tmp_path / "data" / "console.sqlite").exists, "the console writes its history")
    assert service.stop() == 0


def test_lines_of_text_have_a_time_with_a_zone(service: Service) -> None:
    service.ready()
    lines = [line for line in service.text().splitlines() if " ottla.server: " in line]
    assert lines and all(RFC_3339.fullmatch(line.split()[0]) for line in lines)


def test_an_empty_directory_has_no_last_stop(tmp_path: Path) -> None:
    first = Service(tmp_path, "--override", "num.partitions=1")
    first.ready()
    assert "settings from" in first.text() and ", 1 override;" in first.text()
    assert "recovery: no log had to be checked" in first.text()
    assert first.stop() == 0
    second = Service(tmp_path)
    second.ready()
    assert "recovery: the last stop was clean" in second.text()
    assert second.stop() == 0


def test_ipv6_addresses_stand_in_brackets(tmp_path: Path) -> None:
    service = Service(tmp_path, "--override", "listeners=PLAINTEXT://[::1]:0")
    host, port = service.ready()
    assert host == "::1"
    expected = f"listening on [::1]:{port}, advertised as PLAINTEXT://[::1]:{port}"
    assert expected in service.text()
    assert service.stop() == 0


def test_kafkas_variables_start_a_broker(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("node.id=4\n")
    service = Service(tmp_path, "--env", env=os.environ | {
        "KAFKA_LISTENERS": "PLAINTEXT://localhost:0", "KAFKA_LOG_DIRS": str(tmp_path / "mine"),
        "KAFKA_HEAP_OPTS": "-Xmx1g",
    })
    assert serves(service.ready())
    assert service.stop() == 0
    assert (tmp_path / "mine" / "meta.properties").exists()


def test_a_start_that_is_refused_says_what_to_do(tmp_path: Path) -> None:
    kafka = tmp_path / "data"
    (kafka / "__cluster_metadata-0").mkdir(parents=True)
    (kafka / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=abc\n")
    service = Service(tmp_path)
    assert service.process.wait(WAIT_SECONDS) == 1
    assert "ottla log import --help" in service.text().splitlines()[-1]
    service = Service(tmp_path, "--override", "listeners=PLAINTEXT://no-such.invalid:9092")
    assert service.process.wait(WAIT_SECONDS) == 1
    (kafka / "meta.properties").unlink()
    (kafka / "__cluster_metadata-0").rmdir()
    service = Service(tmp_path, "--override", "listeners=PLAINTEXT://no-such.invalid:9092")
    assert service.process.wait(WAIT_SECONDS) == 1
    last = service.text().splitlines()[-1]
    assert last.startswith("ottla: listener PLAINTEXT cannot listen on no-such.invalid:9092")


def test_a_directory_of_apache_kafka_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """Also if the node.id fits. Without Kafka's mark of a clean stop, its next start would have to
    recover all logs."""
    kafka = write_kafka(tmp_path / "data")
    before = content(kafka)
    for _ in range(2):
        service = Service(tmp_path, "--override", f"node.id={NODE}")
        assert service.process.wait(WAIT_SECONDS) == 1
        refusal, hint = service.text().splitlines()[-2:]
        assert "log.dirs has 5 partitions (__cluster_metadata-0 among them) without" in refusal
        assert f"ottla: {kafka} is a log directory of Apache Kafka: `" in hint
        assert content(kafka) == before


@pytest.mark.parametrize("activated", [True, False])
def test_the_command_in_a_hint_works_in_the_terminal_that_shows_it(
    service: Service, activated: bool
) -> None:
    """`make run` does not put `ottla` on the PATH."""
    service.ready()
    own = Path(sys.prefix) / "bin"
    environment = os.environ | {"PATH": f"{own}:/usr/bin:/bin" if activated else "/usr/bin:/bin"}
    environment.pop("VIRTUAL_ENV", None)
    second = subprocess.run(
        [sys.executable, "-m", "ottla", "server", "start", service.properties],
        stderr=subprocess.PIPE, text=True, timeout=WAIT_SECONDS, env=environment,
    )  # fmt: skip
    [command] = re.findall("`(.* server stop .*)`", second.stderr)
    assert (command.split()[0] == "ottla") == activated
    assert subprocess.run(command, shell=True, env=environment, check=False).returncode == 0
    assert service.process.wait(WAIT_SECONDS) == 0


def test_what_ends_a_start_is_said_without_numbers(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for setting, said in (
            (f"listeners=PLAINTEXT://{address}",
             f"listener PLAINTEXT cannot listen on {address}: Address already in use;"
             " set another address in `listeners`"),
            (f"ottla.http.listener={address}",
             f"ottla.http.listener: cannot listen on {address}: Address already in use;"
             " set another address"),
        ):  # fmt: skip
            service = Service(tmp_path, "--override", setting)
            assert service.process.wait(WAIT_SECONDS) != 0
            assert service.text().splitlines()[-1] == f"ottla: {said}"
            assert not (tmp_path / "data").exists(), "a refused start leaves nothing behind"


def test_a_start_tells_every_bad_value_and_every_warning_at_once(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("num.partitions=0\nlog.retentoin.ms=1\nnode.id=x\n")
    done = subprocess.run(
        [sys.executable, "-m", "ottla.broker.main", "server", "start", "p"],
        cwd=tmp_path, capture_output=True, text=True,
    )
    assert done.returncode == 2
    warning, *errors = done.stderr.splitlines()
    assert "log.retentoin.ms is not a setting of Kafka or Ottla" in warning
    assert sorted(line.partition(": '")[0] for line in errors) == [
        "ottla: node.id", "ottla: num.partitions"]


def test_a_missing_file_of_settings_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ottla.broker.main", "server", "start", "no.properties"],
        cwd=tmp_path, capture_output=True, text=True,
    )
    assert done.returncode == 2
    assert done.stderr == "ottla: no.properties: no such file or directory\n"
