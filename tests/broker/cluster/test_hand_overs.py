"""A broker that stops asks the controller to move what it leads, and waits until that is done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.replication.metadata import MetadataImage
from tests.broker.cluster.running_cluster import RunningCluster, create


def test_a_controller_that_is_busy_following_its_own_decisions_knows_who_asks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker has read of its new registration, but the controller's own partitions have not
    followed that decision yet, for instance because they follow thousands of new partitions."""
    with RunningCluster(tmp_path, 3) as cluster:
        assert create(cluster, 1, "t", 3, 3) == 0
        controller = cluster.controller
        node_id = controller % 3 + 1
        deciding = cluster.servers[controller].metadata_log
        log = cluster.servers[node_id].metadata_log
        before = log.image.brokers[node_id].epoch
        released: list[bool] = []

        def knows(image: MetadataImage) -> bool:
            broker = image.brokers.get(node_id)
            return broker is not None and broker.epoch > before

        def busy(old: MetadataImage, new: MetadataImage, topics: object) -> Iterator[None]:
            while knows(new) and not released:
                yield

        deciding.subscribe(busy)
        cluster.expire(node_id)
        cluster.until(lambda: knows(log.image), "it is registered again")
        assert not knows(deciding.image)
        cluster.loop.call_soon_threadsafe(
            lambda: cluster.loop.call_later(0.3, released.append, True))
        cluster.stop(node_id)
        assert "could not be handed over" not in caplog.text
