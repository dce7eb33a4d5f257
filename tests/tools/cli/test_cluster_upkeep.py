"""`ottla cluster start` starts a broker again that has ended. After each crash it waits longer."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from ottla.tools.cli.cluster_upkeep import (
    LONGEST_SECONDS,
    STEADY_SECONDS,
    Restarts,
    Upkeep,
    mark_of,
    say,
)
from ottla.tools.cli.local_cluster import LocalBroker, LocalCluster, forget_others
from tests.tools.cli.ottla_command import Ottla


class Shell:
    """A broker whose process ends by itself, each time with the next of the statuses."""

    name, log = "broker 2", Path("broker-2.log")
    held, restart = False, "ottla cluster restart-broker 2 --dir /there"
    question = None

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(["sh", "-c", f"exit {self.statuses.pop(0)}"])


class Seconds:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_broker_that_dies_is_reported_and_started_again() -> None:
    said: list[str] = []
    clock, broker = Seconds(), Shell(3, 0, 0)
    upkeep = Upkeep([broker], said.append, clock)
    upkeep.turn()
    assert said == ["broker 2 has ended with status 3, see broker-2.log; it starts again in 1 s"]
    clock.now += 1.0
    upkeep.turn()
    assert broker.statuses == [0]
    upkeep.turn()                           # it was stopped cleanly, so it starts again at once
    again = "broker 2 was started again"
    assert said[1:] == [again, "broker 2 was stopped; it starts again", again]
    assert not broker.statuses


def test_a_broker_that_is_held_stays_stopped_until_it_no_longer_is() -> None:
    said: list[str] = []
    broker = Shell(0, 0)
    broker.held = True
    upkeep = Upkeep([broker], said.append, Seconds())
    upkeep.turn()
    assert said == [f"broker 2 was stopped; `{Shell.restart}` starts it again"]
    upkeep.turn()
    assert broker.statuses == [0], "not started"
    broker.held = False
    upkeep.turn()
    assert not broker.statuses, "started"


def test_the_command_that_starts_a_broker_again_works_in_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial user had chosen a directory for a cluster, but the command that was shown to them
    lacked `--dir`."""
    monkeypatch.chdir(tmp_path)
    broker = LocalBroker(2, Path("my data"), 1, "127.0.0.1:1/x", [])
    assert broker.restart == f"ottla cluster restart-broker 2 --dir '{tmp_path}/my data'"


def test_a_line_of_the_upkeep_has_its_time_as_brokers_write_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say("broker 2 was stopped")
    at, text = capsys.readouterr().err.rstrip().split(" ", 1)
    assert text == "broker 2 was stopped" and at[-6] in "+-" and at[-3] == ":", at
    assert datetime.fromisoformat(at).utcoffset() is not None


def test_each_crash_soon_after_the_last_one_doubles_the_wait() -> None:
    restarts, now, waits = Restarts(), 0.0, []
    for _ in range(8):
        restarts.started(now)
        now += 1.0
        waits.append(restarts.ended(now, 1))
    assert waits == [1, 2, 4, 8, 16, LONGEST_SECONDS, LONGEST_SECONDS, LONGEST_SECONDS]
    restarts.started(now)
    assert restarts.ended(now + STEADY_SECONDS, 1) == 1
    restarts.started(now)
    assert restarts.ended(now, 0) == 0, "stopped in order"


def test_a_start_that_fails_is_tried_again_later() -> None:
    said: list[str] = []
    clock, broker = Seconds(), Shell(1)     # then start() has no status left, and raises
    upkeep = Upkeep([broker], said.append, clock)
    upkeep.turn()
    clock.now += 1.0
    upkeep.turn()
    assert said[1].startswith("broker 2 did not start (next attempt in 2 s): ")


def test_restarting_a_broker_that_does_not_run_names_those_there_are(
    ottla: Ottla, tmp_path: Path
) -> None:
    for command in ("stop-broker", "restart-broker"):
        done = ottla(f"cluster {command} 2 --dir {tmp_path}")
        assert done.status == 1 and done.err == (
            f"ottla cluster {command}: {tmp_path} is not the directory of a cluster: give the"
            " directory that `ottla cluster start` was given: --dir DIR\n")
    (tmp_path / "broker-1").mkdir()
    done = ottla(f"cluster restart-broker 7 --dir {tmp_path}")
    assert done.status == 1
    assert f"{tmp_path} has no broker 7; it has the brokers 1" in done.err
    done = ottla(f"cluster stop-broker 1 --dir {tmp_path}")
    assert done.status == 1
    assert done.err.endswith(
        f"broker 1 in {tmp_path} is not running: is `ottla cluster start` running there?"
        " For a cluster in another directory, use --dir\n")


def test_a_broker_that_a_later_start_leaves_out_is_named(ottla: Ottla, tmp_path: Path) -> None:
    """A cluster of four brokers that was started again with three had partitions without a leader,
    and `restart-broker 4` waited for a minute."""
    for number in (1, 2, 3, 4):
        (tmp_path / f"broker-{number}").mkdir()
        mark_of(tmp_path, number).touch()
    assert forget_others(LocalCluster(tmp_path, 3, zookeeper="127.0.0.1:1/x")) == [4]
    assert [mark_of(tmp_path, number).exists() for number in (1, 2, 3, 4)] == [True] * 3 + [False]
    with (tmp_path / ".lock").open("w") as lock:        # `ottla cluster start` holds it
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in ("stop-broker", "restart-broker"):
            done = ottla(f"cluster {command} 4 --dir {tmp_path}")
            assert done.status == 1
            assert done.err.endswith("start the cluster again with --brokers 4\n")


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that uses the directory of broker 1, as a broker does, until SIGTERM."""
    home = tmp_path / "broker-1"
    home.mkdir()
    program = (
        "import fcntl, sys\n"
        f"lock = open({str(home / '.lock')!r}, 'w')\n"
        "fcntl.flock(lock, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_stopping_a_broker_marks_it_and_its_next_start_forgets_that(
    ottla: Ottla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    holder: subprocess.Popen[str],
) -> None:
    broker = LocalBroker(1, tmp_path, 1, "127.0.0.1:1/x", [])
    line = f"cluster stop-broker 1 --dir {tmp_path}"
    done = ottla(f"cluster restart-broker 1 --dir {tmp_path}")
    assert done.status == 1 and done.err.endswith(
        f"`ottla cluster start` is not running for {tmp_path}, so it cannot start broker 1"
        " again\n")
    done = ottla(f"cluster start --port 0 {tmp_path}")
    assert done.status == 1 and done.err.endswith(f"Stop them first: kill {holder.pid}\n")
    (tmp_path / "zookeeper").mkdir()
    with (tmp_path / "zookeeper" / "lock").open("w") as lock:      # stopped last
        lock.write("4711")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = ottla(f"cluster start --port 0 {tmp_path}")
    assert done.status == 1 and done.err.endswith(f"Stop them first: kill {holder.pid}\n")
    assert ottla(f"{line} --dry-run").err == "would have stopped broker 1\n"
    assert not broker.held and holder.poll() is None
    assert ottla(line).err == "stopped broker 1\n"
    assert broker.held and holder.wait(20) == -signal.SIGTERM
    for again in (line, f"{line} --dry-run"):
        done = ottla(again)
        assert done.status == 1 and done.err == (
            "ottla cluster stop-broker: broker 1 has already been stopped;"
            f" `ottla cluster restart-broker 1 --dir {tmp_path}` starts it again\n")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: None)
    broker.start()
    assert not broker.held
