"""Decides, in log order, which batches and markers of transactions a cleaner may drop.

An aborted transaction's records are dropped by the first pass that reads them. A marker is dropped
only after a whole pass has found no batch of its transaction. Without the marker, remaining batches
would look like an open transaction, or like a part of the producer's next transaction.
"""

from collections.abc import Iterable
from operator import attrgetter

from ottla.log.files.transaction_index import AbortedTransaction


class OpenAbort:
    """An aborted transaction that the pass has reached. `observed`: the pass has met one of its
    batches."""

    __slots__ = ("entry", "observed")

    def __init__(self, entry: AbortedTransaction) -> None:
        self.entry, self.observed = entry, False


class CleanedTransactions:
    """What one pass over a log knows about the transactions in it."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self.waiting = sorted(aborted, key=attrgetter("first_offset"), reverse=True)
        self.aborted: dict[int, OpenAbort] = {}
        self.committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []
        """Entries for the transaction index of the cleaned segment."""

    def advance(self, first_offset: int, last_offset: int) -> None:
        """Adds the aborted transactions that begin at or before `last_offset`."""
        while self.waiting and self.waiting[-1].first_offset <= last_offset:
            entry = self.waiting.pop()
            # A transaction that ended before `first_offset` is skipped: the producer's next
            # transaction may have begun.
            if entry.last_offset >= first_offset:
                self.aborted.setdefault(entry.producer_id, OpenAbort(entry))

    def batch(self, producer_id: int, first_offset: int, last_offset: int) -> bool:
        """Whether a transactional batch belongs to an aborted transaction."""
        self.advance(first_offset, last_offset)
        abort = self.aborted.get(producer_id)
        if abort is not None and abort.entry.last_offset < first_offset:
            del self.aborted[producer_id]
            abort = None
        if abort is None:
            self.committed.add(producer_id)
            return False
        abort.observed = True
        return True

    def marker(self, producer_id: int, offset: int, commits: bool) -> bool:
        """Whether the marker may be dropped: the pass has met no batch of the transaction that the
        marker ends."""
        self.advance(offset, offset)
        if commits:
            empty = producer_id not in self.committed
            self.committed.discard(producer_id)
            return empty
        abort = self.aborted.pop(producer_id, None)
        if abort is None or not abort.observed:
            return True
        self.kept.append(abort.entry)
        return False
