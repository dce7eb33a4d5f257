"""kafka-server-start and kafka-server-stop, in the foreground and with -daemon."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

OTTLA = [sys.executable, "-m", "ottla"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which brokers write pid files and output below the test's own directory."""
    (tmp_path / "server.properties").write_text(
        f"listeners=PLAINTEXT://127.0.0.1:0\nnode.id=1\nlog.dirs={tmp_path / 'data'}\n")
    return os.environ | {"XDG_RUNTIME_DIR": str(tmp_path), "LOG_DIR": str(tmp_path)}


def run(environment: dict[str, str], *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [*OTTLA, *words], env=environment, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def ready_line(lines: Sequence[str]) -> str:
    return next(line for line in lines if line.startswith("ottla ready: "))


def test_a_broker_in_the_foreground_is_stopped_by_name(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    command = [*OTTLA, "kafka-server-start", str(tmp_path / "server.properties"),
               "--override", "node.id=7", "--override", f"log.dirs={tmp_path / 'other'}"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as broker:
        assert broker.stdout is not None
        said = ready_line(iter(broker.stdout.readline, ""))     # type: ignore[arg-type]
        assert "node 7" in said and str(tmp_path / "other") in said
        assert run(environment, "kafka-server-stop", "--node-id", "1")[0] == 1
        assert broker.poll() is None
        assert run(environment, "kafka-server-stop", "--node-id", "7") == (0, "")
        assert broker.wait(60) == 0
    status, text = run(environment, "kafka-server-stop")
    assert status == 1 and text.startswith("No kafka server to stop\n")


def test_a_daemon_returns_at_once_and_writes_kafka_server_out(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    out = tmp_path / "kafkaServer.out"
    os.mkfifo(out)                      # its reader sees the daemon's lines, and when it ends
    descriptor = os.open(out, os.O_RDONLY | os.O_NONBLOCK)
    properties = str(tmp_path / "server.properties")
    done = subprocess.run(
        [*OTTLA, "kafka-server-start.sh", "-daemon", properties], env=environment, timeout=60,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    assert done.returncode == 0
    os.set_blocking(descriptor, True)
    with os.fdopen(os.open(out, os.O_RDONLY), encoding="utf-8") as lines:
        os.close(descriptor)
        assert "node 1" in ready_line(iter(lines.readline, ""))     # type: ignore[arg-type]
        assert run(environment, "kafka-server-stop.sh") == (0, "")
        lines.read()                    # ends when the daemon does
    assert run(environment, "kafka-server-stop")[0] == 1


def test_a_process_that_has_a_killed_brokers_number_is_left_alone(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        note = tmp_path / "ottla-kafka-server" / str(other.pid)
        note.parent.mkdir()
        note.touch()                    # what a broker leaves behind after kill -9
        assert run(environment, "kafka-server-stop")[0] == 1
        assert not note.exists()
        other.communicate(b"\n")
    assert other.returncode == 0


@pytest.mark.parametrize(("words", "status", "said"), [
    ((), 1, "usage: kafka-server-start"),
    (("--override", "a=b"), 1, "USAGE: kafka-server-start [-daemon] server.properties"),
    (("/nowhere/server.properties",), 1, "/nowhere/server.properties"),
])
def test_what_cannot_be_started_is_said(
    environment: dict[str, str], words: tuple[str, ...], status: int, said: str
) -> None:
    code, text = run(environment, "kafka-server-start", *words)
    assert (code, said in text) == (status, True), (code, text)
    assert run(environment, "kafka-server-stop")[0] == 1
