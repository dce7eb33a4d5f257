"""The ZooKeeper interface keeps its promises with kazoo and a real ZooKeeper.

`tests/replication/test_coordination.py` tests the same promises in memory.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from compat_tests.ended_sessions import keep
from compat_tests.requirements import missing
from ottla.replication.coordination import (
    ConnectionLost,
    CoordinationError,
    Create,
    NotConnected,
    SessionState,
)
from ottla.replication.zookeeper import ZooKeeper
from ottla.tools.zookeeper.local import LocalZooKeeper, ZooKeeperFailed, free_port
from tests.replication.coordination_promises import PROMISES, Called, Promise

ROOTS = count()
TIMEOUT_MS = 4000
LONG_TIMEOUT_MS = 30_000
"""For a session that must outlive a restart of the server, even if a busy machine takes long."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalZooKeeper]:
    """A ZooKeeper that tests share; each test has a chroot of its own."""
    zookeeper = LocalZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    try:
        zookeeper.start()
    except ZooKeeperFailed as error:
        missing(str(error))
    yield zookeeper
    zookeeper.stop()


def session(connect: str, timeout_ms: int = TIMEOUT_MS) -> ZooKeeper:
    """A client for the running event loop; its session is not started yet."""
    return ZooKeeper(connect, timeout_ms, 10_000, asyncio.get_running_loop())


@pytest.mark.parametrize("promise", PROMISES, ids=lambda each: each.__name__)
def test_over_kazoo(server: LocalZooKeeper, promise: Promise) -> None:
    async def run() -> None:
        connect = f"{server.connect}/a/chroot-{next(ROOTS)}"
        await keep(promise, session(connect), session(connect), server.connect)

    asyncio.run(run())


def test_no_server_is_said_with_the_settings_that_name_it() -> None:
    async def run() -> None:
        port = free_port()
        client = ZooKeeper(f"127.0.0.1:{port}/x", TIMEOUT_MS, 500, asyncio.get_running_loop())
        with pytest.raises(ConnectionLost, match=rf"{port}/x: .*zookeeper\.connection\.timeout"):
            await client.start()

    asyncio.run(run())


def test_while_the_server_is_away_nothing_is_queued_and_no_watch_is_lost(tmp_path: Path) -> None:
    """kazoo alone would send the request after the reconnect, and forget the watch."""
    server = LocalZooKeeper(tmp_path)
    try:
        server.start()
    except ZooKeeperFailed as error:
        missing(str(error))

    async def run() -> None:
        client = session(server.connect, LONG_TIMEOUT_MS)
        suspended, connected, watched = Called(), Called(), Called()
        await client.start()
        first = client.session_id
        client.listen(lambda state: suspended() if state is SessionState.SUSPENDED else None)
        client.listen(lambda state: connected() if state is SessionState.CONNECTED else None)
        assert await client.exists("/x", watched) is None
        assert server.process is not None
        os.kill(server.process.pid, signal.SIGSTOP)
        asked = client.multi([Create("/asked")])
        server.kill()
        with pytest.raises(ConnectionLost):
            await asked
        await suspended.wait()
        with pytest.raises(NotConnected):
            await client.multi([Create("/late")])
        assert watched.count == 0
        await asyncio.get_running_loop().run_in_executor(None, server.start)
        await connected.wait()
        await watched.wait()
        assert client.session_id == first, "the session has outlived the server's restart"
        assert await client.exists("/late") is None
        assert await client.children("/") in (["asked", "zookeeper"], ["zookeeper"])
        await client.stop()
        with pytest.raises(CoordinationError):
            await client.get("/")

    try:
        asyncio.run(run())
    finally:
        server.stop()
