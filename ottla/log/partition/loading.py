"""Loads a valid log from the files of a partition, after a clean stop or a crash.

After a crash the segments from the recovery point on are checked byte for byte, and indexes, leader
epochs and producers are rebuilt from them. A log whose bytes are not what was written ends before
the fault, in one of three ways:

- a torn write: above the recovery point, at the end of the last segment, with nothing valid after
  it. It was never complete, so it is cut off.
- a hole: above the recovery point, with valid batches after it, as left by a power cut that wrote
  later pages first. The bytes from the fault on are copied to a `.quarantine` file, then cut off.
  A `.cut` file keeps the fact until the broker has reported it to the cluster.
- damage: below the recovery point, where the bytes were durable once. Nothing is changed except for
  a `.damaged` file with a note; the log is read up to the fault and accepts no writes until
  repaired.

Recovery may be interrupted at any point and run again, with the same result.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.files.aborted_sizes import Sizes
from ottla.log.files.batch_scan import (
    BatchScan,
    SegmentDamaged,
    find_valid_batch,
    note_epochs,
    replay,
)
from ottla.log.files.clock import Clock
from ottla.log.files.disk import Disk, File, is_passing
from ottla.log.files.epochs import LeaderEpochs
from ottla.log.files.index_file import RebuildNeeded
from ottla.log.files.open_files import OpenFiles
from ottla.log.files.producers import Producers
from ottla.log.files.snapshots import decode, file_name
from ottla.log.files.swaps import SWAP, complete_swaps
from ottla.log.files.transaction_index import ENTRY, AbortedTransaction, TransactionIndex
from ottla.log.partition.config import LogConfig
from ottla.log.partition.reread import Reread
from ottla.log.partition.segment import Segment
from ottla.log.partition.trust import epochs_fit, snapshot_fits
from ottla.wire.errors import CorruptMessage
from ottla.wire.marks import reached

if TYPE_CHECKING:
    from ottla.log.partition.readable_log import ReadableLog

UNFINISHED = (".tmp", ".cleaned", ".deleted")
COPY_BYTES = 1 << 20
REREAD_MAX = 4096
"""A log smaller than this has no files for what its batches show quickly: the leader epochs, and
that there are no producers. With 100,000 small partitions most files would be of this kind."""
OFFSET_MAX = (1 << 63) - 1
EPOCHS = "leader-epoch-checkpoint"
COPIED_GAPS = "copied-gaps"
"""This file says that a leader's compaction has left gaps in a copy, whatever its settings."""
CUT = ".cut"
"""A file beside a segment whose damaged end was cut off, until the broker has reported it."""

Names = dict[str, list[str]]


class Damage(NamedTuple):
    """Bytes that differ from what was written: where they are, and what was done with the log."""

    path: str
    position: int
    reason: str
    end_offset: int
    aside: str | None = None

    @property
    def permanent(self) -> bool:
        """Whether the log accepts no writes until it is repaired."""
        return self.aside is None

    def __str__(self) -> str:
        what = (
            "it accepts no writes until the file is repaired or restored"
            if self.permanent
            else f"the bytes after it were moved to {self.aside}"
        )
        return (
            f"{self.path} is damaged at byte {self.position}: {self.reason}. "
            f"The log can be read up to offset {self.end_offset}; {what}"
        )


