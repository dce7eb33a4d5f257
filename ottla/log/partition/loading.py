"""Loads a valid log from the files of a partition, after a clean stop or a crash.

After a crash the segments from the recovery point on are checked byte for byte, and indexes, leader
epochs and producers are rebuilt from them. `damage` handles damaged bytes, `derived_state` finds
producers and epochs.

Recovery may be interrupted at any point and run again, with the same result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from ottla.log.files.aborted_sizes import Sizes
from ottla.log.files.clock import Clock
from ottla.log.files.disk import Disk, is_passing
from ottla.log.files.epochs import LeaderEpochs
from ottla.log.files.names import (
    COPIED_GAPS,
    CUT,
    EPOCHS,
    UNFINISHED,
    by_suffix,
    file_name,
    offset_in,
)
from ottla.log.files.open_files import OpenFiles
from ottla.log.files.producers import Producers
from ottla.log.files.swaps import SWAP, complete_swaps
from ottla.log.files.transaction_index import ENTRY, AbortedTransaction, TransactionIndex
from ottla.log.partition.config import LogConfig
from ottla.log.partition.damage import (
    Damage,
    cut_off_earlier,
    fault_between,
    handle_fault,
    missing_records,
)
from ottla.log.partition.derived_state import load_epochs, load_producers, state_after_clean_stop
from ottla.log.partition.reread import Reread
from ottla.log.partition.segment import Segment
from ottla.wire.marks import reached


class LogCheckpoint(NamedTuple):
    """One log's entries in the checkpoints of its log directory.

    Batches below `recovery_point` are durable. Below `first_dirty_offset` Apache Kafka's compaction
    may have left gaps in the offsets between segments. Records below `written_upto` were durable
    and committed: if the log ends earlier, a file has been removed or truncated. `aborted_sizes`
    has the sizes of the transaction indexes; a shorter index is rebuilt before it is used.
    """

    recovery_point: int = 0
    log_start_offset: int = 0
    first_dirty_offset: int = 0
    written_upto: int = 0
    aborted_sizes: Sizes | None = None


class Loaded(NamedTuple):
    """The parts of a PartitionLog."""

    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: Producers
    snapshots: list[int]
    damage: Damage | None
    has_epochs_file: bool
    rebuilt: list[Segment]
    copied_gaps: bool


def load(
    disk: Disk,
    clock: Clock,
    directory: str,
    config: LogConfig,
    open_files: OpenFiles,
    checkpoint: LogCheckpoint,
    clean: bool,
    reread: Reread | None = None,
    patient: bool = False,
) -> Loaded:
    """Opens the segments in `directory`, recovering them unless the last stop was `clean`.

    After a clean stop, if an index has to be rebuilt or many batches have to be read, a `patient`
    caller gets RebuildNeeded. Once the exception's `rebuild` is over, the caller calls again; if
    the rebuild is a Reread, the caller passes it as `reread`.
    """
    recovery_point, log_start_offset, first_dirty_offset, written_upto, sizes = checkpoint
    kinds = finished_files(disk, directory, open_files)
    has_epochs = EPOCHS in kinds
    segments = segments_in(disk, clock, directory, config, open_files, kinds.get(".log", ()))
    if not segments:
        damage = missing_records(directory, segments, log_start_offset, written_upto)
        return without_segments(log_start_offset, damage, has_epochs, COPIED_GAPS in kinds)
    note_aborted_sizes(disk, segments, kinds.get(".txnindex", ()), sizes)
    notes = [offset_in(name) for name in kinds.get(".damaged", ())]
    written = sorted(map(offset_in, kinds.get(".snapshot", ())))
    # A snapshot from before the first record is outdated: the records in between are gone.
    snapshots = [at for at in written if at >= segments[0].base_offset]
    damage, rebuilt, closed = None, list[Segment](), None
    if clean and not notes:
        forgotten_ms = clock.now_ms() - config.producer_id_expiration_ms
        closed = state_after_clean_stop(
            disk, directory, snapshots, segments, has_epochs, forgotten_ms, reread,
            patient and open_files.rebuilds is not None)
    if closed is not None:
        producers, epochs = closed
        end = recovery_point = segments[-1].end_offset
    else:
        offset = min([recovery_point, segments[-1].base_offset, *notes])
        first = max([at for at, one in enumerate(segments) if one.base_offset <= offset], default=0)
        epochs = load_epochs(disk, directory, segments[:first], segments[first].base_offset)
        producers, damage = recover(
            disk, directory, segments, epochs, snapshots, first, recovery_point,
            first_dirty_offset, clock.now_ms() - config.producer_id_expiration_ms,
        )
        rebuilt = seal(segments[first:-1])
        end = segments[-1].end_offset
        damage = damage or cut_off_earlier(directory, kinds.get(CUT, ()), end)
    if not (damage and damage.permanent) and end < written_upto:
        damage = missing_records(directory, segments, end, written_upto)
        recovery_point = max(recovery_point, written_upto)
    snapshots = [at for at in snapshots if at <= end]
    for stale in [at for at in written if at not in snapshots]:
        if not (damage and damage.permanent):
            disk.unlink(f"{directory}/{file_name(stale, '.snapshot')}")
    # Retention deletes files without waiting for a checkpoint of the log start. So a first segment
    # that was removed by hand since the last checkpoint looks as if retention had deleted it.
    start = min(max(log_start_offset, segments[0].base_offset), end)
    epochs.truncate_from_start(start)
    # The recovery point of a damaged log is not lowered: otherwise the next start would take the
    # damage for a torn write.
    if not (damage and damage.permanent):
        recovery_point = min(recovery_point, end)
    assert start <= end and all(at <= end for at in snapshots)
    return Loaded(
        segments, start, end, recovery_point, epochs, producers, snapshots, damage,
        has_epochs, rebuilt, COPIED_GAPS in kinds,
    )


def without_segments(
    start: int, damage: Damage | None, has_epochs_file: bool, copied_gaps: bool
) -> Loaded:
    """An empty log, or one that has lost everything."""
    return Loaded(
        [], start, start, start, LeaderEpochs(), Producers(), [], damage, has_epochs_file, [],
        copied_gaps,
    )


def finished_files(disk: Disk, directory: str, open_files: OpenFiles) -> dict[str, list[str]]:
    """Completes or undoes interrupted operations. Returns the names of the partition's files, by
    suffix."""
    try:
        kinds = by_suffix(disk.listdir(directory))
    except FileNotFoundError:
        return {}
    remove_unfinished(disk, directory, kinds, open_files)
    if SWAP in kinds:
        reached("a start completes swaps of compaction")
        complete_swaps(disk, directory, [name for kind in kinds.values() for name in kind])
        kinds = by_suffix(disk.listdir(directory))
    return kinds


def remove_unfinished(
    disk: Disk, directory: str, kinds: dict[str, list[str]], open_files: OpenFiles
) -> None:
    """Removes files of interrupted writes, compactions and deletions, and their names in `kinds`.
    The files of a running rebuild stay."""
    rebuilds = open_files.rebuilds
    for suffix in UNFINISHED:
        for name in kinds.pop(suffix, ()):
            path = f"{directory}/{name}"
            if not (rebuilds and rebuilds.writes(path)):
                disk.unlink(path)


def segments_in(
    disk: Disk,
    clock: Clock,
    directory: str,
    config: LogConfig,
    open_files: OpenFiles,
    names: Iterable[str],
) -> list[Segment]:
    """The segments that these `.log` files form, ascending."""
    bases = sorted(map(offset_in, names))
    now_ms = clock.now_ms()
    return [
        Segment(
            disk,
            open_files,
            directory,
            base,
            disk.size(f"{directory}/{file_name(base, '.log')}"),
            following,
            now_ms,
            config.index_interval_bytes,
        )
        for base, following in zip(bases, [*bases, -1][1:], strict=True)
    ]


def recover(
    disk: Disk,
    directory: str,
    segments: list[Segment],
    epochs: LeaderEpochs,
    snapshots: list[int],
    first: int,
    recovery_point: int,
    gaps_below: int,
    forgotten_ms: int,
) -> tuple[Producers, Damage | None]:
    """Checks the segments from number `first` on; drops the segments after a fault."""
    bases = [segment.base_offset for segment in segments]
    usable = [at for at in snapshots if at <= segments[first].base_offset]
    producers = load_producers(disk, directory, usable, segments[:first], forgotten_ms)
    for number in range(first, len(segments)):
        segment = segments[number]
        size = disk.size(segment.path(".log"))
        aborted: list[tuple[int, int, int, int]] = []
        fault = segment.rebuild(producers, epochs, size, aborted.append)
        if fault is None and number + 1 < len(segments):
            fault = fault_between(segment, bases[number + 1], gaps_below)
        write_transactions(disk, segment, aborted)
        if fault is not None:
            damage = handle_fault(disk, segments, number, *fault, size, recovery_point)
            del segments[number + 1 :]
            return producers, damage
        disk.unlink(segment.path(".damaged"))
    return producers, None


def seal(segments: list[Segment]) -> list[Segment]:
    """Completes the indexes of segments that were recovered and get no more batches.

    Returns the segments that have batches: a flush has to sync their files. If the disk is full,
    that flush completes the indexes.
    """
    filled = [segment for segment in segments if segment.size]
    for segment in filled:
        try:
            segment.seal()
        except OSError as error:
            if not is_passing(error):
                raise
    return filled


def write_transactions(
    disk: Disk, segment: Segment, aborted: list[tuple[int, int, int, int]]
) -> None:
    """Rebuilds a segment's transaction index."""
    disk.unlink(segment.path(".txnindex"))
    for entry in aborted:
        TransactionIndex(disk, segment.path(".txnindex")).append(AbortedTransaction(*entry))
        segment.aborted.appended(ENTRY.size)
    segment.aborted.rebuilt(len(aborted) * ENTRY.size)


def note_aborted_sizes(
    disk: Disk, segments: list[Segment], names: Collection[str], expected: Sizes | None
) -> None:
    """Notes the size of each transaction index, and distrusts an index shorter than expected."""
    if not names and not expected:
        return
    there, expected = set(map(offset_in, names)), expected or {}
    for segment in segments:
        size = disk.size(segment.path(".txnindex")) if segment.base_offset in there else 0
        segment.aborted.note_size(size, expected.get(segment.base_offset, 0))
