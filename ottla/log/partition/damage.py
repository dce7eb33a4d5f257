"""Damaged logs: the kinds of faults in their bytes, and how each is handled.

A damaged log can be read up to the fault. There are three kinds of faults:

- a torn write: above the recovery point, at the end of the last segment, with nothing valid after
  it. The write was never complete, so its bytes are cut off.
- a hole: above the recovery point, with valid batches after it. A power cut leaves a hole if the
  system had written later pages first. The bytes from the fault on are copied to a `.quarantine`
  file, then cut off. A `.cut` file records the truncation until the broker has reported it to the
  cluster.
- damage: below the recovery point, where the bytes were durable once. The log's files stay as they
  are, and a `.damaged` file with a note is added. The log is read up to the fault and accepts no
  writes until repaired.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.files.batch_scan import SegmentDamaged, find_valid_batch
from ottla.log.files.disk import Disk, File
from ottla.log.files.names import CUT
from ottla.log.partition.segment import Segment
from ottla.wire.errors import CorruptMessage
from ottla.wire.marks import reached
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from ottla.log.partition.readable_log import ReadableLog

COPY_BYTES = 1 << 20


class Damage(NamedTuple):
    """A fault in a log's bytes: its place and reason, and where the log ends because of it.

    `aside` is the file to which the bytes from the fault on were moved, None if they stayed.
    """

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
            else f"the damaged bytes and all bytes after them were moved to {self.aside}"
        )
        return (
            f"{self.path} is damaged at byte {self.position}: {self.reason}. "
            f"The log can be read up to offset {self.end_offset}; {what}"
        )


def fault_between(
    segment: Segment, next_base: int, gaps_below: int
) -> tuple[int, str] | None:
    """What is wrong with a segment's end if the next one begins at `next_base`, or None.

    A power cut may keep a new segment and lose the end of the previous one. Ottla's compaction
    leaves no gap between segments: a rewritten segment ends at the same offset as before. Apache
    Kafka's compaction leaves such gaps: an imported log may have them below `gaps_below`.
    """
    if segment.end_offset == next_base or segment.end_offset < next_base <= gaps_below:
        return None
    return segment.size, (
        f"it ends at offset {segment.end_offset}, but the next segment begins at {next_base}")


def missing_records(
    directory: str, segments: list[Segment], end_offset: int, written_upto: int
) -> Damage | None:
    """The fault of a log that ends before records that were durable and committed."""
    if end_offset >= written_upto:
        return None
    reason = (
        f"the records from offset {end_offset} to {written_upto - 1} are gone"
        f" ({counted(written_upto - end_offset, 'offset')}): files were removed or truncated"
    )
    if not segments:
        return Damage(directory, 0, reason, end_offset)
    return Damage(segments[-1].path(".log"), segments[-1].size, reason, end_offset)


def changed_at_rest(
    directory: str, segments: list[Segment], start_offset: int, end_offset: int
) -> Damage | None:
    """The fault of a log whose files have changed since a clean stop closed it with these offsets.
    A log that ends too early is reported by `missing_records`, which is called first."""
    if not segments:
        return None
    first, last = segments[0], segments[-1]
    accepted = "files were changed while the broker was down. A restart accepts them as they are"
    if first.base_offset > start_offset:
        reason = f"it begins at offset {first.base_offset}, but began at {start_offset} when closed"
        return Damage(directory, 0, f"{reason}: {accepted}", start_offset)
    if last.end_offset == end_offset:
        return None
    reason = f"it ends at offset {last.end_offset}, but ended at {end_offset} when closed"
    return Damage(last.path(".log"), last.size, f"{reason}: {accepted}", last.end_offset)


def unreadable_files(directory: str, error: OSError, start_offset: int) -> Damage:
    """The fault of a log whose files the disk refuses to read."""
    return Damage(directory, 0, f"it cannot be read: {error}", start_offset)


def damage_at_cut(segment: Segment, error: CorruptMessage) -> Damage:
    """The fault of a segment whose damage was found when the log was truncated within it. The end
    of the segment's valid part is not known, so none of the segment is served."""
    position = error.position if isinstance(error, SegmentDamaged) else 0
    return Damage(segment.path(".log"), position, str(error), segment.base_offset)


def handle_fault(
    disk: Disk,
    segments: list[Segment],
    number: int,
    position: int,
    reason: str,
    size: int,
    recovery_point: int,
) -> Damage | None:
    """Handles a fault according to its kind. Returns None after cutting off a torn write."""
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
        cut_off(file, position)
        return None
    reached("a hole was cut off")
    aside = segment.path(f".{position}.quarantine")
    # The next start needs this note if this start ends before it has reported the truncation: the
    # log then looks sound, but is too short.
    disk.write_atomically(segment.path(CUT), f"{position} {reason}\n".encode())
    copy_tail(disk, path, aside, position, size)
    # Later segments are renamed first, beginning with the last. Only then is the fault cut off. So
    # if a crash interrupts this, the next recovery still finds the fault.
    for later in reversed(segments[number + 1 :]):
        later.close()
        disk.rename(later.path(".log"), later.path(".0.quarantine"))
        for suffix in (".index", ".timeindex", ".txnindex"):
            disk.unlink(later.path(suffix))
    disk.sync_directory(segment.directory)
    cut_off(file, position)
    return Damage(path, position, reason, end_offset, aside)


def cut_off(file: File, position: int) -> None:
    """Cuts a file at `position` and syncs it. Without the sync, a crash could bring the bytes back:
    if the recovery point is exactly at the cut, no later recovery reads the file, and no flush
    syncs it."""
    file.truncate(position)
    file.sync()


def copy_tail(disk: Disk, source: str, target: str, position: int, end: int) -> None:
    """Copies bytes of a file; the target appears only once it is complete and durable."""
    read, write = disk.open(source), disk.open(target + ".tmp", create=True)
    write.truncate(0)
    for at in range(position, end, COPY_BYTES):
        write.pwrite(read.pread(min(COPY_BYTES, end - at), at), at - position)
    write.sync()
    write.close()
    disk.rename(target + ".tmp", target)


def cut_off_earlier(directory: str, names: Collection[str], end_offset: int) -> Damage | None:
    """A fault that an earlier start has cut off but not reported yet, or None."""
    if not names:
        return None
    path = f"{directory}/{min(names).removesuffix(CUT)}.log"
    reached("a start that was not finished had cut off a hole")
    reason = "an earlier start cut off the end of the log, and stopped before it could report this"
    return Damage(path, 0, reason, end_offset, f"{directory}/*.quarantine")


def cut_notes(log: ReadableLog) -> list[str]:
    """The notes about truncations of a log's end. Raises OSError."""
    names = log.disk.listdir(log.directory) if log.put_aside is not None else []
    return [f"{log.directory}/{name}" for name in names if name.endswith(CUT)]


def forget_cuts(log: ReadableLog) -> None:
    """Removes the notes: the broker has reported the truncations. Raises OSError."""
    for path in cut_notes(log):
        log.disk.unlink(path)