class LogCheckpoint(NamedTuple):
    """What the checkpoints of a log directory say of one log.

    Batches below `recovery_point` are durable. Below `first_dirty_offset` Apache Kafka's compaction
    may have left gaps between segments. Records below `written_upto` were durable and committed: if
    the log ends before it, a file has been removed or cut. A transaction index that is shorter than
    `aborted_sizes` says is rebuilt before it is used.
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

    `reread` has what an earlier attempt has had read. Raises RebuildNeeded if the caller is
    `patient` and the stop was clean.
    """
    recovery_point, log_start_offset, first_dirty_offset, written_upto, sizes = checkpoint
    kinds = finished_files(disk, directory, open_files)
    has_epochs = EPOCHS in kinds
    segments = segments_in(disk, clock, directory, config, open_files, kinds.get(".log", ()))
    if not segments:
        damage = missing(directory, segments, log_start_offset, written_upto)
        return without_segments(log_start_offset, damage, has_epochs, COPIED_GAPS in kinds)
    note_aborted_sizes(disk, segments, kinds.get(".txnindex", ()), sizes)
    notes = [offset_in(name) for name in kinds.get(".damaged", ())]
    written = sorted(map(offset_in, kinds.get(".snapshot", ())))
    # A snapshot from before the first record is outdated: the records in between are gone.
    snapshots = [at for at in written if at >= segments[0].base_offset]
    damage, rebuilt, closed = None, list[Segment](), None
    if clean and not notes:
        forgotten_ms = clock.now_ms() - config.producer_id_expiration_ms
        closed = as_closed(
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
        damage = damage or cut_before(directory, kinds.get(CUT, ()), end)
    if not (damage and damage.permanent) and end < written_upto:
        damage = missing(directory, segments, end, written_upto)
        recovery_point = max(recovery_point, written_upto)
    snapshots = [at for at in snapshots if at <= end]
    for stale in [at for at in written if at not in snapshots]:
        if not (damage and damage.permanent):
            disk.unlink(f"{directory}/{file_name(stale, '.snapshot')}")
    # A first segment that was removed by hand since the last checkpoint looks like one that
    # retention has deleted since: files go without waiting for the checkpoint of the log start.
    start = min(max(log_start_offset, segments[0].base_offset), end)
    epochs.truncate_from_start(start)
    # The recovery point of a damaged log stays, or the next start would take damage for a torn
    # write.
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


def offset_in(name: str) -> int:
    """The offset that a file's name begins with."""
    return int(name.partition(".")[0])


def finished_files(disk: Disk, directory: str, open_files: OpenFiles) -> Names:
    """The names of a partition's files, once what was interrupted is removed or completed."""
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


def by_suffix(names: list[str]) -> Names:
    """The names of files, grouped by their suffix with its dot; the whole name without one."""
    found: Names = {}
    for name in names:
        found.setdefault(name[max(name.rfind("."), 0):], []).append(name)
    return found


def remove_unfinished(disk: Disk, directory: str, kinds: Names, open_files: OpenFiles) -> None:
    """Removes what an interrupted write or deletion left, from `kinds` as well."""
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


def end_is_known(
    segment: Segment, producers: Producers | None, epochs: LeaderEpochs | None, patient: bool
) -> bool:
    """Reads the end offset of the last segment from its headers; False if they contradict it."""
    try:
        segment.learn_end(producers, epochs, patient)
    except SegmentDamaged:
        return False
    return True


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
    """Checks the segments from number `first` on; drops those after a fault."""
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
            damage = judge(disk, segments, number, *fault, size, recovery_point)
            del segments[number + 1 :]
            return producers, damage
        disk.unlink(segment.path(".damaged"))
    return producers, None


def seal(segments: list[Segment]) -> list[Segment]:
    """Completes the indexes of segments that were recovered and get no more batches.

    Returns those that have batches, whose files a flush has to sync. If the disk is full, that
    flush completes them.
    """
    filled = [segment for segment in segments if segment.size]
    for segment in filled:
        try:
            segment.seal()
        except OSError as error:
            if not is_passing(error):
                raise
    return filled


def fault_between(
    segment: Segment, next_base: int, gaps_below: int
) -> tuple[int, str] | None:
    """What is wrong with a segment's end, given where the next one begins.

    A power cut may keep a new segment and lose the end of the previous one. Compaction keeps the
    last batch of what it rewrites, here; Apache Kafka's, in a log that was imported, leaves gaps
    below `gaps_below`.
    """
    if segment.end_offset == next_base or segment.end_offset < next_base <= gaps_below:
        return None
    return segment.size, f"it ends at offset {segment.end_offset}, the next begins at {next_base}"


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
    """Notes how long the transaction indexes are, and which of them are shorter than they were."""
    if not names and not expected:
        return
    there, expected = set(map(offset_in, names)), expected or {}
    for segment in segments:
        size = disk.size(segment.path(".txnindex")) if segment.base_offset in there else 0
        segment.aborted.found(size, expected.get(segment.base_offset, 0))


def judge(
    disk: Disk,
    segments: list[Segment],
    number: int,
    position: int,
    reason: str,
    size: int,
    recovery_point: int,
) -> Damage | None:
    """Decides what kind of fault it is and handles it. None for a torn write, which is cut off."""
    segment = segments[number]
    end_offset = segment.end_offset
    path = segment.path(".log")
    if end_offset < recovery_point:
        disk.write_atomically(segment.path(".damaged"), f"{position} {reason}\n".encode())
        reached("a log is damaged below its recovery point")
        return Damage(path, position, reason, end_offset)
    file = segment.data_file()
    if number + 1 == len(segments) and find_valid_batch(file, position, size, end_offset) is None:
        reached("a torn write was cut off")
        cut(file, position)
        return None
    reached("a hole was cut off")
    aside = segment.path(f".{position}.quarantine")
    # A start that ends before others know of it leaves a log that is sound, and too short.
    disk.write_atomically(segment.path(CUT), f"{position} {reason}\n".encode())
    copy_tail(disk, path, aside, position, size)
    # Later segments are removed first, from the last on: until the cut, a second recovery finds the
    # fault.
    for later in reversed(segments[number + 1 :]):
        later.close()
        disk.rename(later.path(".log"), later.path(".0.quarantine"))
        for suffix in (".index", ".timeindex", ".txnindex"):
            disk.unlink(later.path(suffix))
    disk.sync_directory(segment.directory)
    cut(file, position)
    return Damage(path, position, reason, end_offset, aside)


def cut_before(directory: str, names: Collection[str], end_offset: int) -> Damage | None:
    """The fault that an earlier start has cut off and not reported yet, or None."""
    if not names:
        return None
    path = f"{directory}/{min(names).removesuffix(CUT)}.log"
    reached("a start that was not finished had cut off a hole")
    reason = "a start that was not finished has cut off what follows"
    return Damage(path, 0, reason, end_offset, f"{directory}/*.quarantine")


def cuts(log: ReadableLog) -> list[str]:
    """The notes of what was cut off of a log. Raises OSError."""
    names = log.disk.listdir(log.directory) if log.put_aside is not None else []
    return [f"{log.directory}/{name}" for name in names if name.endswith(CUT)]


def forget_cuts(log: ReadableLog) -> None:
    """Removes the notes: the broker has reported the cuts. Raises OSError."""
    for path in cuts(log):
        log.disk.unlink(path)


def cut(file: File, position: int) -> None:
    """Cuts a file at `position`, durably: the recovery point may be exactly there, so no later
    recovery reads this file, and no flush syncs it."""
    file.truncate(position)
    file.sync()


def before_a_cut(segment: Segment, error: CorruptMessage) -> Damage:
    """The fault of a segment that a cut ended in, before that: its end is not known any more, and
    nothing of it is to be served."""
    position = error.position if isinstance(error, SegmentDamaged) else 0
    return Damage(segment.path(".log"), position, str(error), segment.base_offset)


def missing(
    directory: str, segments: list[Segment], end_offset: int, written_upto: int
) -> Damage | None:
    """The fault of a log that ends before records that were durable and committed."""
    if end_offset >= written_upto:
        return None
    reason = (
        f"the records from offset {end_offset} to {written_upto - 1} are gone"
        f" ({written_upto - end_offset} offsets): files were removed or cut"
    )
    if not segments:
        return Damage(directory, 0, reason, end_offset)
    return Damage(segments[-1].path(".log"), segments[-1].size, reason, end_offset)


def changed_at_rest(
    directory: str, segments: list[Segment], start_offset: int, end_offset: int
) -> Damage | None:
    """The fault of a log whose files differ from those that were closed with these offsets. Where
    it ends too early, `missing` has found that."""
    if not segments:
        return None
    first, last = segments[0], segments[-1]
    accepted = "files were changed while the broker was down. A restart accepts them as they are"
    if first.base_offset > start_offset:
        reason = f"it begins at offset {first.base_offset}, but was closed with {start_offset}"
        return Damage(directory, 0, f"{reason}: {accepted}", start_offset)
    if last.end_offset == end_offset:
        return None
    reason = f"it ends at offset {last.end_offset}, but was closed at {end_offset}: {accepted}"
    return Damage(last.path(".log"), last.size, reason, last.end_offset)


def unreadable(directory: str, error: OSError, start_offset: int) -> Damage:
    """The fault of a log whose files the disk refuses to read."""
    return Damage(directory, 0, f"it cannot be read: {error}", start_offset)


def copy_tail(disk: Disk, source: str, target: str, position: int, end: int) -> None:
    """Copies bytes of a file; the target appears only once it is complete and durable."""
    read, write = disk.open(source), disk.open(target + ".tmp", create=True)
    write.truncate(0)
    for at in range(position, end, COPY_BYTES):
        write.pwrite(read.pread(min(COPY_BYTES, end - at), at), at - position)
    write.sync()
    write.close()
    disk.rename(target + ".tmp", target)


def load_epochs(
    disk: Disk, directory: str, segments: list[Segment], upto: int = OFFSET_MAX
) -> LeaderEpochs:
    """The leader epochs that begin before `upto`, from their file.

    From these segments if the file is missing, damaged or from another log.
    """
    known = known_epochs(disk, directory, segments, upto)
    if known is not None:
        return known
    epochs = LeaderEpochs()
    reached("leader epochs were read from the batches")
    for segment in segments:
        note_epochs(segment.data_file(), segment.size, epochs)
    return epochs


def known_epochs(
    disk: Disk, directory: str, segments: list[Segment], upto: int = OFFSET_MAX,
    patient: bool = False,
) -> LeaderEpochs | None:
    """The leader epochs of their file; None if it is missing, damaged or from another log."""
    try:
        known = LeaderEpochs.decode(disk.read_bytes(f"{directory}/{EPOCHS}"))
        known.truncate_from_end(upto)
        return known if segments and epochs_fit(known, segments, patient) else None
    except (FileNotFoundError, ValueError, IndexError, SegmentDamaged):
        return None


def as_closed(
    disk: Disk, directory: str, snapshots: list[int], segments: list[Segment], has_epochs: bool,
    forgotten_ms: int, reread: Reread | None, patient: bool,
) -> tuple[Producers, LeaderEpochs] | None:
    """The producers and epochs of a log that was closed, and its end is known then; None if its
    headers contradict its end. Raises RebuildNeeded if the caller is `patient`."""
    last = segments[-1]
    if (len(segments) == 1 and not snapshots and not has_epochs
            and last.size <= min(REREAD_MAX, last.index_interval)):
        # Most logs are like this one: a single read of its batches shows all of it.
        producers, epochs = Producers(), LeaderEpochs()
        return (producers, epochs) if end_is_known(last, producers, epochs, patient) else None
    if not end_is_known(last, None, None, patient):
        return None
    if reread is None:
        reread = what_follows(
            disk, directory, snapshots, segments, has_epochs, forgotten_ms, patient)
    reread.finish()
    return reread.producers, reread.epochs


def what_follows(
    disk: Disk, directory: str, snapshots: list[int], segments: list[Segment], has_epochs: bool,
    forgotten_ms: int, patient: bool,
) -> Reread:
    """The producers and epochs that the files show, and what is to be read for the rest. Raises
    RebuildNeeded if that is much and the caller is `patient`."""
    producers, known = newest_snapshot(disk, directory, snapshots, segments, forgotten_ms, patient)
    reread = Reread(disk, directory, producers, known, scans_from(known, segments, patient))
    epochs = known_epochs(disk, directory, segments, patient=patient) if has_epochs else None
    if epochs is None:
        reread.add_epochs(segments)
    else:
        reread.epochs = epochs
    # Twice, as a small log has a file for neither.
    if patient and reread.size > 2 * REREAD_MAX:
        raise RebuildNeeded(reread)
    return reread


def load_producers(
    disk: Disk,
    directory: str,
    snapshots: list[int],
    segments: list[Segment],
    forgotten_ms: int,
) -> Producers:
    """The producers at the end of `segments`: the newest valid snapshot, and what followed it.

    Producers that have written nothing since `forgotten_ms` may be missing.
    """
    producers, known = newest_snapshot(disk, directory, snapshots, segments, forgotten_ms)
    for scan in scans_from(known, segments):
        replay(scan, producers, known)
    return producers


def scans_from(
    offset: int, segments: list[Segment], patient: bool = False
) -> list[BatchScan]:
    """What follows an offset; of a damaged segment as much as can be read."""
    found = []
    for segment in segments:
        if segment.end_offset > offset:
            try:
                position = segment.position_of(offset, patient)
            except SegmentDamaged:
                position = 0
            found.append(BatchScan(segment.data_file(), position, segment.size))
    return found


def newest_snapshot(
    disk: Disk,
    directory: str,
    snapshots: list[int],
    segments: list[Segment],
    forgotten_ms: int,
    patient: bool = False,
) -> tuple[Producers, int]:
    """The producers of the newest valid snapshot, and its offset."""
    end = segments[-1].end_offset if segments else 0
    for offset in sorted((at for at in snapshots if at <= end or not segments), reverse=True):
        try:
            found = decode(disk.read_bytes(f"{directory}/{file_name(offset, '.snapshot')}"))
            if segments and not snapshot_fits(
                found, offset, segments, forgotten_ms, patient
            ):
                reached("a producer snapshot is of another log")
                continue
        except (ValueError, FileNotFoundError, SegmentDamaged):
            continue
        return found, offset
    return Producers(), 0


def partition_metadata(topic_id: bytes) -> bytes:
    """The content of the file with the topic id of a directory."""
    encoded = urlsafe_b64encode(topic_id).rstrip(b"=")
    return b"version: 0\ntopic_id: " + encoded + b"\n"
