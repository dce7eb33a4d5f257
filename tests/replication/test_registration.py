"""One process of each node id, one controller of each epoch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace

import pytest

from ottla.replication.cluster_store import ClusterStore
from ottla.replication.coordination import ConnectionLost, Operation
from ottla.replication.election import Election
from ottla.replication.metadata import Endpoint
from ottla.replication.registration import (
    DuplicateBroker,
    Registration,
    UnreadableRegistration,
    decode,
    encode,
    path_of,
    register,
)
from tests.simulation.zookeeper import MemoryCoordination, ZooKeeperServer

ONE = Registration(
    1, "i", (Endpoint("PLAINTEXT", "::1", 9092), Endpoint("SSL", "h", 1)), ("d1", "d2"), "r",
    "crash", {"group.version": (0, 1)},
)


async def session(server: ZooKeeperServer) -> MemoryCoordination:
    client = MemoryCoordination(server)
    await client.start()
    await ClusterStore(client).prepare()
    return client


def test_a_registration_says_what_it_was_made_of() -> None:
    assert decode(1, encode(ONE)) == ONE
    assert decode(1, encode(replace(ONE, endpoints=(), rack=None))).endpoints == ()


def test_the_text_of_a_registration_is_for_good() -> None:
    """Brokers of other versions read it, and tools that know Apache Kafka's form."""
    assert encode(ONE) == (
        b'{"version":5,"host":"::1","port":9092,"jmx_port":-1,'
        b'"endpoints":["PLAINTEXT://::1:9092","SSL://h:1"],"rack":"r","features":{},'
        b'"ottla":{"incarnation":"i","directories":["d1","d2"],"stop":"crash","lost":[],'
        b'"features":{"group.version":[0,1]}}}'
    )
    assert b'"host":"","port":-1,' in encode(replace(ONE, endpoints=()))


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"version":5}', b"\xff"])
def test_a_registration_of_somebody_else_is_not_guessed(data: bytes) -> None:
    with pytest.raises(UnreadableRegistration, match="/brokers/ids/1"):
        decode(1, data)


def test_a_restarted_process_replaces_its_former_registration_and_its_office_at_once() -> None:
    async def run() -> None:
        server = ZooKeeperServer()
        former = await session(server)
        first = await register(former, ONE)
        assert await Election(former, 1, "i").contest() is not None
        again = await session(server)
        second = await register(again, replace(ONE, incarnation="j", directories=("d2",)))
        assert second > first
        _, stat = await again.get(path_of(1))
        assert stat.owner == again.session_id
        assert await Election(again, 1, "j").holder() is None

    asyncio.run(run())


def test_the_office_of_somebody_else_is_left_alone() -> None:
    async def run() -> None:
        server = ZooKeeperServer()
        former, other, again = [await session(server) for _ in range(3)]
        await register(former, ONE)
        term = await Election(other, 2, "x").contest()
        await register(again, replace(ONE, incarnation="j"))
        holder = await Election(again, 1, "j").holder()
        assert holder is not None and term is not None
        assert (holder.node_id, holder.epoch) == (2, term.epoch)

    asyncio.run(run())


def test_a_second_broker_of_the_same_id_is_refused() -> None:
    async def run() -> None:
        server = ZooKeeperServer()
        await register(await session(server), ONE)
        with pytest.raises(DuplicateBroker, match=r"node\.id=1 is registered, at ::1:9092"):
            await register(await session(server), replace(ONE, directories=("other",)))

    asyncio.run(run())


def test_registering_again_in_the_same_session_changes_nothing() -> None:
    async def run() -> None:
        client = await session(ZooKeeperServer())
        assert await register(client, ONE) == await register(client, ONE)

    asyncio.run(run())


def test_there_is_one_controller_an_epoch() -> None:
    async def run() -> None:
        server = ZooKeeperServer()
        clients = [await session(server) for _ in range(3)]
        terms = await asyncio.gather(
            *(Election(client, n, "i").contest() for n, client in enumerate(clients))
        )
        (term,) = [each for each in terms if each is not None]
        assert term.epoch == 1
        holder = await Election(clients[0], 0, "i").holder()
        assert holder is not None and holder.epoch == 1
        await Election(clients[holder.node_id], holder.node_id, "i").resign()
        later = await Election(clients[0], 0, "i").contest()
        assert later is not None and later.epoch == 2 and later.version > term.version

    asyncio.run(run())


def test_who_takes_the_place_of_an_ended_controller_takes_it_from_that_one_only() -> None:
    async def run() -> None:
        server = ZooKeeperServer()
        ended, first, second = [await session(server) for _ in range(3)]
        term = await Election(ended, 1, "a").contest()
        holder = await Election(first, 2, "b").holder()
        assert holder is not None and term is not None
        assert await Election(first, 2, "b").contest() is None, "its session lives"
        later = await Election(first, 2, "b").contest(holder)
        assert later is not None and later.epoch == term.epoch + 1
        assert await Election(second, 3, "c").contest(holder) is None
        assert (await Election(second, 3, "c").holder()) is not None

    asyncio.run(run())


def test_whoever_does_not_know_whether_it_was_elected_gives_the_office_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        server = ZooKeeperServer()
        client, other = await session(server), await session(server)
        election, multi = Election(client, 1, "i"), client.multi

        def lost(operations: Sequence[Operation]) -> Awaitable[None]:
            client.lose_answers = 1
            return multi(operations)

        monkeypatch.setattr(client, "multi", lost)
        with pytest.raises(ConnectionLost):
            await election.contest()
        monkeypatch.undo()
        client.join()
        assert await Election(other, 2, "j").holder() is not None
        await election.resign()
        assert await Election(other, 2, "j").holder() is None

    asyncio.run(run())
