"""`ottla cluster start` ends all its processes, also at a second Ctrl-C."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.tools.cli.local_cluster import LocalBroker, LocalCluster


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

    def stop(broker: LocalBroker) -> None:
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
