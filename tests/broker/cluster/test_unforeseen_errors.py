"""An unexpected error does not end the tasks on which the cluster depends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.broker.cluster import controller
from tests.broker.cluster.running_cluster import RunningCluster


def test_the_controller_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the metadata would show a dead broker as a leader until the next event."""
    monkeypatch.setattr(controller, "LOOK_AGAIN_SECONDS", 0)
    with RunningCluster(tmp_path, 3) as cluster:
        member = cluster.servers[cluster.controller].member
        assert member is not None
        election, failed = member.controller.election, list[RuntimeError]()
        holder = election.holder

        async def fails_once(changed: Any) -> Any:
            if not failed:
                failed.append(RuntimeError("not foreseen"))
                raise failed[0]
            return await holder(changed)

        monkeypatch.setattr(election, "holder", fails_once)
        gone = cluster.controller % 3 + 1
        session = cluster.sessions[gone]

        async def falls_silent() -> None:
            session.cut()

        async def hears_again() -> None:
            session.join()

        cluster.run(falls_silent())
        cluster.expire(gone)
        image = cluster.servers[cluster.controller].metadata_log
        cluster.until(lambda: gone not in image.image.brokers, "the dead broker is removed")
        cluster.run(hears_again())
        assert failed and "not foreseen" in caplog.text
