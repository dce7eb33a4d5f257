"""`ottla cluster start` ends all its processes, even if Ctrl-C is pressed twice."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker import first_steps
from ottla.tools.cli import local_cluster
from ottla.tools.cli.local_cluster import LocalBroker, LocalCluster
from ottla.tools.zookeeper import local
from ottla.tools.zookeeper.local import LocalZooKeeper, ZooKeeperFailed
from tests.tools.cli.ottla_command import Ottla


@pytest.mark.parametrize("at", ["start", "stop"])
def test_a_second_ctrl_c_ends_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    cluster = LocalCluster(tmp_path, 3, zookeeper="127.0.0.1:1/x")

    def start(broker: LocalBroker) -> None:
        broker.process = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
        )

    def wait_ready(broker: LocalBroker) -> None:
        if at == "start" and broker.node_id == 2:
            raise KeyboardInterrupt

    def stop(broker: LocalBroker, cut_off: object) -> None:
        if broker.node_id == 2:
            raise KeyboardInterrupt
        assert broker.process is not None
        broker.process.terminate()
        broker.process.wait()

    monkeypatch.setattr(LocalBroker, "start", start)
    monkeypatch.setattr(LocalBroker, "wait_ready", wait_ready)
    monkeypatch.setattr(LocalBroker, "stop", stop)
    with pytest.raises(KeyboardInterrupt), cluster:
        pass
    processes = [broker.process for broker in cluster.brokers.values()]
    assert all(process is not None and process.poll() is not None for process in processes)


@pytest.mark.parametrize(("at", "running", "said"), [
    ("run", [1, 2], ["stopping 2 brokers, one after the other", "stopped: 2 brokers"]),
    ("run", [2], ["stopping 1 broker", "stopped: 1 broker"]),
    ("run", [], ["stopped: 0 brokers"]),
    ("start", [1, 2], ["stopped: 2 brokers"]),
])
def test_ctrl_c_ends_with_a_line_that_says_that_all_have_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, running: list[int], said: list[str]
) -> None:
    """A broker that `ottla cluster stop-broker` stopped earlier is not counted."""
    ended: list[int] = []

    def begin(cluster: LocalCluster) -> None:
        for broker in cluster.brokers.values():
            code = None if broker.node_id in running else 0
            broker.process = cast(Any, SimpleNamespace(poll=lambda code=code: code))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(local_cluster.signal, "signal", lambda *_: None)
    monkeypatch.setattr(LocalCluster, "start", interrupt if at == "start" else begin)
    monkeypatch.setattr(LocalBroker, "stop", lambda broker, _: ended.append(broker.node_id))
    monkeypatch.setattr(LocalBroker, "kill", lambda broker: ended.append(broker.node_id))
    monkeypatch.setattr(local_cluster, "Upkeep", interrupt)
    done = Ottla("")(f"cluster start {tmp_path} --brokers 2 --port 0 --zookeeper 127.0.0.1:1/x")
    if at == "run":
        ready, following = done.out.splitlines()
        first = ready.removeprefix("ottla cluster ready: ").partition(",")[0]
        assert following == (
            f"next, in another terminal: {first_steps.program()} cluster info -b {first};"
            " Ctrl-C here stops the cluster, which keeps its records")
    lines = [line.partition(" ")[2] for line in done.err.splitlines()]
    assert done.status == 0 and ended == [1, 2]
    assert lines[-len(said):] == said, done.err


@pytest.mark.parametrize("ignored", [(), (signal.SIGHUP,)])
def test_a_cluster_under_nohup_survives_the_closing_of_its_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ignored: tuple[int, ...]
) -> None:
    """nohup starts a program with SIGHUP ignored."""
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    set_here: list[int] = []
    monkeypatch.setattr(local_cluster.signal, "signal", lambda one, _: set_here.append(one))
    monkeypatch.setattr(
        local_cluster.signal, "getsignal",
        lambda one: signal.SIG_IGN if one in ignored else signal.SIG_DFL)
    monkeypatch.setattr(LocalCluster, "start", interrupt)
    line = f"cluster start {tmp_path} --brokers 1 --port 0 --zookeeper 127.0.0.1:1/x"
    assert Ottla("")(line).status == 0
    assert (signal.SIGHUP in set_here) == (not ignored)


def test_two_zookeepers_do_not_share_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one may still run after its `ottla cluster start` was killed."""
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\nexec tail -f /dev/null\n")
    program.chmod(0o755)
    monkeypatch.setattr(local, "java", lambda: str(program))
    monkeypatch.setattr(local, "jars", lambda: tmp_path)
    monkeypatch.setattr(LocalZooKeeper, "answers", lambda _: True)
    first, second = LocalZooKeeper(tmp_path / "data"), LocalZooKeeper(tmp_path / "data")
    first.start()
    try:
        with pytest.raises(ZooKeeperFailed, match="still uses"):
            second.start()
        second.end_former()
        assert first.process is not None and first.process.wait(20) == -signal.SIGTERM
    finally:
        first.kill()
    second.end_former()
    second.start()
    second.kill()


def test_a_zookeeper_that_hangs_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper accepts connections, but does not answer. A broker that hands over its leaderships
    would wait for the answers."""
    cluster = LocalCluster(tmp_path, 1)
    assert cluster.zookeeper is not None
    with socket.create_server(("127.0.0.1", cluster.zookeeper.port)):
        for each in (cluster.zookeeper, cluster.brokers[1]):
            each.process = subprocess.Popen(
                ["sh", "-c", "trap '' TERM; echo; exec cat"], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )  # fmt: skip
            assert each.process.stdout is not None
            each.process.stdout.readline()      # it ignores SIGTERM from here on
        monkeypatch.setattr(local_cluster, "CUT_OFF_STOP_SECONDS", 0.01)
        cluster.stop()
    assert [each.process and each.process.wait() for each in cluster.processes] == [-9, -9]


@pytest.mark.parametrize(("port", "said"), [
    (99999, "argument --port: '99999': expected a whole number, 0 to 65535; see ottla"),
    (65534, "3 brokers would need ports up to 65536; the highest possible port is 65535; see ottla")
])
def test_ports_that_there_are_not_are_refused_before_anything_starts(
    port: int, said: str, tmp_path: Path
) -> None:
    done = Ottla("127.0.0.1:1")(f"cluster start --port {port} {tmp_path / 'data'}")
    assert done.status == 2 and said in done.err and not done.out, done
    assert not (tmp_path / "data").exists()


def test_a_port_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    port, other = local.free_port(), local.free_port()
    monkeypatch.setattr(local.random, "sample", lambda ports, count: [port, other])
    with socket.create_server(("127.0.0.1", port)):
        assert local.free_port() == other
