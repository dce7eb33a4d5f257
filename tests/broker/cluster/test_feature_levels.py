"""Levels of features in a cluster whose brokers do not all have the same version."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.cluster import cluster_session
from ottla.broker.cluster.feature_levels import SUPPORTED_FEATURES
from ottla.log.storage.log_directory import StorageRefused
from ottla.replication.controller.features import UpgradeType
from ottla.replication.coordination import Watch
from ottla.replication.metadata import Decision, FeatureSet
from ottla.replication.registration import IDS
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import UpdateFeaturesRequest
from tests.broker.cluster.running_cluster import RunningCluster
from tests.simulation.zookeeper import MemoryCoordination

NAME = "transaction.version"
OLDER = SUPPORTED_FEATURES | {NAME: (0, 1)}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with RunningCluster(tmp_path) as running:
        yield running


def update(cluster: RunningCluster, level: int, kind: UpgradeType) -> tuple[int, str | None]:
    """Change the feature's level; returns the answer's error code and message."""
    item = UpdateFeaturesRequest.FeatureUpdate(
        feature=NAME, max_version_level=level, upgrade_type=int(kind)
    )
    request = UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[item], validate_only=False)
    with cluster.client(1) as client:
        answer = client.call(request, 2)
    return answer.error_code, answer.error_message


def start_older(cluster: RunningCluster, node_id: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(cluster_session, "SUPPORTED_FEATURES", OLDER)
        cluster.start(node_id)


def level(cluster: RunningCluster, node_id: int) -> int:
    return cluster.servers[node_id].metadata_log.image.features[NAME]


def test_an_older_broker_does_not_start_where_a_newer_level_is_used(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.stop(3)
    with pytest.raises(StorageRefused, match=r"feature transaction\.version at level 2.*0 to 1"):
        start_older(cluster, 3, monkeypatch)
    cluster.start(3)


def test_a_level_is_raised_when_the_last_older_broker_has_been_replaced(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert update(cluster, 1, UpgradeType.SAFE_DOWNGRADE) == (0, None)
    cluster.stop(3)
    start_older(cluster, 3, monkeypatch)
    code, message = update(cluster, 2, UpgradeType.UPGRADE)
    assert code == ErrorCode.INVALID_UPDATE_VERSION and message is not None
    assert "Broker 3 only supports versions 0-1" in message
    cluster.stop(3)
    cluster.start(3)
    assert update(cluster, 2, UpgradeType.UPGRADE) == (0, None)
    cluster.until(lambda: {level(cluster, node) for node in (1, 2, 3)} == {2}, "all know it")


def test_a_newer_controller_begins_no_level_that_others_may_not_support(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ottla.broker.cluster.controller.default_levels", lambda: {"newer.version": 1}
    )
    former = cluster.controller
    cluster.stop(former)
    cluster.until(
        lambda: any(s.metadata_log.is_controller for s in cluster.servers.values()), "another one"
    )
    node_id = cluster.controller
    assert "newer.version" not in cluster.servers[node_id].metadata_log.image.features


def test_a_broker_that_meets_a_level_that_it_does_not_support_ends_with_the_reason(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = cluster.controller
    older = next(node for node in (1, 2, 3) if node != controller)
    monkeypatch.setattr(cluster.servers[controller].session, "features", {
        **SUPPORTED_FEATURES, "newer.version": (0, 1),
    })
    decide = cluster.servers[controller].metadata_log.decide
    cluster.run(decide(lambda image: Decision([FeatureSet("newer.version", 1)], None)))
    failure = cluster.servers[older].failure
    cluster.until(failure.done, "it ends")
    assert "uses the feature newer.version at level 1" in failure.result()
    assert "does not know it" in failure.result()
    failure = cluster.servers[controller].failure
    assert not failure.done()


def test_a_new_controller_raises_no_level_before_it_knows_what_the_brokers_support(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert update(cluster, 1, UpgradeType.SAFE_DOWNGRADE) == (0, None)
    former = cluster.controller
    newer, older = (node for node in (1, 2, 3) if node != former)
    cluster.stop(older)
    start_older(cluster, older, monkeypatch)
    asked: list[asyncio.Future[None]] = []
    children = MemoryCoordination.children

    async def held(self: MemoryCoordination, path: str, watch: Watch | None = None) -> list[str]:
        if path == IDS:
            asked.append(cluster.loop.create_future())
            await asked[-1]
        return await children(self, path, watch)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryCoordination, "children", held)
        cluster.run(cluster.servers[former].metadata_log.settle())
        cluster.expire(former)
        cluster.until(lambda: asked, "a new controller looks for the brokers")
        looking = [n for n in (newer, older) if cluster.servers[n].metadata_log.is_controller]
        assert not looking, "it decides before it knows them"
    for each in asked:
        cluster.loop.call_soon_threadsafe(each.set_result, None)
    cluster.until(
        lambda: any(s.metadata_log.is_controller for s in cluster.servers.values()), "a controller"
    )
    code, message = update(cluster, 2, UpgradeType.UPGRADE)
    assert code == ErrorCode.INVALID_UPDATE_VERSION
    assert message is not None and f"Broker {older} only supports versions 0-1" in message
