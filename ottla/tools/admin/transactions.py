"""Transactions and producers: list, describe, find hanging ones, end them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.client.cluster import TRANSACTION, ClusterClient
from ottla.client.errors import Refused, check
from ottla.replication.topic_names import TRANSACTIONS_TOPIC
from ottla.tools.admin.partitions import by_topic
from ottla.tools.admin.topics import leader, leaders, of_all_coordinators
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from ottla.tools.admin.offsets import Place


UNFINISHED = ("Ongoing", "PrepareCommit", "PrepareAbort")
"""The states of a transactional id that has a transaction which has not ended."""
FENCE_TIMEOUT_MS = 1000
"""The transaction timeout of a request that only fences a producer. No transaction uses it, but
brokers refuse a timeout above their setting transaction.max.timeout.ms."""


class Listed(NamedTuple):
    """A transactional id in a listing."""

    id: str
    coordinator: int
    producer_id: int
    state: str


class Hanging(NamedTuple):
    """A transaction that is open in a partition although no coordinator lists it there."""

    place: Place
    producer: Any
    minutes: int


def list_transactions(
    cluster: ClusterClient,
    *,
    older_ms: int = -1,
    pattern: str | None = None,
    producer_ids: Sequence[int] = (),
    states: Sequence[str] = (),
) -> list[Listed]:
    """The transactional ids of all coordinators, sorted. -1, None and () do not filter."""
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=older_ms,
        transactional_id_pattern=pattern,
    )

    def ask() -> list[Listed]:
        # Each attempt asks all live brokers: they have taken over the ids of a stopped broker.
        live = cluster.live()
        listings = []
        for node_id in live:
            response = cluster.node(node_id).call(request)
            check(response.error_code)
            listings += [
                Listed(item.transactional_id, node_id, item.producer_id, item.transaction_state)
                for item in response.transaction_states
            ]
        return listings

    listings: list[Listed] = cluster.with_retries(ask, again=True)
    return sorted(listings)


def describe(cluster: ClusterClient, transactional_id: str) -> tuple[int, Any]:
    """The broker id of a transactional id's coordinator, and the state of the transactional id.
    Raises Refused if the transactional id is unknown."""
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])

    def ask() -> tuple[int, Any]:
        connection = cluster.coordinator(transactional_id, TRANSACTION)
        [state] = connection.call(request).transaction_states
        check(state.error_code, what=f"transactional id {transactional_id!r}")
        at = connection.address
        return next(one for one, address in cluster.brokers.items() if address == at), state

    found: tuple[int, Any] = cluster.with_retries(ask, again=True)
    return found


def visible(cluster: ClusterClient, ids: Iterable[str]) -> set[str]:
    """The transactional ids among `ids` that the user may describe. Raises ClientError.

    One request to any broker is enough, because a broker checks the user's rights before it checks
    whether it coordinates an id.
    """
    wanted = sorted(ids)
    if not wanted:
        return set()
    request = DescribeTransactionsRequest(transactional_ids=wanted)
    states = cluster.any().call(request).transaction_states
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return {one.transactional_id for one in states if one.error_code != refused}


def producers(cluster: ClusterClient, places: Iterable[Place]) -> dict[Place, list[Any]]:
    """The producers known to each partition's leader."""
    wanted = list(places)
    found: dict[Place, list[Any]] = cluster.with_retries(
        partial(_producers, cluster, wanted), again=True
    )
    return found


def _producers(cluster: ClusterClient, wanted: Sequence[Place]) -> dict[Place, list[Any]]:
    led = leaders(cluster, sorted({topic for topic, _ in wanted}))
    for place in wanted:
        what = f"{place[0]}-{place[1]}"
        if place not in led:
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {what} does not exist"
            )
        if led[place] < 0:
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, what=what)
    found: dict[Place, list[Any]] = {}
    for node_id in sorted({led[place] for place in wanted}):
        request_topics = [
            DescribeProducersRequest.Topic(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic(p for p in wanted if led[p] == node_id).items()
        ]
        response = cluster.node(node_id).call(DescribeProducersRequest(topics=request_topics))
        for topic in response.topics:
            for part in topic.partitions:
                what = f"{topic.name}-{part.partition_index}"
                check(part.error_code, part.error_message, what)
                found[topic.name, part.partition_index] = list(part.active_producers)
    return found


def hanging(cluster: ClusterClient, places: Iterable[Place], minutes_max: int) -> list[Hanging]:
    """The hanging transactions. Each is open in a partition, and has had no new record there for
    `minutes_max` minutes. No coordinator lists it as ongoing in that partition."""
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
    # Wait for all coordinators. A coordinator that is not elected yet lists nothing, so an ongoing
    # transaction would look hanging, and aborting it would lose records.
    ongoing = of_all_coordinators(cluster, TRANSACTIONS_TOPIC, partial(_ongoing, cluster, ids))
    return [
        Hanging(place, producer, (now - producer.last_timestamp) // 60_000)
        for place, producer in old
        if (producer.producer_id, place) not in ongoing
    ]


def _ongoing(cluster: ClusterClient, producer_ids: Sequence[int]) -> set[tuple[int, Place]]:
    """Asks the coordinators for the partitions in these producers' transactions. Returns pairs of a
    producer id and a partition."""
    found = set()
    for listed in list_transactions(cluster, producer_ids=producer_ids):
        _, state = describe(cluster, listed.id)
        found |= {
            (listed.producer_id, (topic.topic, index))
            for topic in state.topics
            for index in topic.partitions
        }
    return found


def abort(
    cluster: ClusterClient, place: Place, producer_id: int, producer_epoch: int,
    coordinator_epoch: int
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

    def ask() -> None:
        for done in cluster.node(leader(cluster, place)).call(request).markers:
            for topic in done.topics:
                for part in topic.partitions:
                    check(part.error_code, what=f"{topic.name}-{part.partition_index}")

    cluster.with_retries(ask)


def terminate(cluster: ClusterClient, transactional_id: str) -> None:
    """Fences the producer of a transactional id, which aborts its transaction."""

    def ask() -> None:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=FENCE_TIMEOUT_MS
        )
        response = cluster.coordinator(transactional_id, TRANSACTION).call(request)
        check(response.error_code, what=f"transactional id {transactional_id!r}")

    cluster.with_retries(ask, again=True)
