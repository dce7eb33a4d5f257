"""Markers for partitions that other brokers lead: the outcome of each marker is reported once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordination.marker_sender import PARTITIONS_MAX, MarkerSender
from ottla.broker.peers.peers import MARKERS, PeerUnavailable
from ottla.groups.transactions.markers import TransactionMarker
from ottla.replication.metadata import MetadataImage, PartitionState, TopicImage
from ottla.wire.errors import ErrorCode, NotLeaderOrFollower, ProtocolError
from ottla.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse

COMMIT, ABORT = TransactionMarker(7, 1, 3, True), TransactionMarker(7, 2, 3, False)
Answer = Callable[[WriteTxnMarkersRequest], WriteTxnMarkersResponse]


class Leader:
    """Another broker, as seen through `Peers`."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.asked = answer, list[WriteTxnMarkersRequest]()
        self.loop = asyncio.get_running_loop()
        self.gate = asyncio.Event()

    async def ask(
        self, node_id: int, request: WriteTxnMarkersRequest, version: int, seconds: float, lane: str
    ) -> Any:
        assert (node_id, lane) == (2, MARKERS)
        decoded = WriteTxnMarkersRequest.decode(request.encode(version), version)
        self.asked.append(decoded)
        await self.gate.wait()
        return self.answer(decoded)


def codes(of: Callable[[str, int], int]) -> Answer:
    made = WriteTxnMarkersResponse.Marker

    def answer(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(markers=[
            made(producer_id=marker.producer_id, topics=[
                made.Topic(name=topic.name, partitions=[
                    made.Topic.Partition(partition_index=at, error_code=of(topic.name, at))
                    for at in topic.partition_indexes
                ])
                for topic in marker.topics
            ])
            for marker in request.markers
        ])

    return answer


def sender(leader: Leader) -> MarkerSender:
    state = PartitionState(2, 0, (2,), (2,))
    topics = {"t": TopicImage("t", b"\1" * 16, (state,) * (PARTITIONS_MAX + 10))}
    metadata = SimpleNamespace(image=MetadataImage(topics=topics))
    return MarkerSender(metadata, leader)       # type: ignore[arg-type]


def told(outcomes: list[ProtocolError | None]) -> list[ErrorCode]:
    return [ErrorCode.NONE if each is None else each.code for each in outcomes]


def run(answer: Answer, items: list[tuple[str, int, TransactionMarker]]) -> tuple[list[Any], int]:
    async def send() -> tuple[list[Any], int]:
        leader = Leader(answer)
        sending, outcomes = sender(leader), []
        for topic, index, marker in items:
            sending.send(2, (topic, index), marker, outcomes.append)
        leader.gate.set()
        await asyncio.gather(*sending.sending.values())
        return outcomes, len(leader.asked)

    return asyncio.run(send())


def test_markers_go_in_one_request_and_each_is_told_its_own_code() -> None:
    fenced = int(ErrorCode.INVALID_PRODUCER_EPOCH)
    outcomes, requests = run(
        codes(lambda topic, index: fenced if index == 1 else 0),
        [("t", 0, COMMIT), ("t", 1, COMMIT), ("t", 2, ABORT), ("t", 1, ABORT)],
    )
    assert requests == 1
    assert told(outcomes) == [
        ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ]


def test_a_leader_is_told_whether_a_marker_has_the_epoch_of_the_next_transaction() -> None:
    versions: list[int] = []

    def answer(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        versions.extend(marker.transaction_version for marker in request.markers)
        return codes(lambda topic, index: 0)(request)

    run(answer, [("t", 0, COMMIT), ("t", 1, COMMIT._replace(version=2))])
    assert versions == [0, 2]


def test_a_leader_that_does_not_know_the_topic_yet_settles_nothing() -> None:
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    outcomes, _ = run(codes(lambda topic, index: unknown), [("t", 0, ABORT), ("gone", 0, ABORT)])
    assert told(outcomes) == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]


def test_a_partition_that_the_answer_leaves_out_is_tried_again() -> None:
    outcomes, _ = run(lambda request: WriteTxnMarkersResponse(), [("t", 0, COMMIT)])
    assert told(outcomes) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_leader_that_cannot_be_asked_is_tried_again() -> None:
    def broken(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        raise PeerUnavailable("gone", sent=True)

    outcomes, _ = run(broken, [("t", 0, COMMIT), ("t", 3, COMMIT)])
    assert told(outcomes) == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2


def test_a_leader_that_fails_in_an_unknown_way_is_tried_again() -> None:
    def broken(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        raise ValueError("a bug of ours")

    outcomes, _ = run(broken, [("t", 0, COMMIT), ("t", 3, COMMIT)])
    assert told(outcomes) == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    outcomes, _ = run(
        codes(lambda topic, index: 9_999 if index else 0), [("t", 1, COMMIT), ("t", 0, COMMIT)]
    )
    assert told(outcomes) == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]


def test_what_follows_one_marker_may_fail_and_the_others_are_told() -> None:
    def fails(outcome: ProtocolError | None) -> None:
        raise OSError("the coordinator's own log cannot be written")

    async def send() -> list[ProtocolError | None]:
        leader = Leader(codes(lambda topic, index: 0))
        sending, outcomes = sender(leader), list[ProtocolError | None]()
        for index, written in enumerate((fails, outcomes.append)):
            sending.send(2, ("t", index), COMMIT, written)
        leader.gate.set()
        await asyncio.gather(*sending.sending.values(), return_exceptions=True)
        return outcomes

    assert asyncio.run(send()) == [None]


def test_many_partitions_go_in_several_requests() -> None:
    count = PARTITIONS_MAX + 1
    outcomes, requests = run(
        codes(lambda topic, index: 0), [("t", index, COMMIT) for index in range(count)]
    )
    assert (outcomes, requests) == ([None] * count, 2)


def test_without_a_leader_nothing_is_sent() -> None:
    async def send() -> None:
        with pytest.raises(NotLeaderOrFollower):
            sender(Leader(codes(lambda topic, index: 0))).send(-1, ("t", 0), COMMIT, print)

    asyncio.run(send())
