"""A short run of `make chaos`: stock clients on three brokers, a kill -9 of a leader, of the
controller, of ZooKeeper, a process that stands still, and all brokers killed at once."""

from __future__ import annotations

from pathlib import Path

from compat_tests.chaos.__main__ import run
from compat_tests.requirements import zookeeper

FAULTS = ["kill a leader", "pause any", "kill the controller", "kill ZooKeeper", "kill all"]


def test_no_promise_is_broken_amid_faults(tmp_path: Path) -> None:
    zookeeper()
    report = run(tmp_path, 0, 18, FAULTS)
    print(report)
    assert not report.problems, str(report)
    assert report.acked > 1000
