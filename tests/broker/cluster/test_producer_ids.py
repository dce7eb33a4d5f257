"""Producers that begin while the controller cannot be asked for producer ids.

A producer without a transactional id has no coordinator: of NOT_COORDINATOR or
COORDINATOR_NOT_AVAILABLE Java's producers look for one, and fail for good. After
COORDINATOR_LOAD_IN_PROGRESS all clients ask again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.cluster.producer_id_blocks import NoProducerIds, ProducerIds
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
            running.run(join(running, *running.sessions))   # without ZooKeeper a stop takes long


def begin(cluster: RunningCluster, node_id: int) -> ErrorCode:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
    with cluster.client(node_id) as client:
        return ErrorCode(client.call(request, 4).error_code)


async def cut(cluster: RunningCluster, *nodes: int) -> None:
    for each in nodes:
        cluster.sessions[each].cut()


async def join(cluster: RunningCluster, *nodes: int) -> None:
    for each in nodes:
        cluster.sessions[each].join()


def begins_later(cluster: RunningCluster, node_id: int) -> None:
    until(lambda: begin(cluster, node_id) is OK, "the producer begins")


def test_the_controller_is_deposed_while_it_decides(cluster: RunningCluster) -> None:
    controller = cluster.controller
    others = [each for each in cluster.sessions if each != controller]
    cluster.run(cut(cluster, *others))                  # so that no other broker is elected
    lose_next_write(cluster, cluster.sessions[controller])
    assert begin(cluster, controller) is LATER
    cluster.run(join(cluster, *others))
    begins_later(cluster, controller)


def test_the_broker_was_declared_gone_and_has_not_heard_of_it(cluster: RunningCluster) -> None:
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
    node_id = cluster.controller % 3 + 1
    cluster.run(cut(cluster, *cluster.sessions))
    with ThreadPoolExecutor(1) as threads:
        told = threads.submit(begin, cluster, node_id)
        until(lambda: cluster.leap(1) or told.done(), "it is answered", between=0.01)
        assert told.result() is LATER
    cluster.run(join(cluster, *cluster.sessions))
    begins_later(cluster, node_id)


def test_who_waits_for_the_same_producer_ids_waits_no_longer_than_the_first() -> None:
    """One after the other each would have asked for as long: longer than its client waits."""
    asked: list[asyncio.Future[Any]] = []

    async def ask(*_: object) -> Any:
        asked.append(asyncio.get_running_loop().create_future())
        return await asked[-1]

    async def told() -> list[Any]:
        forwarding = SimpleNamespace(deciding=lambda: False, ask=ask)
        image = SimpleNamespace(brokers={})
        ids = ProducerIds(cast(Any, SimpleNamespace(node_id=1, image=image, forwarding=forwarding)))
        waiting = [asyncio.create_task(ids.take()) for _ in range(3)]
        await turns(lambda: bool(asked))
        asked[0].set_exception(RequestTimedOut("no controller"))
        await turns(lambda: all(task.done() for task in waiting))
        refused = await asyncio.gather(*waiting, return_exceptions=True)
        later = [asyncio.create_task(ids.take()) for _ in range(3)]
        await turns(lambda: len(asked) == 2)
        asked[1].set_result(AllocateProducerIdsResponse(
            error_code=0, producer_id_start=7, producer_id_len=2
        ))
        await turns(lambda: len(asked) == 3)
        asked[2].set_result(AllocateProducerIdsResponse(
            error_code=0, producer_id_start=20, producer_id_len=2
        ))
        return [*refused, *await asyncio.gather(*later)]

    *refused, first, second, third = asyncio.run(told())
    assert [type(error) for error in refused] == [NoProducerIds] * 3
    assert (first, second, third) == (7, 8, 20)


async def turns(true: Callable[[], bool]) -> None:
    """Let others go on until a condition is true."""
    for _ in range(100):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not come true")
