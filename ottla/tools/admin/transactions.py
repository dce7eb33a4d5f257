"""Transactions and producers: list, describe, find hanging ones, end them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.client.cluster import TRANSACTION, Cluster
from ottla.client.errors import check
from ottla.tools.admin.partitions import by_topic
from ottla.tools.admin.topics import leaders
from ottla.wire.messages import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from ottla.tools.admin.offsets import Place


class Listed(NamedTuple):
    """A transactional id in a listing."""

    id: str
    coordinator: int
    producer_id: int
    state: str


class Hanging(NamedTuple):
    """An open transaction that no coordinator knows."""

    place: Place
    producer: Any
    minutes: int


def list_transactions(
    cluster: Cluster,
    *,
    older_ms: int = -1,
    pattern: str | None = None,
    producer_ids: Sequence[int] = (),
    states: Sequence[str] = (),
) -> list[Listed]:
    """The transactional ids of all coordinators, sorted."""
    cluster.refresh()
    found = []
    for node_id in sorted(cluster.brokers):
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=older_ms,
            transactional_id_pattern=pattern,
        )
        response = cluster.node(node_id).call(request)
        check(response.error_code)
        found += [
            Listed(item.transactional_id, node_id, item.producer_id, item.transaction_state)
            for item in response.transaction_states
        ]
    return sorted(found)


def describe(cluster: Cluster, transactional_id: str) -> tuple[int, Any]:
    """The coordinator of a transactional id and its state; raises Refused if it is unknown."""
    connection = cluster.coordinator(transactional_id, TRANSACTION)
    [state] = connection.call(
        DescribeTransactionsRequest(transactional_ids=[transactional_id])
    ).transaction_states
    check(state.error_code, what=f"transactional id {transactional_id!r}")
    node_id = next(one for one, address in cluster.brokers.items() if address == connection.address)
    return node_id, state


def producers(cluster: Cluster, places: Iterable[Place]) -> dict[Place, list[Any]]:
    """The producers known to each partition's leader."""
    wanted = list(places)
    led = leaders(cluster, sorted({topic for topic, _ in wanted}))
    found: dict[Place, list[Any]] = {}
    for leader in sorted({led[place] for place in wanted if place in led}):
        asked = [
            DescribeProducersRequest.Topic(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic(p for p in wanted if led.get(p) == leader).items()
        ]
        for topic in cluster.node(leader).call(DescribeProducersRequest(topics=asked)).topics:
            for part in topic.partitions:
                what = f"{topic.name}-{part.partition_index}"
                check(part.error_code, part.error_message, what)
                found[topic.name, part.partition_index] = list(part.active_producers)
    for topic, index in wanted:
        if (topic, index) not in led:
            check(3, f"partition {topic}-{index} does not exist")
    return found


def hanging(cluster: Cluster, places: Iterable[Place], minutes_max: int) -> list[Hanging]:
    """Transactions open for longer than this that no coordinator considers ongoing there."""
    now = int(time.time() * 1000)
    old = [
        (place, producer)
        for place, known in producers(cluster, places).items()
        for producer in known
        if producer.current_txn_start_offset >= 0
        and now - producer.last_timestamp >= minutes_max * 60_000
    ]
    if not old:
        return []
    ids = sorted({producer.producer_id for _, producer in old})
    ongoing: set[tuple[int, Place]] = set()
    for listed in list_transactions(cluster, producer_ids=ids):
        _, state = describe(cluster, listed.id)
        ongoing |= {
            (listed.producer_id, (topic.topic, index))
            for topic in state.topics
            for index in topic.partitions
        }
    return [
        Hanging(place, producer, (now - producer.last_timestamp) // 60_000)
        for place, producer in old
        if (producer.producer_id, place) not in ongoing
    ]


def abort(
    cluster: Cluster, place: Place, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> None:
    """Write an abort marker into a partition."""
    marker = WriteTxnMarkersRequest.Marker
    topic = marker.Topic(name=place[0], partition_indexes=[place[1]])
    request = WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transaction_result=False,
                topics=[topic],
                coordinator_epoch=max(coordinator_epoch, 0),
            )
        ]
    )
    leader = leaders(cluster, [place[0]])[place]
    for done in cluster.node(leader).call(request).markers:
        for topic in done.topics:
            for part in topic.partitions:
                check(part.error_code, what=f"{topic.name}-{part.partition_index}")


def terminate(cluster: Cluster, transactional_id: str) -> None:
    """Fences the producer of a transactional id, which aborts its transaction."""

    def ask() -> None:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        response = cluster.coordinator(transactional_id, TRANSACTION).call(request)
        check(response.error_code, what=f"transactional id {transactional_id!r}")

    cluster.patiently(ask)
