"""Checks one segment, batch by batch: the properties that readers rely on, and its small files.

Memory is bounded: the check holds one batch, the indexes of one segment, and each producer's state.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.log.files.batch_scan import BatchScan, find_valid_batch
from ottla.log.files.disk import File
from ottla.log.files.transaction_index import ENTRY as TRANSACTION
from ottla.log.partition.derived_state import REREAD_MAX
from ottla.tools.dump_indexes import OFFSET_ENTRY, TIME_ENTRY, read_entries, used
from ottla.tools.findings import (
    CREATED_AGAIN,
    REBUILD,
    RESTORE,
    Finding,
    Repeats,
    Report,
)
from ottla.wire.batch import BatchView
from ottla.wire.errors import ProtocolError
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from ottla.log.files.epochs import LeaderEpochs
    from ottla.log.files.producers import Producers

SEQUENCE_MAX = 2**31 - 1
FORGOTTEN_MS = 86_400_000
"""A broker may forget a producer that sends nothing for this long (Kafka's default). The producer's
sequence numbers may then start again."""


def open_to_read(path: str) -> File:
    """Opens a file for reading only. Raises OSError."""
    return File(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)


class SegmentCheck:
    """Checks one segment. After `run`, `end_offset` is the offset after the last sound batch."""

    def __init__(
        self,
        path: str,
        base_offset: int,
        size: int,
        producers: Producers,
        epochs: LeaderEpochs | None,
        cleaned: bool,
        deep: bool,
        reread_from: int | None,
        repeats: Repeats,
        report: Report,
    ) -> None:
        """`reread_from` is the offset from which the next start reads the log again; None if it
        reads nothing again, or if a broker may have the log open."""
        self.path, self.base_offset, self.size = path, base_offset, size
        self.reread_from, self.repeats = reread_from, repeats
        self.producers, self.epochs = producers, epochs
        self.cleaned, self.deep, self.report = cleaned, deep, report
        self.end_offset, self.epoch, self.batches = base_offset, -1, 0
        self.max_timestamp = -1
        self.aborted: list[tuple[int, int, int]] = []
        self.epoch_starts: list[tuple[int, int]] = []
        """The leader epochs of the batches, each with the offset of the epoch's first batch."""
        self.producer_id_max = -1
        self.fault: tuple[int, str] | None = None

    def tell(
        self, what: str, position: int, advice: str = RESTORE, *, note: bool = False, kind: str = ""
    ) -> None:
        """Reports a finding about the batch at `position`. With `kind`, only the partition's first
        finding of this kind is printed; the others are counted."""
        finding = Finding(self.path, what, advice, position, self.end_offset, note)
        if kind:
            self.repeats.add(kind, finding)
        else:
            self.report.add(finding)

    @property
    def is_read_again(self) -> bool:
        """Whether the next start reads the end of this segment again, and rebuilds its indexes."""
        return self.reread_from is not None and self.end_offset > self.reread_from

    def run(self) -> bool:
        """Checks the segment. Returns whether every batch is sound; if not, `fault` describes the
        first unsound batch."""
        file = open_to_read(self.path)
        try:
            scan = BatchScan(file, 0, self.size)
            offsets = IndexWalk(self.path, ".index", self.base_offset)
            times = IndexWalk(self.path, ".timeindex", self.base_offset)
            last_position = 0
            while self.fault is None and (data := scan.batch()) is not None:
                self.check_batch(data, scan.position)
                if self.fault is None:
                    last_position = scan.position
                    offsets.at_batch(scan.position, self.end_offset - 1)
                    times.at_time(self.max_timestamp, self.end_offset - 1)
                self.report.moved(len(data))
            if self.fault is None and scan.problem is not None:
                self.fault = scan.position, scan.problem
            if self.fault is None:
                # A segment needs no index if its last batch begins within the first REREAD_MAX
                # bytes. In this case, both index files may be missing.
                if last_position > REREAD_MAX or not (offsets.missing and times.missing):
                    for index in (offsets, times):
                        self.end_index(index)
                self.check_transactions()
            return self.fault is None
        finally:
            file.close()

    def end_index(self, index: IndexWalk) -> None:
        """Reports what is wrong with an index. A broker may flush a segment before it writes the
        indexes, so they may be missing after an unclean stop."""
        what = index.fault()
        if what is None:
            return
        if self.is_read_again or (index.missing and self.reread_from is not None):
            self.repeats.is_rebuilt(index.path, what)
        else:
            advice = CREATED_AGAIN if index.missing else REBUILD
            self.report.add(Finding(index.path, what, advice))

    def valid_behind(self) -> int | None:
        """The position of the next whole batch after the fault, None if there is none."""
        assert self.fault is not None
        file = open_to_read(self.path)
        try:
            return find_valid_batch(file, self.fault[0] + 1, self.size, self.end_offset)
        finally:
            file.close()

    def check_batch(self, data: bytes, position: int) -> None:
        """Checks one batch. Sets `fault` for an error after which a reader could not continue."""
        batch = BatchView(data)
        if not batch.crc_holds():
            self.fault = position, "the checksum does not match the bytes"
        elif batch.base_offset < self.end_offset:
            self.fault = (
                position,
                f"base offset is {batch.base_offset}, expected {self.end_offset} or more",
            )
        elif batch.last_offset_delta < 0 or not 0 <= batch.record_count <= (
            batch.last_offset_delta + 1
        ):
            self.fault = (
                position,
                f"its header has {counted(batch.record_count, 'record')} and a last offset delta "
                f"of {batch.last_offset_delta}, which is invalid",
            )
        elif batch.leader_epoch < self.epoch:
            self.fault = (
                position,
                f"leader epoch is {batch.leader_epoch}, but an earlier batch has {self.epoch}")
        if self.fault is None:
            self.check_contents(batch, data, position)

    def check_contents(self, batch: BatchView, data: bytes, position: int) -> None:
        """Compares a sound batch with the batches before it; `deep` also checks its records."""
        if batch.base_offset > self.end_offset and not self.cleaned and self.batches:
            self.tell(
                f"offsets {self.end_offset} to {batch.base_offset - 1} are missing before it",
                position, "only compaction leaves gaps, and this log was never compacted",
                kind="gap",
            )  # fmt: skip
        self.batches += 1
        if batch.leader_epoch > self.epoch:
            self.epoch_starts.append((batch.leader_epoch, batch.base_offset))
        self.producer_id_max = max(self.producer_id_max, batch.producer_id)
        if self.epochs is not None and self.epochs.entries:
            self.check_epoch(batch, position, self.epochs)
        if batch.producer_id >= 0:
            if not self.cleaned:
                self.check_sequence(batch, position)
            ended = self.producers.replay(data)
            if ended is not None:
                self.aborted.append(ended[:3])
        if self.deep:
            self.check_records(batch, position)
        self.epoch, self.end_offset = batch.leader_epoch, batch.last_offset + 1
        self.max_timestamp = batch.max_timestamp

    def check_epoch(self, batch: BatchView, position: int, epochs: LeaderEpochs) -> None:
        """Compares a batch's leader epoch with the checkpoint's."""
        known = epochs.of_offset(batch.base_offset)
        if known in (batch.leader_epoch, -1):
            return
        read_again = self.reread_from is not None and batch.base_offset >= self.reread_from
        if read_again and batch.leader_epoch > epochs.latest:
            self.repeats.is_rebuilt(
                f"{os.path.dirname(self.path)}/leader-epoch-checkpoint",
                f"it lacks leader epoch {batch.leader_epoch}, which begins at offset"
                f" {batch.base_offset}")
            return
        self.tell(
            f"its leader epoch is {batch.leader_epoch}, but leader-epoch-checkpoint says {known}",
            position,
            "stop the broker and delete leader-epoch-checkpoint: the next start makes it anew",
            kind="epoch",
        )  # fmt: skip

    def check_sequence(self, batch: BatchView, position: int) -> None:
        """Checks that an idempotent producer's sequence numbers are consecutive."""
        state = self.producers.get(batch.producer_id)
        if state is None or batch.control or batch.base_sequence < 0:
            return
        if batch.max_timestamp - state.last_timestamp >= FORGOTTEN_MS or state.epoch < 0:
            return
        due = 0
        if state.epoch == batch.producer_epoch and state.kept:
            due = 0 if state.last_sequence == SEQUENCE_MAX else state.last_sequence + 1
        if batch.producer_epoch < state.epoch or batch.base_sequence != due:
            self.tell(
                f"producer {batch.producer_id} continues with epoch {batch.producer_epoch}, "
                f"sequence {batch.base_sequence}; expected epoch {state.epoch}, sequence {due}",
                position, "records may be missing or duplicated; compare with what was sent",
                kind="sequence",
            )  # fmt: skip

    def check_records(self, batch: BatchView, position: int) -> None:
        """Decompresses a batch and checks its records."""
        try:
            records = batch.records()
        except ProtocolError as error:
            self.tell(f"its records cannot be read: {error}", position, kind="records")
            return
        newest = max((record.timestamp for record in records), default=-1)
        if records and batch.timestamp_type == 0 and newest != batch.max_timestamp:
            self.tell(
                f"its newest timestamp is {newest}, but its header says {batch.max_timestamp}",
                position, "searches by time may miss the record; nothing else is affected",
                note=True, kind="timestamp",
            )  # fmt: skip

    def check_transactions(self) -> None:
        """Checks that the transaction index lists all aborted transactions. The records of an
        unlisted transaction would look committed."""
        path = self.path.removesuffix(".log") + ".txnindex"
        try:
            with open(path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            data = b""
        whole = len(data) // TRANSACTION.size * TRANSACTION.size
        listed = {entry[1:4] for entry in TRANSACTION.iter_unpack(data[:whole])}
        if whole < len(data):
            self.report.add(Finding(path, "it ends with an incomplete entry", REBUILD))
        for producer_id, first, last in self.aborted:
            if (producer_id, first, last) not in listed:
                self.repeats.add(
                    "aborted transaction",
                    Finding(
                        path,
                        f"the transaction of producer {producer_id}, offsets {first} to {last}, was"
                        " aborted, but is not listed: its records look committed",
                        "stop the broker; in the log directory, delete .kafka_cleanshutdown and set"
                        " the partition's offset in recovery-point-offset-checkpoint to 0: the next"
                        " start reads the partition again and rebuilds the index",
                        offset=first,
                    ),
                )


class IndexWalk:
    """The entries of one index, compared with the batches as they are read."""

    def __init__(self, segment: str, suffix: str, base_offset: int) -> None:
        self.path = segment.removesuffix(".log") + suffix
        self.base_offset = base_offset
        form = OFFSET_ENTRY if suffix == ".index" else TIME_ENTRY
        self.offset_at = 0 if suffix == ".index" else 1
        self.wrong: str | None = None
        self.number, self.missing = 0, False
        try:
            entries = read_entries(self.path, form)
            size = os.stat(self.path).st_size
        except FileNotFoundError:
            entries, size = [], 0
            self.wrong, self.missing = "it is missing", True
        if size % form.size:
            self.wrong = f"it has {size} bytes, not a multiple of {form.size}"
        self.entries = self.ascending(entries)
        self.next = next(self.entries, None)

    def ascending(self, entries: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Yields the entries in use. At an entry that does not ascend, sets `wrong` and stops."""
        before = (-1, -1)
        for number, entry in enumerate(used(entries, self.offset_at)):
            if number == 0 and entry == (0, 0):
                return                          # space that Kafka allocated in advance
            if entry[0] < before[0] or entry[1] < before[1]:
                self.wrong = self.wrong or (
                    f"its entry {number}, {entry}, is lower than the entry before it, {before}")
                return
            before = entry
            yield entry

    def at_batch(self, position: int, last_offset: int) -> None:
        """Compares an offset index with the next batch: an entry for the batch's position must have
        the batch's last offset."""
        while self.next is not None and self.next[1] <= position:
            if self.next != (last_offset - self.base_offset, position):
                offset = self.base_offset + self.next[0]
                self.wrong = self.wrong or (
                    f"it says that a batch at byte {self.next[1]} ends with offset {offset}, but"
                    f" the batch at byte {position} ends with offset {last_offset}"
                )
            self.next = next(self.entries, None)

    def at_time(self, timestamp: int, last_offset: int) -> None:
        """Compares a time index with the next batch: an entry for the batch's last offset must have
        the batch's newest timestamp."""
        while self.next is not None and self.base_offset + self.next[1] <= last_offset:
            if self.base_offset + self.next[1] == last_offset and self.next[0] != timestamp:
                self.wrong = self.wrong or (
                    f"it has timestamp {self.next[0]} for the batch that ends with offset "
                    f"{last_offset}, whose newest timestamp is {timestamp}"
                )
            self.next = next(self.entries, None)

    def fault(self) -> str | None:
        """What is wrong with the index. Called after the last batch of the segment."""
        if self.next is not None:
            self.wrong = self.wrong or f"its entry {self.next} is after the end of the segment"
        return self.wrong
