"""Runs `make chaos` for two minutes: stock clients use three brokers, while one fault after the
other happens. As root, the faults include cut connections, silent machines, full and failing disks,
and power cuts."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.chaos.__main__ import run
from compat_tests.requirements import zookeeper

SECONDS = 120
FIRST = ["kill a leader", "kill the controller", "kill ZooKeeper", "kill all"]


@pytest.mark.long
def test_no_promise_is_broken_amid_faults(tmp_path: Path) -> None:
    zookeeper()
    report = run(tmp_path, SECONDS, 18, first=FIRST)
    print(report)
    assert not report.problems, str(report)
    assert report.acked > 1000
    assert set(FIRST) <= set(report.faults)
