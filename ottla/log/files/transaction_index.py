"""The aborted transactions that ended in a segment, for read_committed consumers and compaction.

Entries of the `.txnindex` file, big-endian, in the order of their last offsets:

    0         2             10             18            26                   34
    | version | producer id | first offset | last offset | last stable offset |
      = 0                                    the marker's
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from ottla.log.files.disk import Disk

ENTRY = struct.Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted: its producer, and the offsets that it spans."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """One segment's `.txnindex` file, which exists only if the segment has aborted transactions."""

    __slots__ = ("disk", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk, self.path = disk, path

    def entries(self) -> list[AbortedTransaction]:
        """Every entry. Raises ValueError on an unknown version."""
        try:
            data = self.disk.read_bytes(self.path)
        except FileNotFoundError:
            return []
        whole = len(data) // ENTRY.size * ENTRY.size
        aborted = []
        for version, *fields in ENTRY.iter_unpack(data[:whole]):
            if version != 0:
                raise ValueError(f"{self.path}: an entry has version {version}, expected 0")
            aborted.append(AbortedTransaction(*fields))
        return aborted

    def append(self, transaction: AbortedTransaction) -> None:
        """Adds an entry after the last complete one."""
        file = self.disk.open(self.path, create=True)
        file.pwrite(ENTRY.pack(0, *transaction), file.size() // ENTRY.size * ENTRY.size)
        file.close()

    def truncate_to(self, offset: int) -> int:
        """Forgets transactions whose marker is at `offset` or later; returns the size in bytes.

        An index that cannot be parsed is left as it is, so that the next reader rebuilds it; if it
        were truncated, it could look valid.
        """
        try:
            entries = self.entries()
        except ValueError:
            return self.disk.size(self.path)
        kept = sum(entry.last_offset < offset for entry in entries)
        if kept < len(entries):
            file = self.disk.open(self.path)
            file.truncate(kept * ENTRY.size)
            file.close()
        return kept * ENTRY.size

    def replace(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Replaces the index durably, because recovery restores no index below the recovery point.
        Raises OSError."""
        data = b"".join(ENTRY.pack(0, *each) for each in transactions)
        if data:
            self.disk.write_atomically(self.path, data)
        else:
            self.disk.unlink(self.path)
