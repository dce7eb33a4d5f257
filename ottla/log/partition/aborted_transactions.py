"""The aborted transactions that a read_committed consumer has to filter out.

A segment's entries are read once and cached in the segment. An entry is trusted only if its marker
exists. The first batch of the transaction must exist too, unless compaction removed it. If an entry
is not trusted, the whole index is rebuilt from the batches. The reason: an index with a wrong entry
may also lack entries. Aborted records would then look committed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.log.files.disk import is_passing
from ottla.log.files.transaction_index import ENTRY, AbortedTransaction
from ottla.log.partition.trust import FAR, header_at, header_in

if TYPE_CHECKING:
    from ottla.log.partition.readable_log import ReadableLog
    from ottla.log.partition.segment import Segment

CHECKED_AT_ONCE_MAX = 256
"""An index with at most this many entries is checked when it is loaded. In a larger one each entry
is checked at its first use, because a check costs two small reads."""


class AbortedTransactions:
    """The aborted transactions of one segment, in the order of their markers.

    `earliest` is the lowest first offset of all these transactions: a read that ends at or before
    `earliest` contains no record of them.
    """

    __slots__ = ("checked", "data", "earliest", "lowest")

    def __init__(self, data: bytes) -> None:
        self.earliest = FAR
        self.data = bytearray()
        self.checked = bytearray()
        self.lowest = array("q")
        for at in range(0, len(data), ENTRY.size):
            self.add(AbortedTransaction(*ENTRY.unpack_from(data, at)[1:]))

    def __len__(self) -> int:
        return len(self.lowest)

    def add(self, transaction: AbortedTransaction) -> None:
        """Adds the newest transaction."""
        self.data += ENTRY.pack(0, *transaction)
        self.checked.append(0)
        self.lowest.append(transaction.first_offset)
        assert len(self.lowest) == len(self.checked)
        self.earliest = min(self.earliest, transaction.first_offset)
        at = len(self.lowest) - 2
        # lowest[i] is the lowest first offset of the transactions from number i on.
        while at >= 0 and self.lowest[at] > transaction.first_offset:
            self.lowest[at] = transaction.first_offset
            at -= 1

    def entry(self, at: int) -> AbortedTransaction:
        """The transaction with this number."""
        return AbortedTransaction(*ENTRY.unpack_from(self.data, at * ENTRY.size)[1:])

    def first_from(self, offset: int) -> int:
        """The number of the first transaction whose marker is at `offset` or later."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle).last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low


class DoesNotFit(Exception):
    """A segment's transaction index is unreadable, distrusted, or contradicts the batches."""


def aborted_in(
    log: ReadableLog, segments: Sequence[Segment], from_offset: int, to_offset: int, patient: bool
) -> list[AbortedTransaction]:
    """The aborted transactions of these segments that have records in a range of offsets.

    Raises RebuildNeeded, OSError; CorruptMessage if the index cannot be rebuilt from the batches.
    """
    aborted: list[AbortedTransaction] = []
    for segment in segments:
        known = segment.aborted.entries
        if known is not None and known.earliest >= to_offset:
            continue
        try:
            aborted += within(log, segment, from_offset, to_offset, patient)
        except DoesNotFit:
            segment.aborted.keep(trusted(log.remake_aborted(segment, patient)))
            aborted += within(log, segment, from_offset, to_offset, patient)
    return aborted


def trusted(entries: Iterable[tuple[int, int, int, int]]) -> AbortedTransactions:
    """Transactions that were found in the batches, and need no check."""
    made = AbortedTransactions(b"".join(ENTRY.pack(0, *entry) for entry in entries))
    made.checked = bytearray(b"\1" * len(made))
    return made


def within(
    log: ReadableLog, segment: Segment, from_offset: int, to_offset: int, patient: bool
) -> list[AbortedTransaction]:
    """The aborted transactions of one segment. Raises DoesNotFit."""
    known = segment.aborted.entries
    if known is None:
        known = load(log, segment, patient)
        segment.aborted.keep(known)
    aborted = []
    at = known.first_from(from_offset)
    while at < len(known) and known.lowest[at] < to_offset:
        entry = known.entry(at)
        check(log, segment, known, at, patient)
        if entry.first_offset < to_offset:
            aborted.append(entry)
        at += 1
    return aborted


def load(log: ReadableLog, segment: Segment, patient: bool) -> AbortedTransactions:
    """Reads a segment's entries, and adds those that a full disk has not accepted yet. Raises
    DoesNotFit."""
    if segment.aborted.distrusted:
        raise DoesNotFit
    waiting = log.waiting_aborted(segment)
    try:
        data = log.disk.read_bytes(segment.path(".txnindex"))
    except FileNotFoundError:
        data = None
    except OSError as error:
        if is_passing(error):
            raise
        raise DoesNotFit from error
    if data is not None and (len(data) % ENTRY.size or not (data or waiting)):
        raise DoesNotFit        # an empty file is damaged: it is created with its first entry
    before = segment.base_offset - 1
    for version, producer_id, first, last, stable in ENTRY.iter_unpack(data or b""):
        if version or producer_id < 0 or not (
            0 <= first <= last and before < last < segment.end_offset and stable <= last + 1
        ):
            raise DoesNotFit
        before = last
    known = AbortedTransactions(data or b"")
    for transaction in waiting:
        known.add(transaction)
    if len(known) <= CHECKED_AT_ONCE_MAX:
        for at in range(len(known)):
            check(log, segment, known, at, patient)
    return known


def check(
    log: ReadableLog, segment: Segment, known: AbortedTransactions, at: int, patient: bool
) -> None:
    """Checks that the marker of an entry exists. The first batch must exist too, unless compaction
    removed it. Raises DoesNotFit."""
    if known.checked[at]:
        return
    entry = known.entry(at)
    marker = header_at(segment, entry.last_offset, patient)
    if (marker.last, marker.producer_id) != (entry.last_offset, entry.producer_id):
        raise DoesNotFit
    # If the batch that was found begins after first_offset, compaction removed the first batch.
    begun = header_in(log.segments, entry.first_offset, patient)
    if not marker.control or begun.first < entry.first_offset or (
        begun.first == entry.first_offset
        and (
            begun.producer_id != entry.producer_id
            or not begun.transactional or begun.control
        )
    ):
        raise DoesNotFit
    known.checked[at] = 1
