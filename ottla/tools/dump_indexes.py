"""The lines of `ottla log dump` for the two indexes of a segment, and their checks.

While Kafka has an index file open, the file has its maximum size, with zeros after its entries. So
after the first entry, an entry with relative offset 0 marks the end. If the first entry is all
zeros, it may be an entry, or the file may have none. Kafka's tool prints and compares it in both
cases. Here it is printed and compared too, but if it does not fit its batch, this is no damage.
"""

from __future__ import annotations

import os
import struct
from argparse import Namespace
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.tools.batch_reader import Batch, read_batches

if TYPE_CHECKING:
    from ottla.tools.findings import DumpFindings

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
NO_TIMESTAMP = -1
ZEROS = (0, 0)


def base_offset_of(path: str) -> int:
    """The offset in a file's name. Raises ValueError."""
    base = os.path.basename(path).split(".")[0]
    if not base.isdecimal():
        raise ValueError(
            f"{path} is not an index: its name must begin with the first offset, in 20 digits"
        )
    return int(base)


def beside(path: str, suffix: str) -> str:
    """The file of the same segment with another suffix."""
    return os.path.join(os.path.dirname(path), os.path.basename(path).split(".")[0] + suffix)


def read_entries(path: str, form: struct.Struct) -> list[tuple[int, int]]:
    """The entries of an index file, without an incomplete last one. Raises OSError."""
    with open(path, "rb") as file:
        data = file.read()
    whole = len(data) // form.size * form.size
    return list(form.iter_unpack(data[:whole]))


def used(entries: list[tuple[int, int]], offset_at: int) -> Iterator[tuple[int, int]]:
    """The entries before the zeros at the end of a file."""
    for number, entry in enumerate(entries):
        if entry[offset_at] == 0 and number > 0:
            return
        yield entry


def check_size(path: str, form: struct.Struct) -> None:
    """Raises ValueError for a file with an incomplete entry."""
    size = os.stat(path).st_size
    if size % form.size:
        raise ValueError(
            f"Index file {path} is corrupt, found {size} bytes which is neither positive nor a "
            f"multiple of {form.size}"
        )


def dump_index(path: str, options: Namespace, findings: DumpFindings) -> Iterator[str]:
    """An offset index's entries, each compared with the batch that it points to."""
    base, log = base_offset_of(path), beside(path, ".log")
    entries = read_entries(path, OFFSET_ENTRY)
    if not entries:
        yield f"{path} is empty."
        return
    if options.index_sanity_check:
        if entries[-1][0] < 0:
            raise ValueError(
                f"Corrupt index found, index file ({path}) has non-zero size but the last offset is"
                f" {base + entries[-1][0]} which is less than the base offset {base}."
            )
        check_size(path, OFFSET_ENTRY)
        yield f"{path} passed sanity check."
        return
    mismatches = {}
    damaged = False
    for relative, position in used(entries, 0):
        zeros = (relative, position) == ZEROS
        batch = batch_at(log, position, options.max_message_size)
        if batch is None and not zeros:
            raise ValueError(
                f"{path} points to byte {position} of {log}, but no batch begins there")
        if batch is not None and batch.last_offset != base + relative:
            mismatches[base + relative] = batch.last_offset
            damaged = damaged or not zeros
        if not options.verify_index_only:
            yield f"offset: {base + relative} position: {position}"
    if mismatches:
        lines = [
            f"  Index offset: {offset}, log offset: {found}"
            for offset, found in sorted(mismatches.items(), reverse=True)
        ]
        findings.tell("\n".join([f"Mismatches in :{os.path.abspath(path)}", *lines]))
    if damaged:
        findings.damage(path)


def batch_at(log: str, position: int, size_max: int) -> Batch | None:
    """The batch of at most `size_max` bytes that begins at a position; None if there is none."""
    if not 0 <= position <= os.stat(log).st_size:
        return None
    return next((batch for _, batch in read_batches(log, None, position, size_max)), None)


def dump_time_index(path: str, options: Namespace, findings: DumpFindings) -> Iterator[str]:
    """A time index's entries, each compared with the batch that contains the entry's offset."""
    base, log = base_offset_of(path), beside(path, ".log")
    entries = read_entries(path, TIME_ENTRY)
    if options.index_sanity_check:
        if entries and (entries[-1][0] < entries[0][0] or entries[-1][1] < 0):
            raise ValueError(
                f"Corrupt time index found, time index file ({path}) has non-zero size but the "
                f"last timestamp is {entries[-1][0]} which is less than the first timestamp "
                f"{entries[0][0]}"
            )
        check_size(path, TIME_ENTRY)
        yield f"{path} passed sanity check."
        return
    try:
        positions = list(used(read_entries(beside(path, ".index"), OFFSET_ENTRY), 0))
    except FileNotFoundError:
        positions = []                  # Ottla's small segments have no index
    faults = TimeIndexFaults(os.path.abspath(path))
    previous, damaged = NO_TIMESTAMP, False
    for timestamp, relative in used(entries, 1):
        at = bisect_right(positions, relative, key=lambda entry: entry[0])
        start = positions[at - 1][1] if at else 0
        batch = next(
            (b for _, b in read_batches(log, None, start) if b.last_offset >= base + relative), None
        )
        fits = faults.compare(timestamp, base + relative, batch, previous)
        damaged = damaged or not (fits or (timestamp, relative) == ZEROS)
        if not options.verify_index_only:
            yield f"timestamp: {timestamp} offset: {base + relative}"
        previous = timestamp
    findings.tell(*faults.texts())
    if damaged:
        findings.damage(path)


class TimeIndexFaults:
    """Finds contradictions between a time index and the log."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.mismatches: list[tuple[int, int]] = []
        self.out_of_order: list[tuple[int, int]] = []
        self.not_found: list[tuple[int, int]] = []

    def compare(self, timestamp: int, offset: int, batch: Batch | None, previous: int) -> bool:
        """Compares an entry with the first batch that ends at the entry's offset or later. Returns
        whether the entry fits."""
        if batch is None or batch.last_offset != offset:
            self.not_found.append((offset, -1 if batch is None else batch.last_offset))
            return False
        newest = batch.max_timestamp
        if batch.timestamp_type != 1:
            newest = max((record.timestamp for record in batch.records()), default=NO_TIMESTAMP)
        if newest != timestamp:
            self.mismatches.append((timestamp, newest))
        if previous >= timestamp:
            self.out_of_order.append((timestamp, previous))
        return newest == timestamp > previous

    def texts(self) -> list[str]:
        """The report, in Kafka's words."""
        lines: list[str] = []
        if self.mismatches:
            lines.append(f"Found timestamp mismatch in :{self.path}")
            lines += [
                f"  Index timestamp: {mine}, log timestamp: {theirs}"
                for mine, theirs in self.mismatches
            ]
        if self.out_of_order:
            lines.append(f"Found out of order timestamp in :{self.path}")
            lines += [
                f"  Index timestamp: {now}, Previously indexed timestamp: {before}"
                for now, before in self.out_of_order
            ]
        if self.not_found:
            lines.append("The following indexed offsets are not found in the log.")
            lines += [
                f"Indexed offset: {offset}, found log offset: {log}"
                for offset, log in self.not_found
            ]
        return lines
