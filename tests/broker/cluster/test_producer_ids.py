"""Producers start while the controller cannot be asked for producer ids.

A producer without a transactional id has no coordinator. If Java's producers get NOT_COORDINATOR or
COORDINATOR_NOT_AVAILABLE, they look for a coordinator, and fail permanently. After
COORDINATOR_LOAD_IN_PROGRESS all clients retry.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.cluster.producer_id_blocks import NoProducerIds, ProducerIds
from ottla.replication.controller.producer_ids import PRODUCER_IDS_PER_BLOCK
from ottla.wire.errors import ErrorCode, RequestTimedOut
from ottla.wire.messages import AllocateProducerIdsResponse, InitProducerIdRequest
from tests.broker.cluster.running_cluster import RunningCluster, lose_next_write
from tests.waiting import until

LATER, OK = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with RunningCluster(tmp_path, 3) as running:
        try:
            yield running
        finally:
            running.run(join(running, *running.sessions))   # a stop without ZooKeeper takes long


def begin(cluster: RunningCluster, node_id: int) -> ErrorCode:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
    with cluster.client(node_id) as client:
        return ErrorCode(client.call(request, 4).error_code)


async def use_up(cluster: RunningCluster) -> None:
    """Take away all producer ids that the brokers have left."""
    for server in cluster.servers.values():
        ids = server.broker.producer_ids
        while ids.keeping is not None:
            await asyncio.wait([ids.keeping])
        ids.block, ids.ahead = iter(()), None


async def cut(cluster: RunningCluster, *nodes: int) -> None:
    for each in nodes:
        cluster.sessions[each].cut()


async def join(cluster: RunningCluster, *nodes: int) -> None:
    for each in nodes:
        cluster.sessions[each].join()


def begins_later(cluster: RunningCluster, node_id: int) -> None:
    until(lambda: begin(cluster, node_id) is OK, "the producer begins")


def test_producers_begin_while_zookeeper_is_away(cluster: RunningCluster) -> None:
    """They get more ids than are left of a block, because the next block was requested early."""
    begun = [begin(cluster, each) for each in cluster.sessions]
    assert begun == [OK] * 3

    async def take(node_id: int) -> list[int]:
        ids = cluster.servers[node_id].broker.producer_ids
        return [await ids.take() for _ in range(PRODUCER_IDS_PER_BLOCK)]

    async def ahead() -> bool:
        return all(each.broker.producer_ids.ahead for each in cluster.servers.values())

    until(lambda: cluster.run(ahead()), "each broker has a block ahead")
    cluster.run(cut(cluster, *cluster.sessions))
    taken = [each for node_id in cluster.sessions for each in cluster.run(take(node_id))]
    assert len(set(taken)) == 3 * PRODUCER_IDS_PER_BLOCK


def test_the_controller_is_deposed_while_it_decides(cluster: RunningCluster) -> None:
    cluster.run(use_up(cluster))
    controller = cluster.controller
    others = [each for each in cluster.sessions if each != controller]
    cluster.run(cut(cluster, *others))                  # so that no other broker is elected
    lose_next_write(cluster, cluster.sessions[controller])
    assert begin(cluster, controller) is LATER
    cluster.run(join(cluster, *others))
    begins_later(cluster, controller)


def test_the_broker_was_declared_gone_and_has_not_heard_of_it(cluster: RunningCluster) -> None:
    cluster.run(use_up(cluster))
    controller = cluster.controller
    node_id = controller % 3 + 1
    cluster.run(cut(cluster, node_id))
    cluster.expire(node_id)
    image = cluster.servers[controller].metadata_log
    cluster.until(lambda: node_id not in image.image.brokers, "it is gone")
    assert begin(cluster, node_id) is LATER
    cluster.run(join(cluster, node_id))
    begins_later(cluster, node_id)


def test_there_is_no_controller(cluster: RunningCluster) -> None:
    cluster.run(use_up(cluster))
    node_id = cluster.controller % 3 + 1
    cluster.run(cut(cluster, *cluster.sessions))
    with ThreadPoolExecutor(1) as threads:
        told = threads.submit(begin, cluster, node_id)
        until(lambda: cluster.leap(1) or told.done(), "it is answered", between=0.01)
        assert told.result() is LATER
    cluster.run(join(cluster, *cluster.sessions))
    begins_later(cluster, node_id)


def test_who_waits_for_the_same_producer_ids_waits_no_longer_than_the_first() -> None:
    """If they asked one after the other, each would also wait for those before it, which is longer
    than its client waits."""
    refusal = RequestTimedOut("no controller")
    blocks = [
        AllocateProducerIdsResponse(error_code=0, producer_id_start=start, producer_id_len=2)
        for start in (20, 7)
    ]
    asked = []

    async def told() -> list[Any]:
        began, over = asyncio.Event(), asyncio.Event()

        async def ask(*_: object) -> Any:
            asked.append(over.is_set())
            began.set()
            await over.wait()
            if len(asked) == 1:
                raise refusal
            return blocks.pop()

        role = SimpleNamespace(decides=lambda: False, ask=ask)
        metadata = SimpleNamespace(image=SimpleNamespace(brokers={}))
        ids = ProducerIds(1, cast(Any, metadata), cast(Any, role))
        waiting = [asyncio.create_task(ids.take()) for _ in range(3)]
        await began.wait()
        over.set()
        refused = await asyncio.gather(*waiting, return_exceptions=True)
        later = await asyncio.gather(*[ids.take() for _ in range(3)])
        return [*refused, *later]

    *refused, first, second, third = asyncio.run(told())
    assert [type(error) for error in refused] == [NoProducerIds] * 3
    assert (first, second, third) == (7, 8, 20)
    assert len(asked) == 3


def test_a_refusal_that_nobody_waits_for_any_more_is_no_error_of_the_broker() -> None:
    """Seed 114001 of the simulation: the client disconnected, then the controller refused."""
    errors = []

    async def given_up() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        began, over = asyncio.Event(), asyncio.Event()

        async def ask(*_: object) -> Any:
            began.set()
            await over.wait()
            raise RequestTimedOut("no controller")

        role = SimpleNamespace(decides=lambda: False, ask=ask)
        metadata = SimpleNamespace(image=SimpleNamespace(brokers={}))
        ids = ProducerIds(1, cast(Any, metadata), cast(Any, role))
        waiting = asyncio.create_task(ids.take())
        await began.wait()
        waiting.cancel()
        over.set()
        refilling = ids.refilling
        assert refilling is not None
        await asyncio.wait([refilling])
        del refilling

    asyncio.run(given_up())
    gc.collect()
    assert errors == []
