"""Asks each broker about itself: which partitions it leads, in which epoch, and up to which offset
consumers may read.

The rules `split_leadership` and `end_offset_regress` need these answers: a stock client asks only
the broker that it takes for the leader, and does not show epochs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from compat_tests.chaos.history import History, Process
from ottla.client.addresses import parse_address
from ottla.client.connection import Connection
from ottla.client.errors import ClientError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import ListOffsetsRequest, MetadataRequest

EVERY_SECONDS = 0.25
LATEST = -1
LATEST_WITH_EPOCHS = 10
"""The highest version of ListOffsets that the witness sends. Its answers have leader epochs."""


class Witness:
    """Writes down what one broker says of the partitions that it leads, and the leaders that its
    Metadata names."""

    def __init__(self, node: int, address: str, partitions: dict[str, int]) -> None:
        self.node, self.address, self.partitions = node, parse_address(address), partitions
        self.connection: Connection | None = None
        self.told: set[tuple[Any, ...]] = set()

    def watch(self, history: History, over: threading.Event) -> None:
        """Ask the broker until the run is over, and write what is new to the history."""
        process = Process(history)
        while not over.wait(EVERY_SECONDS):
            process.invoke("end_offset", [])
            try:
                process.end("ok", list(self._new()))
            except (ClientError, OSError):          # the broker is dead, cut off or stopped
                self._close()
                process.end("info", [])
        self._close()

    def _new(self) -> Iterator[list[Any]]:
        """Yields what the broker did not say before: a repeated end offset proves nothing new."""
        if self.connection is None:
            self.connection = Connection(
                self.address, connect_seconds=1, request_seconds=5, retry_refused=False
            )
        said = {*self._ends(self.connection), *self._leaders(self.connection)}
        for each in sorted(said - self.told):
            yield list(each)
        # Remember known leaders, so that they are not yielded again after an answer without them:
        # a leader that still waits for its high watermark answers with an error.
        self.told = said | {each for each in self.told if each[0] == "leader"}

    def _ends(self, connection: Connection) -> Iterator[tuple[Any, ...]]:
        """Yields, for each partition that this broker leads, the leader epoch and the offset up to
        which consumers may read."""
        topics = [
            ListOffsetsRequest.Topic(name=name, partitions=[
                ListOffsetsRequest.Topic.Partition(partition_index=index, timestamp=LATEST)
                for index in range(count)
            ])
            for name, count in self.partitions.items()
        ]
        request = ListOffsetsRequest(replica_id=-1, topics=topics)
        for topic in connection.call(request, at_most=LATEST_WITH_EPOCHS).topics:
            for each in topic.partitions:
                if each.error_code == ErrorCode.NONE:
                    key = f"{topic.name}-{each.partition_index}"
                    yield "end", key, each.leader_epoch, each.offset
                    yield "leader", key, each.leader_epoch, self.node

    def _leaders(self, connection: Connection) -> Iterator[tuple[Any, ...]]:
        """Yields the leaders in this broker's Metadata, with their epochs."""
        topics = [MetadataRequest.Topic(name=name) for name in self.partitions]
        for topic in connection.call(MetadataRequest(topics=topics)).topics:
            for each in topic.partitions:
                if each.leader_id >= 0:
                    key = f"{topic.name}-{each.partition_index}"
                    yield "leader", key, each.leader_epoch, each.leader_id

    def _close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None
