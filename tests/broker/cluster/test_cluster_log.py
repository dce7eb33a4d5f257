"""The metadata of a cluster's member: what they show after a jump to a snapshot, and which requests
are answered after a write of unknown outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from itertools import count

import pytest

from ottla.broker.cluster.cluster_log import ClusterLog
from ottla.broker.cluster.metadata_log import NotController
from ottla.replication import cluster_store
from ottla.replication.cluster_store import Behind, ClusterStore
from ottla.replication.coordination import Delete
from ottla.replication.election import Election
from ottla.replication.metadata import (
    Decision,
    MetadataImage,
    PartitionState,
    TopicCreated,
    TopicDeleted,
)
from tests.replication.server_and_store import ServerAndStore, setting
from tests.simulation.zookeeper import MemoryCoordination, ZooKeeperServer
from tests.waiting import turn

WAIT_SECONDS = 10


class Member:
    """The session and the metadata of a broker that is not the cluster's first controller."""

    def __init__(self, server: ZooKeeperServer) -> None:
        self.server = server
        self.coordination = MemoryCoordination(server)
        self.failures: list[str] = []
        self.changed: set[str] = set()

    async def begin(self) -> None:
        await self.coordination.start()
        batches = count(1)
        self.log = ClusterLog(
            ClusterStore(self.coordination), MetadataImage.empty("c"), 2,
            lambda: f"of-2-{next(batches)}", self.failures.append,
            lambda entry: self.failures.append("gone back"), asyncio.get_running_loop(),
        )
        self.log.subscribe(self._note)

    def _note(self, old: MetadataImage, new: MetadataImage, topics: Collection[str]) -> None:
        self.changed |= {*topics}

    async def is_elected(self) -> None:
        term = await Election(self.coordination, 2, "j").contest()
        assert term is not None
        await self.log.catch_up()
        self.log.begin_term(term)
        self.log.is_controller = True
        self.log.deposed = self.log.end_term

    def reconnects(self) -> None:
        self.coordination.send = self.coordination.later
        self.coordination.join()


def topic(name: str) -> TopicCreated:
    return TopicCreated(name, name.encode() * 16, (PartitionState(1, 0, (1,), (1,), 0),))


def set_to(image: MetadataImage, value: str) -> Decision[str]:
    return Decision([setting(value)], value)


async def cluster_and_member() -> tuple[ServerAndStore, Member]:
    cluster = ServerAndStore()
    await cluster.begin()
    member = Member(cluster.server)
    await member.begin()
    return cluster, member


def test_a_broker_that_jumps_to_a_snapshot_drops_the_topics_that_were_deleted_meanwhile() -> None:
    async def check() -> None:
        cluster, member = await cluster_and_member()
        await cluster.write(topic("a"), topic("b"), topic("c"))
        await member.log.catch_up()
        member.changed.clear()
        member.coordination.cut()
        await cluster.write(TopicDeleted("a"))
        await cluster.write(TopicDeleted("c"), TopicCreated("c", bytes(16), ()))
        await cluster.write(topic("d"))
        await cluster.store.write_snapshot(cluster.image, cluster.term.version)
        await cluster.coordination.multi(
            [Delete(cluster_store.entry_path(number)) for number in (4, 3, 2)]
        )
        member.reconnects()
        with pytest.raises(Behind):
            await member.log.store.after(1)
        await member.log.catch_up()
        assert member.log.image == cluster.image
        assert member.changed == {"a", "c", "d"}, "followers drop what they keep of topic a"
        assert not member.failures

    asyncio.run(check())


async def until_it_is_unknown(member: Member) -> None:
    """Wait until the member has a write of unknown outcome."""
    await turn()
    await member.log.settle()
    assert member.log.pending and member.log.term is None


async def cluster_is_elected_again(cluster: ServerAndStore) -> None:
    """Elect the first controller again, which deposes the member."""
    election = Election(cluster.coordination, 1, "i")
    term = await election.contest(await election.holder())
    assert term is not None
    cluster.term = term


async def member_in_office() -> tuple[ServerAndStore, Member]:
    """A cluster whose first controller has written an entry, and the member that replaced it."""
    cluster, member = await cluster_and_member()
    await cluster.write(setting("1"))
    cluster.server.expire(cluster.coordination.session_id)
    await member.is_elected()
    return cluster, member


def test_a_request_that_waits_for_a_lost_write_is_answered() -> None:
    async def check() -> None:
        cluster, member = await member_in_office()
        member.coordination.send = lambda request: member.coordination.cut()
        asked = asyncio.ensure_future(member.log.decide(set_to, "lost"))
        await until_it_is_unknown(member)
        member.reconnects()
        await cluster_is_elected_again(cluster)
        await cluster.write(setting("2"))
        await member.log.catch_up()
        with pytest.raises(NotController):
            await asyncio.wait_for(asked, WAIT_SECONDS)
        assert member.log.image == cluster.image

    asyncio.run(check())


def test_a_request_whose_write_was_done_is_answered_though_the_answer_to_the_write_was_lost(
) -> None:
    async def check() -> None:
        _, member = await member_in_office()
        member.coordination.lose_answers = 1
        asked = asyncio.ensure_future(member.log.decide(set_to, "done"))
        await until_it_is_unknown(member)
        member.reconnects()
        await member.log.catch_up()
        assert await asyncio.wait_for(asked, WAIT_SECONDS) == "done"
        assert member.log.image.config_of("topic", "t") == {"s": "done"}

    asyncio.run(check())
