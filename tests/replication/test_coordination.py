"""The ZooKeeper in memory keeps the promises of the interface, also when connections break."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

import pytest

from ottla.replication.coordination import (
    ConnectionLost,
    Coordination,
    Create,
    Latencies,
    NotConnected,
    SessionState,
    each,
)
from tests.replication.coordination_promises import PROMISES, Called, Promise
from tests.simulation.zookeeper import MemoryCoordination, ZooKeeperServer


@pytest.mark.parametrize("promise", PROMISES, ids=lambda each: each.__name__)
def test_in_memory(promise: Promise) -> None:
    async def run() -> None:
        server = ZooKeeperServer()
        a, b = MemoryCoordination(server), MemoryCoordination(server)
        await a.start()
        await b.start()

        async def end(client: Coordination) -> None:
            server.expire(client.session_id)

        await promise(a, b, end)

    asyncio.run(run())


def test_a_lost_answer_leaves_the_outcome_open_and_the_session_alive() -> None:
    async def run() -> None:
        server = ZooKeeperServer()
        client = MemoryCoordination(server)
        states: list[SessionState] = []
        client.listen(states.append)
        await client.start()
        session, watched = client.session_id, Called()
        await client.exists("/y", watched)
        client.lose_answers = 1
        with pytest.raises(ConnectionLost):
            await client.multi([Create("/x", ephemeral=True)])
        with pytest.raises(NotConnected):
            await client.get("/x")
        assert watched.count == 0
        client.join()
        assert watched.count == 1, "it may have missed something"
        assert client.session_id == session
        stat = await client.exists("/x")
        assert stat is not None and stat.owner == session
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]

    asyncio.run(run())


def test_a_connection_that_breaks_late_is_not_broken_for_ever() -> None:
    """A client that reconnects before it has noticed the break first breaks the old connection.
    When the break is reported later, the new connection stays."""
    async def run() -> None:
        slow: list[Callable[[], None]] = []
        client = MemoryCoordination(ZooKeeperServer(), later=slow.append, send=lambda call: call())
        states: list[SessionState] = []
        client.listen(states.append)
        await client.start()
        client.lose_answers = 1
        asked = client.sync()
        assert not states
        client.join()
        with pytest.raises(ConnectionLost):
            await asked
        for arrives in slow:
            arrives()
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]

    asyncio.run(run())


def test_what_has_not_arrived_when_the_connection_breaks_is_never_done() -> None:
    async def run() -> None:
        server = ZooKeeperServer()
        client = MemoryCoordination(server)
        await client.start()
        asked = client.multi([Create("/x")])
        client.cut()
        with pytest.raises(ConnectionLost):
            await asked
        client.join()
        assert await client.exists("/x") is None

    asyncio.run(run())


@pytest.mark.parametrize("cut_first", [True, False])
def test_a_reader_that_is_given_up_leaves_no_error_behind(cut_first: bool) -> None:
    async def run() -> None:
        loop, reported = asyncio.get_running_loop(), []
        loop.set_exception_handler(lambda _, context: reported.append(context))
        client = MemoryCoordination(ZooKeeperServer(), send=lambda request: None)
        await client.start()
        reader = asyncio.ensure_future(each([client.get("/a"), client.get("/b")]))
        await asyncio.wait([reader], timeout=0)
        for step in (client.cut, reader.cancel)[:: 1 if cut_first else -1]:
            step()
        with pytest.raises(asyncio.CancelledError):
            await reader
        await asyncio.wait([loop.create_future()], timeout=0)
        del reader
        client.waiting.clear()
        gc.collect()
        assert not reported

    asyncio.run(run())


@pytest.mark.parametrize(("seconds", "bucket"), [
    (0.0, 0), (0.9e-6, 0), (1e-6, 1), (1.9e-6, 1), (2e-6, 2), (3.5e-6, 2), (4.1e-6, 3),
    (0.001, 10), (1.0, 20), (1000.0, 30), (1500.0, 31), (1e9, 31),
])
def test_durations_are_counted_by_powers_of_two_microseconds(seconds: float, bucket: int) -> None:
    latencies = Latencies()
    latencies.took(seconds)
    assert len(latencies.buckets) == 32
    assert [at for at, count in enumerate(latencies.buckets) if count] == [bucket]
    latencies.took(seconds)
    assert latencies.buckets[bucket] == 2
