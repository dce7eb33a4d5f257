"""Completes transactions: writes one marker into every partition, until all of them are committed.

    PrepareCommit recorded -> Ending -> a marker into each partition -> all committed -> Complete
                                  '---- failed ones are retried after a delay ----'

The partitions may be on any broker; a function that is passed in writes there. Writing a marker
twice does no harm: the second one ends nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.groups.transactions.records import TopicIndex, TransactionValue
from ottla.wire.errors import ErrorCode, ProtocolError


class TransactionMarker(NamedTuple):
    """The marker that ends a producer's transaction in a partition."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    commits: bool


MarkerWritten = Callable[[ProtocolError | None], None]
"""Called once when a marker is committed in its partition, or with the error."""

WriteMarker = Callable[[TopicIndex, TransactionMarker, MarkerWritten], None]
"""Writes a marker into a partition; may raise ProtocolError instead of reporting it."""

_SETTLED = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH)
"""A partition that was deleted needs no marker; one with a newer epoch has had it."""


class Ending:
    """The end of one transaction in progress.

    `finished` is called once all markers are committed, `delayed` each time that some could not be
    written and none is under way any more: then call `drive` again.
    """

    def __init__(
        self,
        transactional_id: str,
        value: TransactionValue,
        coordinator_epoch: int,
        write: WriteMarker,
        finished: Callable[[Ending], None],
        delayed: Callable[[Ending], None],
    ) -> None:
        self.transactional_id = transactional_id
        self.marker = TransactionMarker(
            value.producer_id, value.epoch, coordinator_epoch, value.commits
        )
        self.remaining = set(value.partitions)
        self.answer: Callable[[], Any] | None = None
        """Answers the client that requested the end and waits for the markers."""
        self._write, self._finished, self._delayed = write, finished, delayed
        self._open = 0
        self._driving = False

    def drive(self) -> None:
        """Writes every marker that is missing."""
        if self._open:
            return
        self._driving = True
        for partition in sorted(self.remaining):
            self._open += 1
            try:
                self._write(partition, self.marker, self._teller(partition))
            except ProtocolError as error:
                self._told(partition, error)
        self._driving = False
        self._look()

    def release(self) -> None:
        """Answers the client: the end is decided, whatever the markers still wait for."""
        answer, self.answer = self.answer, None
        if answer is not None:
            answer()

    def _teller(self, partition: TopicIndex) -> MarkerWritten:
        return lambda error: self._told(partition, error)

    def _told(self, partition: TopicIndex, error: ProtocolError | None) -> None:
        self._open -= 1
        if error is None or error.code in _SETTLED:
            self.remaining.discard(partition)
        if not self._driving:
            self._look()

    def _look(self) -> None:
        if self._open:
            return
        if self.remaining:
            self._delayed(self)
        else:
            self._finished(self)
