"""kazoo's sessions keep the promises of the interface, at a ZooKeeper in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.replication.coordination import (
    ConnectionLost,
    Coordination,
    Create,
    NotConnected,
    SessionState,
)
from ottla.replication.zookeeper import ZooKeeper
from tests.replication.coordination_promises import PROMISES, Called, Promise
from tests.replication.wire_zookeeper import WireZooKeeper

ROOT = "/of/ottla"


def with_sessions(
    act: Callable[[WireZooKeeper, ZooKeeper, ZooKeeper], Awaitable[None]], root: str = ROOT
) -> None:
    """Run `act` with two sessions below a new chroot."""
    server = WireZooKeeper()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        a, b = (ZooKeeper(server.connect + root, 9000, 10_000, loop) for _ in range(2))
        try:
            for each in (a, b):
                await each.start()
            await a.make_root()
            await act(server, a, b)
        finally:
            for each in (a, b):
                await each.stop()

    try:
        asyncio.run(run())
    finally:
        server.close()


@pytest.mark.parametrize("promise", PROMISES, ids=lambda each: each.__name__)
def test_over_kazoo(promise: Promise) -> None:
    async def kept(server: WireZooKeeper, a: ZooKeeper, b: ZooKeeper) -> None:
        async def end(session: Coordination) -> None:
            server.expire(session.session_id)

        await promise(a, b, end)

    with_sessions(kept)


def test_a_session_without_a_chroot_has_the_paths_of_the_server() -> None:
    async def kept(server: WireZooKeeper, a: ZooKeeper, b: ZooKeeper) -> None:
        await a.make_root()
        await a.multi([Create("/x", b"1")])
        await b.sync()
        assert await b.children("/") == ["x"]
        assert server.memory.nodes.keys() == {"/", "/x"}

    with_sessions(kept, root="")


def test_children_are_sorted() -> None:
    async def kept(server: WireZooKeeper, a: ZooKeeper, b: ZooKeeper) -> None:
        await a.multi([Create(f"/{name}") for name in "bca"])
        assert await a.children("/") == ["a", "b", "c"]

    with_sessions(kept)


def test_a_broken_connection_fails_what_is_under_way_and_sends_nothing_until_it_is_back() -> None:
    async def kept(server: WireZooKeeper, a: ZooKeeper, b: ZooKeeper) -> None:
        session, watched = a.session_id, Called()
        seen: list[object] = []
        answered: list[bool] = []
        a.listen(seen.append)
        a.listen(lambda state: answered.append(asked.done()))

        def changed() -> None:
            seen.append("a watch")
            watched()

        assert await a.exists("/y", changed) is None
        server.refusing, server.lose_answers = True, 1
        asked = asyncio.ensure_future(a.multi([Create("/x", ephemeral=True)]))
        with pytest.raises(ConnectionLost, match="broke"):
            await asked
        assert answered == [True], "an answer comes before a state that follows it"
        assert a.state is SessionState.SUSPENDED
        with pytest.raises(NotConnected):
            await a.multi([Create("/z")])
        assert seen == [SessionState.SUSPENDED]
        server.refusing = False
        await watched.wait()
        assert a.session_id == session
        stat = await a.exists("/x")
        assert stat is not None and stat.owner == session, "it was done all the same"
        assert await a.exists("/z") is None
        assert seen == [SessionState.SUSPENDED, SessionState.CONNECTED, "a watch"]

    with_sessions(kept)


def test_a_request_that_is_given_up_does_not_keep_a_break_from_the_listeners() -> None:
    async def kept(server: WireZooKeeper, a: ZooKeeper, b: ZooKeeper) -> None:
        states: list[SessionState] = []
        back = Called()
        a.listen(states.append)
        a.listen(lambda state: back() if state is SessionState.CONNECTED else None)
        server.lose_answers = 1
        given_up = a.get("/")
        assert given_up.cancel()
        await back.wait()
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert (await a.get("/"))[0] == b""
        assert not a.waiting, "an answered request is forgotten"

    with_sessions(kept)


def test_a_session_is_numbered_once_it_is_connected() -> None:
    async def kept(server: WireZooKeeper, a: ZooKeeper, b: ZooKeeper) -> None:
        assert {a.session_id, b.session_id} == server.memory.sessions.keys()
        other = ZooKeeper(server.connect, 9000, 10_000, asyncio.get_running_loop())
        assert other.session_id == 0 and other.state is SessionState.LOST
        with pytest.raises(NotConnected):
            await other.get("/")

    with_sessions(kept)
