"""kazoo's connection: an attempt that nobody answers is given up in time, and what the server grants is known."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from kazoo.handlers.threading import SequentialThreadingHandler

from ottla.replication.zookeeper import Handler, ZooKeeper
from tests.replication.scripted_zookeeper import OK, Answer, ScriptedZooKeeper

ANSWER_SECONDS = 3.0


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def timeouts(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """The time-outs that really were waited for."""
    seen: list[float | None] = []

    def select(self: Any, *lists_and_timeout: Any) -> Any:
        *_, timeout = lists_and_timeout
        seen.append(timeout)
        return real(self, *lists_and_timeout[:3], 0)

    real = SequentialThreadingHandler.select
    monkeypatch.setattr(SequentialThreadingHandler, "select", select)
    return seen


def test_only_a_connections_first_answer_is_awaited_for_less_than_the_session(
    server: socket.socket, timeouts: list[float | None]
) -> None:
    handler = Handler(None, ANSWER_SECONDS)
    client = handler.create_connection(server.getsockname(), "localhost", 9.0)
    accepted, _ = server.accept()
    with client, accepted:
        assert handler.select([], [client], [], 9.0)[1] == [client]
        assert handler.select([client], [], [], 9.0)[0] == []
        accepted.sendall(b"an answer")
        assert handler.select([client], [], [], 9.0)[0] == [client]
        assert handler.select([client], [], [], 9.0)[0] == [client]
    assert timeouts == [9.0, ANSWER_SECONDS, ANSWER_SECONDS, 9.0]


def test_each_new_connection_is_unanswered_again(
    server: socket.socket, timeouts: list[float | None]
) -> None:
    handler = Handler(None, ANSWER_SECONDS)
    for _ in range(2):
        client = handler.create_connection(server.getsockname(), "localhost", 9.0)
        accepted, _ = server.accept()
        with client, accepted:
            accepted.sendall(b"an answer")
            assert handler.select([client], [], [], 1.0)[0] == [client]
            assert handler.select([client], [], [], None)[0] == [client]
    assert timeouts == [1.0, None] * 2


def test_a_shorter_wait_stays_as_it_is(server: socket.socket, timeouts: list[float | None]) -> None:
    handler = Handler(None, ANSWER_SECONDS)
    with handler.create_connection(server.getsockname(), "localhost", 9.0) as client:
        assert handler.select([client], [], [], 0.5)[0] == []
    assert timeouts == [0.5]


def with_session(
    act: Callable[[ZooKeeper], Awaitable[None]],
    answer: Answer = lambda operation, path: OK,
    granted_ms: int = 9000,
    root: str = "",
) -> ScriptedZooKeeper:
    """Do something with a session at a server that answers so; returns the server."""
    server = ScriptedZooKeeper(granted_ms, answer)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        session = ZooKeeper(server.connect + root, 9000, 10_000, loop)
        await session.start()
        try:
            await act(session)
        finally:
            await session.stop()

    try:
        asyncio.run(run())
    finally:
        server.close()
    return server


def test_the_session_timeout_is_the_one_that_the_server_grants() -> None:
    """It bounds what is asked for by its tickTime; how long others count as alive rests on it."""
    async def granted(session: ZooKeeper) -> None:
        assert session.session_timeout_ms == 40_000

    with_session(granted, granted_ms=40_000)
