"""Runs a test of `coordination_promises.py` with two sessions on a real ZooKeeper server."""

from __future__ import annotations

import asyncio

from kazoo.client import KazooClient

from ottla.replication.coordination import Coordination
from ottla.replication.zookeeper import ZooKeeper
from tests.replication.coordination_promises import Promise


async def keep(promise: Promise, a: ZooKeeper, b: ZooKeeper, hosts: str) -> None:
    """Run the test `promise` with the clients `a` and `b`. `hosts` has the server's plain-text
    addresses: to end a session for the test, another client connects to them."""

    async def end(client: Coordination) -> None:
        """End a session on the server: a second connection with the same session id closes it."""
        assert isinstance(client, ZooKeeper)

        def close() -> None:
            other = KazooClient(hosts, client_id=client.client.client_id)
            other.start()
            other.stop()
            other.close()

        await asyncio.get_running_loop().run_in_executor(None, close)

    await a.start()
    await b.start()
    await a.make_root()
    await b.make_root()
    try:
        await promise(a, b, end)
    finally:
        await a.stop()
        await b.stop()
