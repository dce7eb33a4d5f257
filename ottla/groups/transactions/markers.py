"""Completes transactions: writes a marker into every partition, and repeats failed writes until all
markers are committed.

    PrepareCommit recorded -> Ending -> a marker into each partition -> all committed -> Complete
                                  '-- failed markers are retried after a delay --'

The partitions may be on any broker; the caller passes the function that writes markers. Writing a
marker twice does no harm: the second marker ends nothing. A late marker may arrive during the
producer's next transaction. In version 2 of transactions, the partition refuses it; earlier
versions cannot distinguish the two transactions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.groups.topic_indexes import indexes_by_topic
from ottla.groups.transactions.records import TopicIndex, TransactionValue
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.marks import reached

if TYPE_CHECKING:
    from ottla.groups.result import Answer

log = logging.getLogger("ottla.groups")


class TransactionMarker(NamedTuple):
    """The marker that ends a producer's transaction in a partition."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    commits: bool
    version: int = 0
    """The version of transactions. In version 2 a marker's epoch is above its transaction's epoch,
    and is also the epoch of the producer's next transaction."""


MarkerWritten = Callable[[ProtocolError | None], None]
"""Called once for each marker: with None when the marker is committed in its partition, or with the
error."""

WriteMarker = Callable[[TopicIndex, TransactionMarker, MarkerWritten], None]
"""Writes a marker into a partition. May raise a ProtocolError instead of passing it to the
MarkerWritten."""

_SETTLED = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH)
"""Errors after which no marker is needed. Either the partition was deleted; or the producer already
has a newer epoch or its next transaction there, which shows that this marker was written before."""


AT_ONCE_MAX = 50
"""The most markers that one turn of the loop writes; this takes one or two milliseconds."""


class Ending:
    """A transaction that is ending: the markers that are missing, and the client that waits.

    `TransactionShard` holds the endings of its transactional ids. `TransactionRuntime` drives them,
    at most AT_ONCE_MAX markers at a time.
    """

    def __init__(
        self, transactional_id: str, value: TransactionValue, coordinator_epoch: int
    ) -> None:
        assert value.is_ending, "the transaction is not ending"
        self.transactional_id = transactional_id
        self.marker = TransactionMarker(
            value.producer_id, value.epoch, coordinator_epoch, value.commits, value.client_version
        )
        self.remaining = set(value.partitions)
        self._untried: list[TopicIndex] = []
        """The partitions that this attempt has not tried yet, in reverse order."""
        self._waiting: tuple[Answer, Any] | None = None
        self._open = 0
        """How many markers are being written. `settled` is called, and the next attempt begins,
        only once each of them is committed or has failed."""
        self._driving = False
        self._failed: set[TopicIndex] = set()
        """Partitions whose write failed unexpectedly; each is logged once."""

    def wait(self, answer: Answer, reply: Any) -> None:
        """Make a client wait for the markers; the client then gets `reply`."""
        self._waiting = (answer, reply)

    def drive(self, write: WriteMarker, settled: Callable[[Ending], None]) -> None:
        """Writes the next missing markers; calls `settled` once each of them is committed or has
        failed."""
        if self._open:
            return
        self._driving = True
        self._untried = self._untried or self._missing()
        now = self._untried[: -AT_ONCE_MAX - 1 : -1]
        del self._untried[-AT_ONCE_MAX:]
        for partition in now:
            self._open += 1
            try:
                write(partition, self.marker, self._report(partition, settled))
            except ProtocolError as error:
                self._settle(partition, error, settled)
            except Exception:
                # For example, the log is truncated. The attempt must end nevertheless: otherwise
                # there would be no further attempt, and the transaction would never end.
                if partition not in self._failed:
                    self._failed.add(partition)
                    log.exception("no transaction marker could be written to %s-%d", *partition)
                self._settle(
                    partition, ProtocolError("an internal error; the broker's log says why"),
                    settled,
                )
        self._driving = False
        if not self._open:
            settled(self)

    def _missing(self) -> list[TopicIndex]:
        in_order = indexes_by_topic(self.remaining).items()
        return [(topic, index) for topic, indexes in in_order for index in indexes][::-1]

    @property
    def has_untried(self) -> bool:
        """Whether this attempt has markers that were not tried yet: the next `drive` tries them."""
        return bool(self._untried)

    def release(self) -> None:
        """Answers the client: the end is decided, even if some markers are still missing."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            answer, reply = waiting
            answer(reply)

    def _report(self, partition: TopicIndex, settled: Callable[[Ending], None]) -> MarkerWritten:
        return lambda error: self._settle(partition, error, settled)

    def _settle(
        self,
        partition: TopicIndex,
        error: ProtocolError | None,
        settled: Callable[[Ending], None],
    ) -> None:
        self._open -= 1
        assert self._open >= 0, "a marker was reported twice"
        assert partition in self.remaining, "the partition has its marker already"
        if error is None or error.code in _SETTLED:
            if error is not None and error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
                reached("a partition with a newer epoch needs no marker")
            if error is not None and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                reached("a deleted partition needs no marker")
            self.remaining.discard(partition)
        if not self._driving and not self._open:
            settled(self)
