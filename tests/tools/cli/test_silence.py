"""`ottla cluster start` reports a dead ZooKeeper and starts it again, and reports a process that
hangs."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.tools.cli.cluster_upkeep import Upkeep
from ottla.tools.cli.local_cluster import LocalCluster
from ottla.tools.cli.silence import ASK_SECONDS, SILENT_SECONDS
from ottla.tools.zookeeper import local
from tests.broker.running import RunningBroker


class Seconds:
    """A clock that the test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A cluster whose ZooKeeper is a process that does nothing; the test answers in its place."""

    def __init__(self, directory: Path, **more: list[str]) -> None:
        self.cluster = LocalCluster(directory, 1, **more)  # type: ignore[arg-type]
        assert self.cluster.zookeeper is not None
        self.zookeeper, self.broker = self.cluster.zookeeper, self.cluster.brokers[1]
        self.clock, self.said = Seconds(), list[str]()

    def watch(self, *kept: object) -> Upkeep:
        return Upkeep([*kept], self.said.append, self.clock)  # type: ignore[list-item]

    @property
    def pid(self) -> int:
        assert self.zookeeper.process is not None
        return self.zookeeper.process.pid


def idle() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\nexec tail -f /dev/null\n")
    program.chmod(0o755)
    monkeypatch.setattr(local, "java", lambda: str(program))
    monkeypatch.setattr(local, "jars", lambda: tmp_path)
    monkeypatch.setattr(local.LocalZooKeeper, "answers", lambda _: True)
    made = Watched(tmp_path / "data")
    made.zookeeper.start()
    yield made
    made.cluster.kill()


@pytest.fixture
def listening(watched: Watched) -> Iterator[Callable[[], socket.socket]]:
    """Listens on ZooKeeper's port. Yields a function that accepts a connection of `ottla cluster
    start`, and checks its question."""
    with socket.create_server(("127.0.0.1", watched.zookeeper.port)) as server:

        def accept() -> socket.socket:
            connection = server.accept()[0]
            assert connection.recv(100) == b"srvr"
            return connection

        yield accept


def ask(watched: Watched, upkeep: Upkeep) -> None:
    """Lets `upkeep` make a connection and send its question."""
    watched.clock.now += ASK_SECONDS
    upkeep.turn()
    upkeep.turn()


def test_a_zookeeper_that_dies_is_reported_and_started_again(watched: Watched) -> None:
    upkeep, first = watched.watch(watched.zookeeper), watched.pid
    watched.zookeeper.kill()
    upkeep.turn()
    assert watched.said == [f"ZooKeeper has ended with status -9, see {watched.zookeeper.log};"
                            " it starts again in 1 s"]
    watched.clock.now += 1.0
    upkeep.turn()
    assert watched.said[1:] == ["ZooKeeper was started again"]
    assert watched.pid != first and watched.zookeeper.process is not None
    assert watched.zookeeper.process.poll() is None


def test_a_process_that_hangs_is_reported_once_and_once_more_when_it_answers(
    watched: Watched, listening: Callable[[], socket.socket]
) -> None:
    upkeep = watched.watch(watched.zookeeper)
    for _ in range(2):                          # it answers: nothing is said
        ask(watched, upkeep)
        with listening() as connection:
            connection.sendall(b"Mode: standalone")
        upkeep.turn()
    assert not watched.said
    for _ in range(2):
        ask(watched, upkeep)
        connection = listening()
        watched.clock.now += SILENT_SECONDS - 1 / 1024
        upkeep.turn()
        assert not watched.said
        watched.clock.now += 1 / 1024
        upkeep.turn()
        hangs = f"ZooKeeper (pid {watched.pid}) has not answered for 15 s: it hangs, or the machine"
        assert len(watched.said) == 1 and watched.said[0].startswith(hangs), watched.said
        watched.clock.now += 1000.0
        connection.sendall(b"Mode: standalone")
        upkeep.turn()
        connection.close()
        assert watched.said[1:] == [f"ZooKeeper (pid {watched.pid}) answers again"]
        watched.said.clear()


def test_a_process_that_hung_and_is_killed_starts_again_and_is_asked_again(
    watched: Watched, listening: Callable[[], socket.socket]
) -> None:
    upkeep = watched.watch(watched.zookeeper)
    ask(watched, upkeep)
    watched.clock.now += SILENT_SECONDS
    upkeep.turn()
    listening().close()             # a closed connection is not an answer
    watched.zookeeper.kill()
    upkeep.turn()
    watched.clock.now += 1.0
    upkeep.turn()
    assert len(watched.said) == 3 and watched.said[2] == "ZooKeeper was started again"
    ask(watched, upkeep)
    listening().close()


def test_a_process_that_does_not_listen_is_not_reported(watched: Watched) -> None:
    """A broker does not listen while it still reads its logs."""
    upkeep = watched.watch(watched.zookeeper)
    for _ in range(9):
        ask(watched, upkeep)
    assert not watched.said


def test_a_broker_answers_and_one_with_other_listeners_is_not_asked(
    watched: Watched, tmp_path: Path
) -> None:
    with RunningBroker(tmp_path / "broker") as running:
        watched.broker.port, watched.broker.process = running.port, idle()
        upkeep = watched.watch(watched.broker)
        ask(watched, upkeep)
        upkeep.turn()               # the answer
        watched.clock.now += 1.0
        assert not watched.said
    secured = LocalCluster(tmp_path / "s", 1, settings=["listeners=SSL://127.0.0.1:0"])
    assert secured.brokers[1].question is None and watched.broker.question is not None
