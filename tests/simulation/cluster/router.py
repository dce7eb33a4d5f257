"""Lets clients of the one-broker simulation work on a cluster: each request goes to the responsible
broker, as in stock clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from tests.simulation.cluster.clients import Client
from tests.simulation.network import Broken
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster.story import ClusterStory

FOUND_SECONDS = 120.0
AT_LEADER = (ProduceRequest, FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest)
OF_TRANSACTION = (
    InitProducerIdRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, EndTxnRequest,
)
GROUP, TRANSACTION = 0, 1
FENCED = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH,
}
"""Errors of a read after which the leader is looked up again."""
NOT_DONE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.OFFSET_NOT_AVAILABLE,
}
"""Errors of requests that were not executed. The router sends the request again, to the same or
another broker."""
MOVED = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""Errors that are returned to the client. Before the client's next request, the router looks up the
responsible broker again."""


class Router:
    """A client's connections, with the interface of `session.Session`."""

    def __init__(self, story: ClusterStory, name: str) -> None:
        self.client, self.story, self.world = Client(story, name), story, story.world
        self.places: dict[Any, int] = {}

    async def call(self, request: Any, version: int, link: None = None) -> Any:
        """Send a request to the responsible broker. Raises Broken if there was no answer; then the
        outcome is unknown."""
        end = self.world.now + FOUND_SECONDS
        while True:
            key = self.key(request)
            node_id = await self.find(key)
            if node_id is not None:
                if isinstance(request, FetchRequest):
                    # Without this epoch, a broker that no longer leads would not refuse the fetch,
                    # but answer from its own log, as a follower.
                    epoch = self.client.epochs[key]
                    request.topics[0].partitions[0].current_leader_epoch = epoch
                try:
                    answer = await self.client.call(node_id, request, version)
                except Broken:
                    self.places.pop(key, None)
                    raise
                codes = set(errors(answer))
                if codes & (NOT_DONE | MOVED):
                    self.places.pop(key, None)
                reads = isinstance(request, AT_LEADER) and not isinstance(request, ProduceRequest)
                lost = reads and codes & FENCED
                if lost:
                    self.places.pop(key, None)
                if not codes & NOT_DONE and not lost and not self.spoilt(request, answer):
                    return answer
            if self.world.now > end:
                raise Violation(f"within {FOUND_SECONDS:g} s no broker serves {key}")
            if self.story.over and self.story.cancelled:
                raise Broken
            await asyncio.sleep(0.1)

    def spoilt(self, request: Any, answer: Any) -> bool:
        """Whether a client refuses the fetched records of an answer because bytes were changed on a
        disk."""
        return isinstance(request, FetchRequest) and any(
            self.story.damage.spoils(self.name(topic), part.partition_index, part.records)
            for topic in answer.responses for part in topic.partitions
        )

    def key(self, request: Any) -> Any:
        """What determines the responsible broker: a partition (by topic name and index), a
        transactional id or a group. None if any broker may answer."""
        if isinstance(request, AT_LEADER):
            for topics in ("topic_data", "topics"):
                if hasattr(request, topics):
                    break
            (topic,) = getattr(request, topics)
            parts = topic.partition_data if topics == "topic_data" else topic.partitions
            for name in ("index", "partition_index", "partition"):
                if hasattr(parts[0], name):
                    return self.name(topic), getattr(parts[0], name)
        if isinstance(request, OF_TRANSACTION):
            name = getattr(request, "transactional_id", None) or getattr(
                request, "v3_and_below_transactional_id", None
            )
            return None if name is None else (TRANSACTION, name)
        for field in ("group_id", "groups_names", "groups"):
            found = getattr(request, field, None)
            if found:
                group = found if isinstance(found, str) else found[0]
                return GROUP, getattr(group, "group_id", group)
        return None

    def name(self, topic: Any) -> str:
        """The topic's name, also if the request has only its id."""
        name = getattr(topic, "name", "") or getattr(topic, "topic", "")
        return name or self.story.model.by_id[topic.topic_id].name

    async def find(self, key: Any) -> int | None:
        """The node id of the responsible broker, according to a random broker; None if that broker
        knows none."""
        if key is None:
            up = [each.node_id for each in self.world.brokers if each.up]
            return self.story.random.choice(up) if up else None
        if key not in self.places:
            if isinstance(key[0], str):
                _, answer = await self.client.ask_any(MetadataRequest(
                    topics=[MetadataRequest.Topic(name=key[0])], allow_auto_topic_creation=False,
                ), 12)
                found = [part.leader_id for topic in answer.topics for part in topic.partitions
                         if part.partition_index == key[1]
                         and self.client.is_news(key[0], part)]
            else:
                _, answer = await self.client.ask_any(FindCoordinatorRequest(
                    key_type=key[0], coordinator_keys=[key[1]]
                ), 4)
                found = [each.node_id for each in answer.coordinators if each.error_code == 0]
            if not found or found[0] < 0:
                return None
            self.places[key] = found[0]
        return self.places[key]


def errors(answer: Any) -> Iterator[ErrorCode]:
    """Every error code in an answer, at any depth."""
    for name in type(answer).__slots__:
        value = getattr(answer, name)
        if name in ("error_code", "partition_error_code"):
            if value:
                yield ErrorCode(value)
        elif isinstance(value, list):
            for each in value:
                if hasattr(type(each), "__slots__"):
                    yield from errors(each)
