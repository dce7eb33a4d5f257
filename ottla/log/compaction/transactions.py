"""Which batches and markers of transactions a cleaner may drop, told in the order of the log.

An aborted transaction's records go at once. Its marker, and that of a committed one, goes only when
a whole pass has met no batch of the transaction any more: without its marker, what is left of a
transaction would look open, or belong to the next one.
"""

from collections.abc import Iterable
from operator import attrgetter

from ottla.log.index.transaction_index import AbortedTransaction


class OpenAbort:
    """An aborted transaction that a pass is inside of."""

    __slots__ = ("entry", "observed")

    def __init__(self, entry: AbortedTransaction) -> None:
        self.entry, self.observed = entry, False


class CleanedTransactions:
    """The transactions of one pass over a log, from its beginning or from any offset."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self.waiting = sorted(aborted, key=attrgetter("first_offset"), reverse=True)
        self.aborted: dict[int, OpenAbort] = {}
        self.committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []
        """Entries for the transaction index of the cleaned segment."""

    def advance(self, first_offset: int, last_offset: int) -> None:
        """Enter the transactions that began up to `last_offset`."""
        while self.waiting and self.waiting[-1].first_offset <= last_offset:
            entry = self.waiting.pop()
            # One that had ended before must not swallow the producer's next transaction.
            if entry.last_offset >= first_offset:
                self.aborted.setdefault(entry.producer_id, OpenAbort(entry))

    def batch(self, producer_id: int, first_offset: int, last_offset: int) -> bool:
        """Whether a transactional batch was aborted."""
        self.advance(first_offset, last_offset)
        found = self.aborted.get(producer_id)
        if found is not None and found.entry.last_offset < first_offset:
            del self.aborted[producer_id]
            found = None
        if found is None:
            self.committed.add(producer_id)
            return False
        found.observed = True
        return True

    def marker(self, producer_id: int, offset: int, commits: bool) -> bool:
        """Whether nothing is left of the transaction that a marker ends."""
        self.advance(offset, offset)
        if commits:
            empty = producer_id not in self.committed
            self.committed.discard(producer_id)
            return empty
        found = self.aborted.pop(producer_id, None)
        if found is None or not found.observed:
            return True
        self.kept.append(found.entry)
        return False
