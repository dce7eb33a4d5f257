"""A promise of the ZooKeeper interface, tried by two sessions with a real server."""

from __future__ import annotations

import asyncio

from kazoo.client import KazooClient

from ottla.replication.coordination import Coordination
from ottla.replication.zookeeper import ZooKeeper
from tests.replication.coordination_promises import Promise


async def keep(promise: Promise, a: ZooKeeper, b: ZooKeeper, hosts: str) -> None:
    """Try a promise; `hosts` are plain-text addresses by which somebody else ends a session."""

    async def end(client: Coordination) -> None:
        """End a session as the server does: somebody else closes it."""
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
