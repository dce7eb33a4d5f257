"""A log's producers and leader epochs, from their files and from later batches.

The batches have the same information as these files. If a file is missing, damaged or from another
log (`trust`), the batches are read again instead.
"""

from __future__ import annotations

from ottla.log.files.batch_scan import BatchScan, SegmentDamaged, note_epochs, replay
from ottla.log.files.disk import Disk
from ottla.log.files.epochs import LeaderEpochs
from ottla.log.files.index_file import RebuildNeeded
from ottla.log.files.names import EPOCHS, file_name
from ottla.log.files.producers import Producers
from ottla.log.files.snapshots import decode
from ottla.log.partition.reread import Reread
from ottla.log.partition.segment import Segment
from ottla.log.partition.trust import epochs_fit, snapshot_fits
from ottla.wire.marks import reached

REREAD_MAX = 4096
"""A log of at most this many bytes gets no file for its leader epochs. If it has no producers, it
gets no snapshot either. Reading its batches is quick enough. With 100,000 small partitions, most
files on the disk would be of these two kinds."""
OFFSET_MAX = (1 << 63) - 1


def state_after_clean_stop(
    disk: Disk, directory: str, snapshots: list[int], segments: list[Segment], has_epochs: bool,
    forgotten_ms: int, reread: Reread | None, patient: bool,
) -> tuple[Producers, LeaderEpochs] | None:
    """The producers and epochs of a log that a clean stop has closed; also finds the log's end.
    None if the last segment is damaged. With `patient`, raises RebuildNeeded if a rebuild or a long
    read is needed. If the error's `rebuild` is a Reread, the caller passes that Reread in its
    next call."""
    last = segments[-1]
    if (len(segments) == 1 and not snapshots and not has_epochs
            and last.size <= min(REREAD_MAX, last.index_interval)):
        # Most logs are like this one: one read of its batches shows end, producers and epochs.
        producers, epochs = Producers(), LeaderEpochs()
        return (producers, epochs) if end_is_known(last, producers, epochs, patient) else None
    if not end_is_known(last, None, None, patient):
        return None
    if reread is None:
        reread = planned_reread(
            disk, directory, snapshots, segments, has_epochs, forgotten_ms, patient)
    reread.finish()
    return reread.producers, reread.epochs


def end_is_known(
    segment: Segment, producers: Producers | None, epochs: LeaderEpochs | None, patient: bool
) -> bool:
    """Reads the end offset of the last segment from its batches; False if they are damaged."""
    try:
        segment.learn_end(producers, epochs, patient)
    except SegmentDamaged:
        return False
    return True


def planned_reread(
    disk: Disk, directory: str, snapshots: list[int], segments: list[Segment], has_epochs: bool,
    forgotten_ms: int, patient: bool,
) -> Reread:
    """Reads the producers and epochs from their files, and plans to read the batches that are newer
    than these files. If there are many such batches and `patient` is true, raises RebuildNeeded, so
    that a thread can read the batches."""
    producers, known = newest_snapshot(disk, directory, snapshots, segments, forgotten_ms, patient)
    reread = Reread(disk, directory, producers, known, scans_from(known, segments, patient))
    epochs = known_epochs(disk, directory, segments, patient=patient) if has_epochs else None
    if epochs is None:
        reread.add_epochs(segments)
    else:
        reread.epochs = epochs
    # A small log has no snapshot and no epoch file. So each of its bytes counts twice, once for the
    # producers and once for the epochs. That is why the factor is 2.
    if patient and reread.size > 2 * REREAD_MAX:
        raise RebuildNeeded(reread)
    return reread


def load_epochs(
    disk: Disk, directory: str, segments: list[Segment], upto: int = OFFSET_MAX
) -> LeaderEpochs:
    """The leader epochs that begin before `upto`, from their file.

    If the file is missing, damaged or from another log, they are read from these segments.
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
    """The leader epochs in their file; None if it is missing, damaged or from another log."""
    try:
        known = LeaderEpochs.decode(disk.read_bytes(f"{directory}/{EPOCHS}"))
        known.truncate_from_end(upto)
        return known if segments and epochs_fit(known, segments, patient) else None
    except (FileNotFoundError, ValueError, IndexError, SegmentDamaged):
        return None


def load_producers(
    disk: Disk,
    directory: str,
    snapshots: list[int],
    segments: list[Segment],
    forgotten_ms: int,
) -> Producers:
    """The producers at the end of `segments`: the newest valid snapshot, and the batches after it.

    Producers that have written nothing since `forgotten_ms` may be missing.
    """
    producers, known = newest_snapshot(disk, directory, snapshots, segments, forgotten_ms)
    for scan in scans_from(known, segments):
        replay(scan, producers, known)
    return producers


def scans_from(
    offset: int, segments: list[Segment], patient: bool = False
) -> list[BatchScan]:
    """Scans of all batches from an offset on; a damaged segment is scanned from its beginning."""
    scans = []
    for segment in segments:
        if segment.end_offset > offset:
            try:
                position = segment.position_of(offset, patient)
            except SegmentDamaged:
                position = 0
            scans.append(BatchScan(segment.data_file(), position, segment.size))
    return scans


def newest_snapshot(
    disk: Disk,
    directory: str,
    snapshots: list[int],
    segments: list[Segment],
    forgotten_ms: int,
    patient: bool = False,
) -> tuple[Producers, int]:
    """The producers of the newest valid snapshot, and the offset of the snapshot. If there is none,
    returns no producers and the offset 0."""
    end = segments[-1].end_offset if segments else 0
    for offset in sorted((at for at in snapshots if at <= end or not segments), reverse=True):
        try:
            producers = decode(disk.read_bytes(f"{directory}/{file_name(offset, '.snapshot')}"))
            if segments and not snapshot_fits(
                producers, offset, segments, forgotten_ms, patient
            ):
                reached("a producer snapshot is of another log")
                continue
        except (ValueError, FileNotFoundError, SegmentDamaged):
            continue
        return producers, offset
    return Producers(), 0
