"""What the controller's log says of brokers that are gone, and of partitions without a leader."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ottla.broker.cluster.leaderless import LOOK_SECONDS
from tests.broker.cluster.running_cluster import RunningCluster, create, leaders


def said(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[str]:
    return [
        each.getMessage() for each in caplog.records
        if each.name == "ottla.controller" and each.levelno == level
    ]


def test_partitions_without_a_leader_are_named_once_and_their_return_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla.controller")
    with RunningCluster(tmp_path, 2) as cluster:
        assert create(cluster, 1, "t", 2, 1) == 0
        stopped = 3 - cluster.controller
        index = leaders(cluster.servers[1], "t").index(stopped)
        cluster.stop(stopped)
        expected = (
            "1 partition has no leader until a replica with all committed records returns:"
            f" t-{index} (in sync: {stopped})"
        )
        cluster.until(lambda: cluster.leap(LOOK_SECONDS) or said(caplog, logging.WARNING), "a line")
        for _ in range(3):
            cluster.leap(LOOK_SECONDS)
        assert said(caplog, logging.WARNING) == [expected], "its stop was no surprise"
        assert any("has stopped" in each for each in said(caplog))
        cluster.start(stopped)
        cluster.until(
            lambda: cluster.leap(LOOK_SECONDS) or "all partitions have a leader again"
            in said(caplog), "they have",
        )


def test_a_broker_that_does_not_say_good_bye_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with RunningCluster(tmp_path, 2) as cluster:
        gone = 3 - cluster.controller
        epoch = cluster.servers[gone].metadata_log.image.brokers[gone].epoch
        cluster.expire(gone)
        cluster.until(lambda: said(caplog, logging.WARNING), "a warning")
        assert said(caplog, logging.WARNING)[0] == (
            f"broker {gone} with broker epoch {epoch} is gone: its session with ZooKeeper has ended"
        )
