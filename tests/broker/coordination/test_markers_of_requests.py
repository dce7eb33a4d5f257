"""WriteTxnMarkers at the leader: no marker waits for another one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.api.transaction_admin import write_txn_markers
from ottla.groups.transactions.markers import MarkerWritten, TransactionMarker
from ottla.groups.transactions.records import TopicIndex
from ottla.wire.errors import ErrorCode, NotLeaderOrFollower, ProtocolError
from ottla.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse

MANY = 120


class Leader:
    """The partitions of a broker, one of which fails. `written` has the markers that are not
    committed yet."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure or NotLeaderOrFollower("elsewhere")
        self.loop = asyncio.get_running_loop()
        self.written: dict[tuple[int, TopicIndex], MarkerWritten] = {}
        self.has_all = asyncio.Event()

    def write_marker(
        self, where: TopicIndex, marker: TransactionMarker, written: MarkerWritten
    ) -> None:
        if where == ("t", 1):
            raise self.failure
        self.written[marker.producer_id, where] = written
        if len(self.written) == 2 * MANY:           # all but the refused ones
            self.has_all.set()


def request() -> WriteTxnMarkersRequest:
    made = WriteTxnMarkersRequest.Marker
    topics = [
        made.Topic(name="stuck", partition_indexes=[0]),
        made.Topic(name="t", partition_indexes=list(range(MANY))),
    ]
    return WriteTxnMarkersRequest(markers=[
        made(producer_id=each, producer_epoch=0, topics=topics) for each in (7, 8)
    ])


@pytest.mark.parametrize("stuck", [None, ProtocolError("x", ErrorCode.KAFKA_STORAGE_ERROR)])
def test_a_marker_that_the_replicas_do_not_take_holds_no_other_one(
    stuck: ProtocolError | None,
) -> None:
    async def serve() -> WriteTxnMarkersResponse:
        leader = Leader()
        allowed = SimpleNamespace(cluster=lambda operation: True)
        context: Any = SimpleNamespace(
            version=1, access=SimpleNamespace(quiet=allowed),
            broker=SimpleNamespace(coordinators=SimpleNamespace(transactions=leader)),
        )
        answer = asyncio.ensure_future(write_txn_markers(request(), context))
        async with asyncio.timeout(10):
            await leader.has_all.wait()
        last = leader.written.pop((7, ("stuck", 0)))
        for written in leader.written.values():
            written(None)
        assert not answer.done()
        last(stuck)
        return await answer

    first, second = asyncio.run(serve()).markers
    assert (first.producer_id, second.producer_id) == (7, 8)
    refused = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    for marker, code in ((first, 0 if stuck is None else int(stuck.code)), (second, 0)):
        assert [topic.name for topic in marker.topics] == ["stuck", "t"]
        assert [each.error_code for each in marker.topics[0].partitions] == [code]
        assert [each.error_code for each in marker.topics[1].partitions] == [
            refused if index == 1 else 0 for index in range(MANY)
        ]


def test_a_marker_whose_write_ends_unexpectedly_is_answered_as_the_others() -> None:
    """Without an answer, the coordinator would send all markers again, with the same result."""
    said: list[str] = []

    async def serve() -> WriteTxnMarkersResponse:
        leader = Leader(EOFError("cut"))
        allowed = SimpleNamespace(cluster=lambda operation: True)
        context: Any = SimpleNamespace(
            version=1, access=SimpleNamespace(quiet=allowed),
            broker=SimpleNamespace(
                coordinators=SimpleNamespace(transactions=leader),
                notes=SimpleNamespace(tell=lambda log, subject, text: said.append(text)),
            ),
        )
        answer = asyncio.ensure_future(write_txn_markers(request(), context))
        async with asyncio.timeout(10):
            await leader.has_all.wait()
        for written in leader.written.values():
            written(None)
        return await answer

    for marker in asyncio.run(serve()).markers:
        codes = [each.error_code for each in marker.topics[1].partitions]
        assert codes == [
            int(ErrorCode.UNKNOWN_SERVER_ERROR) if index == 1 else 0 for index in range(MANY)
        ]
    assert len(said) == 2 and "t-1" in said[0] and "EOFError" in said[0]
