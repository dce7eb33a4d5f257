"""Every implementation of the ZooKeeper interface keeps these promises; each has one function.

`tests/replication/test_coordination.py` runs them in memory, `compat_tests/test_zookeeper.py` over
kazoo on a real ZooKeeper. Each function gets two sessions below an empty root, and a function that
ends a session as the server does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.replication.coordination import (
    BadVersion,
    Check,
    Coordination,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionState,
    Set,
    make,
)

EndSession = Callable[[Coordination], Awaitable[None]]
Promise = Callable[[Coordination, Coordination, EndSession], Awaitable[None]]


class Called:
    """A watch that can be awaited."""

    def __init__(self) -> None:
        self.count = 0
        self.event = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self.event.set()

    async def wait(self) -> None:
        await asyncio.wait_for(self.event.wait(), 60)


async def what_is_written_is_read(a: Coordination, b: Coordination, end: EndSession) -> None:
    assert await make(a, "/x", b"1")
    assert not await make(b, "/x", b"2")
    await b.sync()
    data, stat = await b.get("/x")
    assert (data, stat.version, stat.owner) == (b"1", 0, 0)
    await b.multi([Set("/x", b"3", 0)])
    await a.sync()
    data, later = await a.get("/x")
    assert (data, later.version, later.czxid) == (b"3", 1, stat.czxid)
    assert later.mzxid > stat.mzxid
    assert await a.exists("/y") is None
    found = await a.exists("/x")
    assert found == later


async def refusals_have_their_names(a: Coordination, b: Coordination, end: EndSession) -> None:
    await a.multi([Create("/x"), Create("/x/y")])
    for operation, error in [
        (Create("/x"), NodeExists),
        (Create("/no/parent"), NoNode),
        (Set("/x", b"", 7), BadVersion),
        (Set("/no", b""), NoNode),
        (Check("/x", 7), BadVersion),
        (Check("/no"), NoNode),
        (Delete("/x"), NotEmpty),
        (Delete("/no"), NoNode),
        (Delete("/x/y", 7), BadVersion),
    ]:
        with pytest.raises(error):
            await a.multi([operation])
    with pytest.raises(NoNode):
        await a.get("/no")
    with pytest.raises(NoNode):
        await a.children("/no")


async def a_multi_is_done_whole_or_not(a: Coordination, b: Coordination, end: EndSession) -> None:
    await a.multi([Create("/x", b"1")])
    with pytest.raises(BadVersion):
        await a.multi([Create("/y"), Set("/x", b"2"), Check("/x", 0)])
    with pytest.raises(NoNode):
        await a.multi([Set("/x", b"2"), Check("/no"), Create("/y")])
    assert (await a.get("/x"))[0] == b"1"
    assert await a.children("/") == ["x"]
    await a.multi([Check("/x"), Check("/x", 0), Create("/y", b"2"), Delete("/x", 0)])
    assert await a.children("/") == ["y"]


async def requests_under_way_are_answered_in_order(
    a: Coordination, b: Coordination, end: EndSession
) -> None:
    order: list[int] = []
    asked = [asyncio.ensure_future(a.multi([Create(f"/{n}")])) for n in range(20)]
    for n, each in enumerate(asked):
        each.add_done_callback(lambda _, n=n: order.append(n))
    await asyncio.gather(*asked)
    await a.sync()
    assert order == list(range(20))


async def each_answer_is_timed_a_refusal_too(
    a: Coordination, b: Coordination, end: EndSession
) -> None:
    before = sum(a.latencies.buckets)
    await a.multi([Create("/x")])
    with pytest.raises(NodeExists):
        await a.multi([Create("/x")])
    assert sum(a.latencies.buckets) == before + 2


async def a_watch_is_called_once(a: Coordination, b: Coordination, end: EndSession) -> None:
    comes, child, changes = Called(), Called(), Called()
    assert await a.exists("/x", comes) is None
    assert await a.children("/", child) == []
    await b.multi([Create("/x", b"1")])
    await comes.wait()
    await child.wait()
    await a.exists("/x", changes)
    await b.multi([Set("/x", b"2")])
    await changes.wait()
    assert (await a.get("/x"))[0] == b"2"
    await b.multi([Delete("/x")])
    await a.sync()
    assert (comes.count, child.count, changes.count) == (1, 1, 1)


async def an_ephemeral_node_ends_with_its_session(
    a: Coordination, b: Coordination, end: EndSession
) -> None:
    gone, states = Called(), list[SessionState]()
    connected = Called()
    a.listen(lambda state: states.append(state))
    a.listen(lambda state: connected() if state is SessionState.CONNECTED else None)
    await a.multi([Create("/x", b"1", ephemeral=True)])
    session = a.session_id
    stat = await b.exists("/x", gone)
    assert stat is not None and stat.owner == session
    await end(a)
    await gone.wait()
    assert await b.exists("/x") is None
    await connected.wait()
    assert a.session_id != session
    assert states == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]
    await a.multi([Create("/x", b"2", ephemeral=True)])


async def a_watch_outlives_its_session(a: Coordination, b: Coordination, end: EndSession) -> None:
    watched = Called()
    assert await a.exists("/x", watched) is None
    await end(a)
    await watched.wait()                    # the node may exist now, so the watch is called
    assert await a.exists("/x") is None


async def a_session_that_is_stopped_leaves_nothing(
    a: Coordination, b: Coordination, end: EndSession
) -> None:
    gone = Called()
    await a.multi([Create("/x", ephemeral=True)])
    await b.exists("/x", gone)
    await a.stop()
    await gone.wait()
    assert await b.exists("/x") is None


PROMISES: list[Promise] = [
    what_is_written_is_read,
    refusals_have_their_names,
    a_multi_is_done_whole_or_not,
    requests_under_way_are_answered_in_order,
    each_answer_is_timed_a_refusal_too,
    a_watch_is_called_once,
    an_ephemeral_node_ends_with_its_session,
    a_watch_outlives_its_session,
    a_session_that_is_stopped_leaves_nothing,
]
