"""Moves a partition to another log directory while the partition continues to serve (KIP-113).

Steps of a move: `plan`, on the loop, chooses the bytes to copy next, up to a limit. `Copy.run`
copies them, in any thread. Both repeat until `nearly_done`. `prepare` adds the log's offsets to the
target's next checkpoint. `swap`, on the loop, copies the rest, makes everything durable, writes
the record (`move_record`) and continues the log in the copy. `finish` makes the renames durable and
removes the record. Until the record is written, any failure leaves the partition where it was.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.log.files.checkpoints import Partition
from ottla.log.files.disk import Disk, is_passing
from ottla.log.files.names import EPOCHS, PARTITION_METADATA, UNFINISHED, partition_metadata
from ottla.log.files.swaps import SWAP
from ottla.log.partition.segment import Segment
from ottla.log.storage.log_directory import LogDirectory
from ottla.log.storage.move_record import MOVE_RECORD, MoveRecord, encode
from ottla.log.storage.storage import Storage
from ottla.wire.errors import StorageFailed
from ottla.wire.marks import reached

STEP_BYTES = 8 << 20
"""Bytes that one copy step copies and syncs."""
CHUNK_BYTES = 1 << 20
SWAP_BYTES = 4 << 20
"""Bytes that may be left for `swap`, which blocks the loop."""
SEGMENT_FILES = (".log", ".index", ".timeindex", ".txnindex")
MADE_ANEW = (".index", ".timeindex")
PASSING_FILES = (*UNFINISHED, SWAP, EPOCHS, PARTITION_METADATA)


class MoveFailed(Exception):
    """The move is given up; the partition stays where it was."""


class LogCut(MoveFailed):
    """The log was truncated meanwhile, for example because it diverged from its leader's log. The
    copy may contain removed records, at offsets where the log has other records now."""


class Piece(NamedTuple):
    """Bytes of a file to be copied; `end` is None for everything from `start` on."""

    source: str
    target: str
    start: int = 0
    end: int | None = None


class Copy:
    """One step of a move. `vanished` means that a file was removed from the log meanwhile."""

    def __init__(self, disk: Disk, directory: str, pieces: Iterable[Piece] = ()) -> None:
        self.disk, self.directory, self.pieces = disk, directory, list(pieces)
        self.sealed: list[Segment] = []
        self.doubted: set[int] = set()
        self.removed: list[str] = []
        self.reached: dict[int, int] = {}
        self.epochs: bytes | None = None
        self.vanished = False

    @property
    def batch_bytes(self) -> int:
        """Bytes of batches in this step; indexes and other files do not count."""
        return sum(each.end - each.start for each in self.pieces if each.end is not None)

    def run(self, only_needed: bool = False) -> None:
        """Copies and syncs; with `only_needed`, does not sync indexes, which recovery can rebuild.

        Raises OSError.
        """
        for path in self.removed:
            self.disk.unlink(path)
        try:
            for piece in self.pieces:
                self.copy(piece, not (only_needed and piece.target.endswith(MADE_ANEW)))
        except FileNotFoundError:
            self.vanished = True
            reached("a file vanished while a log moved")
            return
        if self.epochs is not None:
            self.disk.write_atomically(f"{self.directory}/{EPOCHS}", self.epochs)
        self.disk.sync_directory(self.directory)

    def copy(self, piece: Piece, sync: bool) -> None:
        source = self.disk.open(piece.source)
        end = source.size() if piece.end is None else piece.end
        target = self.disk.open(piece.target, create=True)
        target.truncate(piece.start)
        for at in range(piece.start, end, CHUNK_BYTES):
            data = source.pread(min(CHUNK_BYTES, end - at), at)
            if len(data) < min(CHUNK_BYTES, end - at):
                raise OSError(f"{piece.source} ends before byte {end}")
            target.pwrite(data, at)
        if sync:
            target.sync()


class Move:
    """The move of one partition to `target`. All methods except `begin` run on the loop.

    `given_up` is set to cancel the move; `committed` is true once the partition is in the target.
    """

    def __init__(self, storage: Storage, key: Partition, target: LogDirectory) -> None:
        self.storage, self.key, self.target = storage, key, target
        self.log, self.source, self.disk = storage.logs[key], storage.homes[key], storage.disk
        self.name = f"{key[0]}-{key[1]}"
        self.copy_name = storage.deletions.unique_name(self.name, "future")
        self.directory = target.file(self.copy_name)
        self.given_up = self.committed = False
        self.left = ""
        """Why a committed move needs a restart to complete; empty if it does not."""
        self.listed: list[Segment] | None = None
        """The log's list of segments at the first check; a truncation replaces it."""
        self.segments: dict[int, Segment] = {}
        self.reached: dict[int, int] = {}
        self.sealed: set[int] = set()
        self.doubted: set[int] = set()
        """Base offsets of segments whose transaction index was distrusted when it was copied. It
        is copied again once it is rebuilt."""
        self.epochs: bytes | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of batches in the copy."""
        return sum(self.reached.values())

    @property
    def offset_lag(self) -> int:
        """Upper limit of the copy's offset lag: a partly copied segment counts as not copied."""
        for base, segment in self.segments.items():
            if self.reached.get(base, 0) < segment.size:
                return self.log.log_end_offset - base
        return 0 if self.segments else self.log.log_end_offset - self.log.log_start_offset

    def check(self) -> None:
        """Raises MoveFailed if the move cannot continue, LogCut if it has to start again."""
        if self.given_up:
            reached("a move between directories was cancelled")
            raise MoveFailed(f"the move of {self.name} to {self.target.path} was cancelled")
        for reason in (self.log.offline, self.source.offline, self.target.offline):
            if reason is not None:
                raise MoveFailed(f"{self.name} cannot be moved to {self.target.path}: {reason}")
        segments = self.log.segments
        if self.listed is None:
            self.listed = segments
        if segments is not self.listed:
            reached("a log was cut while it moved to another directory")
            raise LogCut(f"{self.name} was truncated: its move to {self.target.path} starts again")

    def begin(self) -> None:
        """Creates the copy's directory and copies the files that belong to no segment, in any
        thread. Raises OSError."""
        self.disk.makedirs(self.directory)
        self.disk.sync_directory(self.target.path)
        if self.log.topic_id is not None:
            metadata = partition_metadata(self.log.topic_id)
            self.disk.write_atomically(f"{self.directory}/{PARTITION_METADATA}", metadata)
        for piece in self.small_files():
            Copy(self.disk, self.directory, [piece]).run()

    def plan(self, left: int = STEP_BYTES) -> Copy:
        """What to copy next: at most `left` bytes of batches, the other files of each sealed
        segment whose batches are complete after this step, and the leader epochs if they have
        changed.

        Segments that retention or compaction removed from the log are removed from the copy.
        """
        copy, segments = Copy(self.disk, self.directory), self.log.segments
        current = {segment.base_offset: segment for segment in segments}
        for base, segment in self.segments.items():
            if current.get(base) is not segment:
                self.reached.pop(base, None)
                self.sealed.discard(base)
                reached("retention or compaction removed a segment of a log that moves")
                if base in current:
                    reached("a segment was compacted while its log moved")
                self.doubted.discard(base)
                copy.removed += [self.inside(segment.path(suffix)) for suffix in SEGMENT_FILES]
        self.segments = current
        for segment in segments:
            base, path = segment.base_offset, segment.path(".log")
            start, end = self.reached.get(base, 0), segment.size
            if start < end or base not in self.reached:
                end = min(end, start + left)
                copy.pieces.append(Piece(path, self.inside(path), start, end))
                copy.reached[base] = end
                left -= end - start
            rebuilt = base in self.doubted and not segment.aborted.distrusted
            if rebuilt:
                copy.removed.append(self.inside(segment.path(".txnindex")))
            if end == segment.size and segment is not segments[-1] and (
                rebuilt or base not in self.sealed
            ):
                copy.sealed.append(segment)
                copy.pieces += self.beside(segment)
                if segment.aborted.distrusted:
                    copy.doubted.add(base)
            if left <= 0:
                break
        epochs = self.log.epochs.encode()
        copy.epochs = epochs if epochs != self.epochs else None
        return copy

    def inside(self, path: str) -> str:
        return f"{self.directory}/{path.rpartition('/')[2]}"

    def beside(self, segment: Segment) -> list[Piece]:
        """The other files of a segment, and the producer snapshot at its base offset."""
        paths = [segment.path(suffix) for suffix in (*SEGMENT_FILES[1:], ".snapshot")]
        return [Piece(path, self.inside(path)) for path in paths if self.disk.exists(path)]

    def note(self, copy: Copy) -> None:
        """Notes the progress after a step has run."""
        if copy.vanished:
            return
        assert all(end >= self.reached.get(base, 0) for base, end in copy.reached.items())
        self.reached |= copy.reached
        sealed = {segment.base_offset for segment in copy.sealed}
        self.sealed |= sealed
        self.doubted = self.doubted - sealed | copy.doubted
        self.epochs = copy.epochs or self.epochs

    def nearly_done(self) -> bool:
        """Whether so little is left that the loop may copy it."""
        segments = self.log.segments
        left = sum(each.size - self.reached.get(each.base_offset, 0) for each in segments)
        whole = all(
            self.segments.get(each.base_offset) is each and each.base_offset in self.sealed
            for each in segments[:-1]
        )
        return whole and left <= SWAP_BYTES

    def prepared(self) -> bool:
        """Whether the target's checkpoints have the log start and the end of the compacted part.

        Without the log start, deleted records would return with the move. Without the end of the
        compacted part, recovery would take a gap in the offsets for damage.
        """
        return (
            self.target.log_starts.get(self.key) == self.log.log_start_offset
            and self.target.cleaned.get(self.key, 0) == self.log.first_dirty_offset
        )

    def prepare(self) -> None:
        """Includes the log in the target's next checkpoint, which must be written before `swap`."""
        target, log = self.target, self.log
        target.claim(self.key[0], log.topic_id)
        target.recovery_points[self.key] = log.checkpoint_offset
        target.log_starts[self.key] = log.log_start_offset
        if log.first_dirty_offset:
            target.cleaned[self.key] = log.first_dirty_offset
        else:
            target.cleaned.pop(self.key, None)
        target.aborted_sizes[self.key] = log.aborted_sizes() or {}
        if self.key in self.source.high_watermarks:
            target.high_watermarks[self.key] = self.source.high_watermarks[self.key]

    def swap(self) -> None:
        """Copies the rest and continues the log in the copy. Blocks for a few syncs.

        Raises MoveFailed, OSError, StorageFailed: the log is then where it was, or offline if it is
        not known whether the record is durable.
        """
        self.check()
        log, disk = self.log, self.disk
        self.seal()
        for segment in log.segments:
            segment.close()
        copy = self.plan(1 << 62)
        if log.segments:
            copy.pieces += self.beside(log.segments[-1])
        copy.pieces += self.small_files()
        copy.run(only_needed=True)
        if copy.vanished:
            raise MoveFailed(f"{self.name}: files of the log were removed by another program")
        path = self.target.file(MOVE_RECORD)
        file = disk.open(path + ".tmp", create=True)
        file.truncate(0)
        file.pwrite(encode(MoveRecord(*self.key, self.copy_name)), 0)
        file.sync()
        named = False
        try:
            disk.rename(path + ".tmp", path)
            named = True
            disk.sync_directory(self.target.path)
        except OSError as error:
            if not named and is_passing(error):
                raise                          # a full disk had no space for the record's name
            # Both copies are the same now. The next start may take either one, as long as nothing
            # is written to them.
            reached("it is unknown whether a move is final")
            log.health.watch(None)             # the source directory has not failed
            log.fail(f"only a restart can find out whether its move to {self.directory} is final:"
                     f" {error}")
            self.storage.fail(self.target, f"the record of a move could not be synced: {error}")
            raise StorageFailed(str(log.offline)) from error
        self.committed = True
        self.continue_in_copy()

    def seal(self) -> None:
        """Writes everything pending to the log's files. If the source's disk is too full for the
        active segment's indexes, they are deleted and rebuilt later. A move must be possible on a
        full disk, since it frees space there. Raises OSError, StorageFailed."""
        log = self.log
        try:
            log.seal()
        except StorageFailed:
            if log.offline is not None or any(map(log.waiting_aborted, log.segments)):
                raise
            active = log.segments[-1]
            active.forget()
            for suffix in MADE_ANEW:
                self.disk.unlink(active.path(suffix))

    def small_files(self) -> list[Piece]:
        """Snapshots, and files that recovery put aside, unless the copy has them already."""
        disk, pieces = self.disk, list[Piece]()
        log = self.log.directory
        there = set(disk.listdir(self.directory))
        for name in disk.listdir(log) if disk.exists(log) else []:
            if name.endswith(SEGMENT_FILES + PASSING_FILES):
                continue
            piece = Piece(f"{log}/{name}", f"{self.directory}/{name}")
            try:
                if name not in there or disk.size(piece.source) != disk.size(piece.target):
                    pieces.append(piece)
            except FileNotFoundError:
                continue
        return pieces

    def continue_in_copy(self) -> None:
        """Renames both directories; updates the storage. The next start repeats failed renames."""
        storage, source, target = self.storage, self.source, self.target
        assert self.committed and storage.homes[self.key] is source is not target
        storage.moves.pop(self.key, None)
        self.log.continue_in(self.directory, storage.failures[target.path])
        source.forget(self.key)
        target.partitions.add(self.key)
        storage.homes[self.key] = target
        away = source.file(storage.deletions.unique_name(self.name, "delete"))
        try:
            self.disk.rename(source.file(self.name), away)
            storage.deletions.add(away, self.log.config.file_delete_delay_ms)
        except FileNotFoundError:
            pass                        # a partition that never had records has no files
        except OSError as error:
            self.incomplete(source, f"the old copy of {self.name} could not be removed", error)
            if source.offline is None:
                storage.deletions.keep_in_place(self.key, source.file(self.name))
        try:
            self.disk.rename(self.directory, target.file(self.name))
            self.log.continue_in(
                target.file(self.name),
                storage.failures[target.path],
                storage.refusals[target.path],
            )
        except OSError as error:
            self.incomplete(target, f"{self.directory} could not be renamed", error)

    def incomplete(self, directory: LogDirectory, what: str, error: OSError) -> None:
        """Notes that a rename has failed: the record stays, and the next start repeats the rename.
        A full disk is no reason to take the directory offline."""
        self.left = f"{what}: {error}"
        reached("a move is left to the next start")
        if not is_passing(error):
            self.storage.fail(directory, self.left)

    def finish(self) -> Callable[[], None]:
        """Returns a function that completes the move: it must run, in any thread, before the next
        move begins, and raises OSError. `finish` itself raises MoveFailed if only a restart can
        complete the move."""
        if self.left or self.source.offline is not None or self.target.offline is not None:
            why = f" ({self.left})" if self.left else ""
            raise MoveFailed(
                f"the move of {self.name} is not complete{why}: restart the broker with working log"
                " directories")

        def run() -> None:
            self.disk.sync_directory(self.source.path)
            self.disk.sync_directory(self.target.path)
            self.disk.unlink(self.target.file(MOVE_RECORD))
            self.disk.sync_directory(self.target.path)

        return run

    def give_up(self) -> None:
        """Cancels the move: the partition stays where it is. If `begin` was called, call `discard`
        too."""
        self.given_up = True
        for known in self.target.checkpointed():
            known.pop(self.key, None)

    def discard(self) -> None:
        """Schedules the deletion of an unfinished copy. No step may be running."""
        if not self.committed and self.target.offline is None:
            self.storage.deletions.add(self.directory, 0)
