"""A broker's partitions follow the image, but only if it is about this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.log.clock import Clock
from ottla.log.config import LogConfig
from ottla.log.disk import Disk
from ottla.log.storage import Storage
from ottla.replication.metadata import (
    BrokerGone,
    BrokerImage,
    BrokerRegistered,
    MetadataImage,
    PartitionState,
    TopicCreated,
)
from ottla.replication.replicas import Replicas


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(Disk(), Clock(), [str(tmp_path)], node_id=1)


def registered(incarnation: str, epoch: int) -> BrokerRegistered:
    return BrokerRegistered(BrokerImage(1, epoch, (), None, incarnation))


def test_nothing_is_led_by_an_image_that_names_another_process_of_the_same_id(
    storage: Storage,
) -> None:
    replicas = Replicas(1, storage, lambda image, name: LogConfig(), True, incarnation="new")
    led_here = PartitionState(1, 4, (1, 2), (1, 2))
    led_elsewhere = PartitionState(2, 0, (2, 1), (1, 2))
    old = MetadataImage.empty("c").apply([
        registered("old", 5), TopicCreated("t", b"t" * 16, (led_here, led_elsewhere))
    ])
    list(replicas.follow(MetadataImage.empty(), old, old.topics))
    first, second = replicas.partition("t", 0), replicas.partition("t", 1)
    assert first is not None and second is not None, "the logs are here all the same"
    assert not first.led_here
    gone = old.apply([BrokerGone(1)])
    list(replicas.follow(old, gone, ()))
    assert not first.led_here
    new = gone.apply([registered("new", 9)])
    list(replicas.follow(gone, new, ()))
    assert first.led_here and first.leader_epoch == 4
    assert not second.led_here and second.leader_id == 2
