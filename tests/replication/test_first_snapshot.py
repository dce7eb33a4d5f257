"""A cluster begins with a standalone broker's metadata: with all of them or none."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.replication import entries
from ottla.replication.cluster_store import (
    CLUSTER_ID,
    KAFKAS_TOPICS,
    NEWEST,
    ClusterRefused,
    ClusterStore,
    cluster_id_text,
    entry_path,
)
from ottla.replication.controller.brokers import broker_registered
from ottla.replication.coordination import CoordinationError, make
from ottla.replication.first_snapshot import NO_RUN, FirstSnapshot, Root, as_first_member
from ottla.replication.metadata import (
    BrokerImage,
    ConfigSet,
    MetadataImage,
    PartitionState,
    TopicCreated,
)
from tests.replication.histories import histories
from tests.simulation.zookeeper import MemoryCoordination, ZooKeeperServer

NODE = 7
BROKER = BrokerImage(NODE, 0, (), None, "i", ("d",))


async def begin(server: ZooKeeperServer) -> FirstSnapshot:
    session = MemoryCoordination(server)
    await session.start()
    return FirstSnapshot(ClusterStore(session), "c")


def test_a_session_in_the_same_place_is_refused_once_another_one_prepares() -> None:
    async def race() -> None:
        server = ZooKeeperServer()
        first, second = await begin(server), await begin(server)
        image = as_first_member(MetadataImage("c", 5), BROKER, "1")
        assert await first.look() is Root.EMPTY
        await first.prepare(image)
        await second.prepare(image)
        with pytest.raises(CoordinationError):
            await first.commit()
        assert await first.look() is Root.EMPTY
        await second.commit()
        assert await first.look() is await second.look() is Root.TAKEN_OVER
        with pytest.raises(CoordinationError):
            await second.commit()
        assert (await first.store.load("c")).offset == 5

    asyncio.run(race())


@pytest.mark.parametrize(("path", "data", "words"), [
    (CLUSTER_ID, cluster_id_text("other"), "already belongs to cluster other"),
    (KAFKAS_TOPICS, b"", "Apache Kafka uses it"),
    (NEWEST, b"{}", "metadata but no /cluster/id"),
    (entry_path(1), b"", "metadata but no /cluster/id"),
])
def test_a_root_of_others_is_refused(path: str, data: bytes, words: str) -> None:
    async def run() -> None:
        first = await begin(ZooKeeperServer())
        parts = path.split("/")
        for end in range(2, len(parts)):
            await make(first.coordination, "/".join(parts[:end]))
        await make(first.coordination, path, data)
        with pytest.raises(ClusterRefused, match=words):
            await first.look()

    asyncio.run(run())


def test_a_cluster_has_no_minimum_of_a_single_broker() -> None:
    """The min.insync.replicas of the standalone broker applies to all brokers (KIP-966)."""
    image = MetadataImage.empty("c").apply([
        ConfigSet("broker", str(NODE), "min.insync.replicas", "2"),
        ConfigSet("broker", str(NODE), "log.retention.ms", "1"),
        ConfigSet("broker", "", "min.insync.replicas", "3"),
    ])
    assert as_first_member(image, BROKER, "2").configs == {
        ("broker", str(NODE)): {"log.retention.ms": "1"},
        ("broker", ""): {"min.insync.replicas": "2"},
    }


def test_no_broker_of_the_new_cluster_runs_and_every_replica_may_lead() -> None:
    before = MetadataImage.empty("c").apply([
        TopicCreated("t", b"t" * 16, (PartitionState(NODE, 3, (NODE,), (NODE,), 4),))
    ])
    image = as_first_member(before, BROKER, "1")
    assert (image.brokers, image.former) == ({}, {NODE: BROKER})
    assert (image.entry, image.controller_id, image.controller_epoch) == (1, -1, 0)
    [state] = image.topics["t"].partitions
    assert state == PartitionState(-1, 4, (NODE,), (NODE,), 5)


def test_a_partition_with_other_replicas_is_refused() -> None:
    strange = PartitionState(1, 0, (1, NODE), (1,))
    image = MetadataImage.empty("c").apply([TopicCreated("t", b"t" * 16, (strange,))])
    with pytest.raises(ValueError, match=r"t-0 has the replicas \[1, 7\]"):
        as_first_member(image, BROKER, "1")


@given(histories(), st.sampled_from(["1", "3"]), st.integers(1, 4))
def test_any_metadata_survive_the_snapshot(
    history: list[object], min_isr: str, pieces: int
) -> None:
    """Whatever metadata the broker had, the first reader gets the image that was made of them."""
    image = MetadataImage.empty("c").apply(history)  # type: ignore[arg-type]
    image = replace(image, topics={
        name: topic._replace(partitions=tuple(
            state._replace(replicas=(NODE,)) for state in topic.partitions
        )) for name, topic in image.topics.items()
    })
    member = as_first_member(image, BROKER, min_isr)
    assert member.raised == 0 and member.config_of("broker", "")["min.insync.replicas"] == min_isr
    for topic in image.topics.values():
        for state, new in zip(
            topic.partitions, member.topics[topic.name].partitions, strict=True
        ):
            assert new.leader_epoch == image.leader_epoch(topic, state) + 1

    async def read() -> MetadataImage:
        first = await begin(ZooKeeperServer())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(entries, "PIECE_SIZE_MAX", 1000 // pieces)
            await first.prepare(member)
        await first.commit()
        return await first.store.load("c")

    assert asyncio.run(read()) == member


def test_every_registration_is_later_than_the_standalone_brokers_run() -> None:
    image = as_first_member(MetadataImage.empty("c"), BROKER._replace(epoch=NO_RUN), "1")
    again = broker_registered(image, BROKER._replace(epoch=1, incarnation="j"))
    assert NO_RUN == 0 and image.apply(again.records).brokers[NODE].epoch == 1
