"""Sends markers to the leaders on other brokers, one WriteTxnMarkers at a time to each broker.

Markers that are added while a request is in flight are sent with the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.broker.peers.peers import MARKERS, Peers, PeerUnavailable
from ottla.groups.topic_indexes import indexes_by_topic
from ottla.groups.transactions.markers import MarkerWritten, TransactionMarker
from ottla.groups.transactions.records import TopicIndex
from ottla.wire.errors import ErrorCode, NotLeaderOrFollower, ProtocolError
from ottla.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse

if TYPE_CHECKING:
    from ottla.broker.cluster.metadata_log import Metadata

log = logging.getLogger("ottla.groups")

VERSION = 2
PARTITIONS_MAX = 1000
"""The most markers in one request; further markers are sent with the next request."""
REQUEST_SECONDS = 30.0

UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR
_CODES = frozenset(map(int, ErrorCode))

Item = tuple[TopicIndex, TransactionMarker, MarkerWritten]


class MarkerSender:
    """Asks leaders to write markers. Each marker's `written` is called once, with the outcome."""

    def __init__(self, metadata: Metadata, peers: Peers) -> None:
        self.metadata, self.peers = metadata, peers
        self.waiting: dict[int, list[Item]] = {}
        self.sending: dict[int, asyncio.Task[None]] = {}

    def send(
        self, leader: int, where: TopicIndex, marker: TransactionMarker, written: MarkerWritten
    ) -> None:
        """Ask the leader to write a marker. Raises NotLeaderOrFollower if there is no leader."""
        if leader < 0:
            raise NotLeaderOrFollower(f"{where[0]}-{where[1]} has no leader")
        self.waiting.setdefault(leader, []).append((where, marker, written))
        if leader not in self.sending:
            self.sending[leader] = self.peers.loop.create_task(self._send_all(leader))

    async def _send_all(self, leader: int) -> None:
        try:
            while self.waiting.get(leader):
                items = self.waiting[leader]
                self.waiting[leader] = items[PARTITIONS_MAX:]
                await self._send(leader, items[:PARTITIONS_MAX])
        finally:
            del self.sending[leader]

    async def _send(self, leader: int, items: list[Item]) -> None:
        groups: dict[TransactionMarker, list[TopicIndex]] = {}
        for where, marker, _ in items:
            groups.setdefault(marker, []).append(where)
        request = WriteTxnMarkersRequest(
            markers=[_marker(marker, partitions) for marker, partitions in groups.items()]
        )
        codes: dict[tuple[TransactionMarker, TopicIndex], int] = {}
        reason = f"broker {leader} did not report whether it wrote a transaction marker"
        try:
            response = await self.peers.ask(
                leader, request, VERSION, REQUEST_SECONDS, lane=MARKERS
            )
            codes = dict(_codes(groups, response))
        except PeerUnavailable as error:
            reason = str(error)
        except Exception:
            # Callers must get an outcome after any error, or their transactions never end.
            log.exception("transaction markers could not be sent to broker %d", leader)
        for where, marker, written in items:
            if (code := codes.get((marker, where))) is None:
                # The marker may have been written. It is sent again: a second marker has no effect.
                outcome: ProtocolError | None = NotLeaderOrFollower(reason)
            else:
                outcome = self._outcome(where, leader, code)
            try:
                written(outcome)
            except Exception:
                # The other callers must still get an outcome.
                log.exception("the outcome of a transaction marker for %s-%d was not processed",
                              *where)

    def _outcome(self, where: TopicIndex, leader: int, code: int) -> ProtocolError | None:
        """Interpret a leader's error code."""
        topic, index = where
        if code == ErrorCode.NONE:
            return None
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            # The leader's metadata may be older than the topic. Only a topic that is deleted, as
            # far as this broker knows, needs no marker.
            known = self.metadata.image.topics.get(topic)
            if known is not None and index < len(known.partitions):
                return NotLeaderOrFollower(f"broker {leader} does not know {topic}-{index} yet")
        text = f"broker {leader} refuses a transaction marker: error code {code}"
        # A newer broker may send codes that are unknown here.
        return ProtocolError(text, ErrorCode(code if code in _CODES else UNKNOWN))


def _marker(
    marker: TransactionMarker, partitions: Iterable[TopicIndex]
) -> WriteTxnMarkersRequest.Marker:
    made = WriteTxnMarkersRequest.Marker
    return made(
        producer_id=marker.producer_id,
        producer_epoch=marker.epoch,
        transaction_result=marker.commits,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.version,
        topics=[
            made.Topic(name=name, partition_indexes=indexes)
            for name, indexes in indexes_by_topic(partitions).items()
        ],
    )


def _codes(
    groups: dict[TransactionMarker, list[TopicIndex]], response: WriteTxnMarkersResponse
) -> Iterable[tuple[tuple[TransactionMarker, TopicIndex], int]]:
    """The error codes; a partition that is missing in the response gets
    NOT_LEADER_OR_FOLLOWER."""
    for marker, partitions in groups.items():
        for where in partitions:
            yield (marker, where), int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    # The markers of a response are in the order of the request.
    for marker, answered in zip(groups, response.markers, strict=False):
        for topic in answered.topics:
            for partition in topic.partitions:
                yield (marker, (topic.name, partition.partition_index)), partition.error_code
