"""A coordinator that another broker replaces while the coordinator is cut off from ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Semaphore
from typing import Any

from ottla.wire.errors import ErrorCode
from tests.broker.cluster.running_cluster import RunningCluster
from tests.broker.running import TIMEOUT_SECONDS, WireClient
from tests.waiting import until

TRANSACTIONS, OFFSETS = "__transaction_state", "__consumer_offsets"
RETRIED = (
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS,
)
"""Clients retry after these codes, and look for the coordinator again where the code says so."""


def coordinator(cluster: RunningCluster, seen_by: int, topic: str = TRANSACTIONS) -> int:
    """The leader of an internal topic with one partition."""
    image = cluster.servers[seen_by].metadata_log.image
    return image.topics[topic].partitions[0].leader


def retried(cluster: RunningCluster, node_id: int, request: Callable[[Any], Any]) -> Any:
    """Retry a request at a broker, as clients do; returns the last answer."""
    answers: list[Any] = []

    def answered() -> bool:
        with cluster.client(node_id) as client:
            answers.append(request(client))
        return answers[-1] not in RETRIED

    until(answered, lambda: answers[-1])
    return answers[-1]


def replaced(cluster: RunningCluster, topic: str = TRANSACTIONS) -> tuple[int, int]:
    """Cut the coordinator off from ZooKeeper until another broker has replaced it; returns the
    former coordinator and the new one."""
    former = coordinator(cluster, 1, topic)
    witness = former % 3 + 1

    async def cut() -> None:
        cluster.sessions[former].cut()

    cluster.run(cut())
    cluster.expire(former)
    cluster.until(
        lambda: coordinator(cluster, witness, topic) not in (-1, former), "another coordinator"
    )
    assert coordinator(cluster, former, topic) == former, "it knows nothing of that"
    return former, coordinator(cluster, witness, topic)


class Asking(WireClient):
    """A connection that releases `sent` when its request has been sent."""

    def __init__(self, cluster: RunningCluster, node_id: int, sent: Semaphore) -> None:
        super().__init__(("127.0.0.1", cluster.ports[node_id]))
        self.sent = sent

    def answer(self, sent: Any) -> Any:
        self.sent.release()
        return super().answer(sent)


def told_by_the_former(
    cluster: RunningCluster, former: int, *requests: Callable[[Any], Any]
) -> list[Any]:
    """The former coordinator's answers to requests that it gets before it hears of its successor.
    It hears of it once all requests have arrived."""
    sent = Semaphore(0)

    def asked(request: Callable[[Any], Any]) -> Any:
        with Asking(cluster, former, sent) as client:
            return request(client)

    async def join() -> None:
        cluster.sessions[former].join()

    async def turn() -> None:
        """Let the loop read what has arrived."""

    with ThreadPoolExecutor(len(requests)) as threads:
        answers = [threads.submit(asked, request) for request in requests]
        for _ in requests:
            assert sent.acquire(timeout=TIMEOUT_SECONDS)
        for _ in range(3):
            cluster.run(turn())
        cluster.run(join())
        return [answer.result() for answer in answers]
