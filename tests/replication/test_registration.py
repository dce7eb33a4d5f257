"""There is one process for each node id, and one controller for each epoch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Sequence
from dataclasses import replace

import pytest

from ottla.replication.cluster_store import CONTROLLER_EPOCH, ClusterStore
from ottla.replication.coordination import ConnectionLost, Create, Operation, Set
from ottla.replication.election import CONTROLLER, Election
from ottla.replication.metadata import BrokerImage, Endpoint, Held
from ottla.replication.records import UnreadableMetadata
from ottla.replication.registration import (
    LOST_NAMES_BYTES_MAX,
    DuplicateBroker,
    Registration,
    UnreadableRegistration,
    can_list,
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
    """Brokers of other versions read it, and so do tools that know Apache Kafka's form."""
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


def edited(*path: str, value: object) -> bytes:
    """A registration with one field changed."""
    body = json.loads(encode(replace(ONE, held=Held(1, 2))))
    inner = body
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return json.dumps(body).encode()


@pytest.mark.parametrize("data", [
    edited("endpoints", value=["A://h:0"]), edited("endpoints", value=["A://h:65535"]),
    edited("rack", value=None), edited("ottla", "held", value=None),
    edited("ottla", "held", value={"next_id": 0, "epoch": 2**63 - 1}),
    edited("ottla", "features", value={}),
])
def test_values_up_to_their_bounds_are_read(data: bytes) -> None:
    assert decode(2**31 - 1, data).node_id == 2**31 - 1


@pytest.mark.parametrize("data", [
    edited("endpoints", value=["A://h:-1"]), edited("endpoints", value=["A://h:65536"]),
    edited("endpoints", value=["A://h"]), edited("endpoints", value=[5]),
    edited("rack", value=5), edited("ottla", value=None), edited("ottla", "stop", value="gently"),
    edited("ottla", "held", value={"next_id": -1, "epoch": 0}),
    edited("ottla", "held", value={"next_id": 0, "epoch": 2**63}),
    edited("ottla", "held", value={"next_id": 0, "epoch": True}),
    edited("ottla", "held", value={"next_id": 0, "more": 0}),
    edited("ottla", "features", value={"f": [1]}), edited("ottla", "directories", value=5),
])
def test_values_out_of_their_bounds_are_not_guessed(data: bytes) -> None:
    with pytest.raises(UnreadableRegistration, match="/brokers/ids/1"):
        decode(1, data)
    with pytest.raises(UnreadableRegistration, match="/brokers/ids/2147483648"):
        decode(2**31, encode(ONE))


def test_a_wrong_value_is_named_with_what_was_expected() -> None:
    for data, reason in (
        (edited("endpoints", value=["A://h:65536"]), "the port of 'A://h:65536' is not from 0 to"),
        (edited("rack", value=5), "the field 'rack' is 5, expected text or null"),
        (edited("ottla", "held", value={"next_id": -1}), "expected numbers from 0 to"),
    ):
        with pytest.raises(UnreadableRegistration, match=reason):
            decode(1, data)


def test_what_a_registration_says_of_the_last_run_comes_back() -> None:
    told = replace(ONE, stop="machine", lost=("t-0", "u-1"), held=Held(5, 7))
    assert decode(1, encode(told)) == told
    assert b"held" not in encode(ONE)
    assert told.image(9) == BrokerImage(1, 9, ONE.endpoints, "r", "i", ("d1", "d2"))


def test_as_many_lost_logs_are_listed_as_fit_into_a_request() -> None:
    assert can_list(())
    assert LOST_NAMES_BYTES_MAX == 400_000
    names = ["x" * 97] * 4000                       # and each takes two quotes and a comma
    assert can_list(names) and not can_list([*names[:-1], "x" * 98])


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"brokerid":"x","epoch":1}', b"\xff"])
def test_a_controller_that_is_not_readable_stops_the_reader(text: bytes) -> None:
    async def run() -> None:
        client = await session(ZooKeeperServer())
        await client.multi([Create(CONTROLLER, text)])
        with pytest.raises(UnreadableMetadata, match="/controller in ZooKeeper is not readable"):
            await Election(client, 1, "i").holder()
        await client.multi([Set(CONTROLLER_EPOCH, text)])
        with pytest.raises(UnreadableMetadata, match="/controller_epoch in ZooKeeper is not"):
            await Election(client, 1, "i").contest()

    asyncio.run(run())


def test_only_the_session_that_is_the_controller_can_resign() -> None:
    async def run() -> None:
        server = ZooKeeperServer()
        mine, other = await session(server), await session(server)
        await Election(mine, 1, "i").resign()
        assert await Election(other, 2, "j").contest() is not None
        await Election(mine, 2, "j").resign()
        holder = await Election(mine, 1, "i").holder()
        assert holder is not None and holder.session_id == other.session_id
        assert (holder.node_id, holder.incarnation) == (2, "j")

    asyncio.run(run())


def test_a_broker_that_registers_anew_in_its_session_keeps_its_office() -> None:
    async def run() -> None:
        client = await session(ZooKeeperServer())
        first = await register(client, ONE)
        term = await Election(client, 1, "i").contest()
        second = await register(client, replace(ONE, rack="other"))
        holder = await Election(client, 1, "i").holder()
        assert second > first and term is not None
        assert holder is not None and holder.epoch == term.epoch

    asyncio.run(run())
