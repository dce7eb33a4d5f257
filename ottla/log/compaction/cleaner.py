"""Compacts a log: keeps the newest record of each key, at its old offset.

A pass first fills a table with the keys and offsets of the records that no pass has cleaned. It
then rewrites every segment from the log's beginning to the last of these records. It leaves out
records for which the table has a newer one. If the table fills up, the pass stops adding records to
it and cleans the log only up to the last added record; the next pass begins after that record.

A pass is a generator. It yields None when the event loop may do other work. It yields a task if a
thread has to call the task's `run`. Such tasks read and check batches, sync files, rebuild indexes,
or process large batches without the interpreter lock. Between two steps the log may change: if a
segment of the pass is gone, the pass ends and leaves the log as it is.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from functools import partial
from hashlib import blake2b
from typing import TypeVar

from ottla.log.compaction.choice import Cleanable, groups_of
from ottla.log.compaction.filter import BatchTask, CleanedSegment, CleanerPass
from ottla.log.compaction.key_table import KeyOffsets
from ottla.log.compaction.transactions import CleanedTransactions
from ottla.log.files.batch_scan import BatchScan
from ottla.log.files.disk import Disk, File
from ottla.log.files.index_file import RebuildNeeded
from ottla.log.files.open_files import OpenFiles
from ottla.log.files.swaps import SUFFIXES
from ottla.log.files.transaction_index import TransactionIndex
from ottla.log.partition.index_rebuilds import IndexRebuild
from ottla.log.partition.reread import Reread
from ottla.log.partition.segment import Segment
from ottla.wire.errors import CorruptMessage, StorageFailed
from ottla.wire.marks import reached

READ_SIZE = 1 << 20


class Abandoned(Exception):
    """The log lost records, was moved or deleted, or went offline during a pass."""


class SyncTask:
    """Files and a directory to be synced, in any thread."""

    def __init__(
        self, disk: Disk, files: Sequence[File] = (), directory: str | None = None
    ) -> None:
        self.disk, self.files, self.directory = disk, files, directory
        self.error: OSError | None = None

    def run(self) -> None:
        """Syncs the files, then the directory; keeps an OSError in `error`."""
        try:
            for file in self.files:
                file.sync()
            if self.directory is not None:
                self.disk.sync_directory(self.directory)
        except OSError as error:
            self.error = error


class ReadTask:
    """Reads and checks the next range of a file that a pass needs, in a thread."""

    def __init__(self, scan: BatchScan) -> None:
        self.scan = scan
        self.error: OSError | EOFError | None = None

    def run(self) -> None:
        """Reads and checks the range; keeps an exception in `error`."""
        try:
            self.scan.read_on()
        except (OSError, EOFError) as error:
            self.error = error


Task = SyncTask | ReadTask | BatchTask | IndexRebuild | Reread
Steps = Generator[Task | None, None, None]
Result = TypeVar("Result")
Waiting = Generator[Task, None, Result]


class Cleaner:
    """One pass over one log. `bytes_read` and `bytes_written` grow as it proceeds.

    `remove_later` is called with the paths of files that are no longer needed. `memory_max` is
    the maximum size of the table of keys; `slice_seconds` is the maximum duration of a step.
    """

    def __init__(
        self,
        target: Cleanable,
        memory_max: int,
        slice_seconds: float,
        remove_later: Callable[[list[str]], None],
    ) -> None:
        self.target, self.log, self.disk = target, target.log, target.log.disk
        self.memory_max, self.slice_seconds = memory_max, slice_seconds
        self.remove_later = remove_later
        self.directory, self.segments = self.log.directory, self.log.segments
        self.moves = self.log.moves
        self.memory = self.counted = 0
        self.reading: Segment | None = None
        """The segment that is being read."""
        self.cleaner_pass: CleanerPass | None = None

    @property
    def bytes_read(self) -> int:
        """Bytes of the batches that the pass has read, to index keys or to rewrite segments."""
        return self.cleaner_pass.bytes_read if self.cleaner_pass else 0

    @property
    def bytes_written(self) -> int:
        """Bytes of the batches that the pass has written."""
        return self.cleaner_pass.bytes_written if self.cleaner_pass else 0

    @property
    def is_elsewhere(self) -> bool:
        """Whether the log was deleted or moved since the pass began. This includes a log that was
        moved away and back: its directory then lacks the files of the pass."""
        return self.log.moves != self.moves

    def take_moved(self) -> int:
        """Bytes read and written since the last call."""
        total = self.bytes_read + self.bytes_written
        moved, self.counted = total - self.counted, total
        return moved

    def steps(self) -> Steps:
        """Runs the pass. Afterwards `first_dirty_offset` of the log shows how far it got.

        Raises Abandoned; CorruptMessage if the log is damaged; OSError, StorageFailed.
        """
        self._check([])
        sources = [s for s in self.log.segments[:-1] if s.end_offset <= self.target.end_offset]
        if not sources:
            return
        work = self.cleaner_pass = yield from self._begin()
        yield from self._index(work, sources)
        self.memory, self.reading = work.keys.memory, None
        start = sources[0].base_offset
        work.transactions = yield from self._transactions(start)
        config = self.log.config
        for group in groups_of(
            [source for source in sources if source.base_offset < work.end_offset],
            config.segment_bytes,
            config.segment_index_bytes // 12,
            config.index_interval_bytes,
        ):
            yield from self._clean_group(work, group)
        self._check([])
        assert work.first_dirty_offset <= work.end_offset <= self.target.end_offset
        self.log.note_cleaned(work.end_offset)

    def _begin(self) -> Waiting[CleanerPass]:
        secret = blake2b(self.disk.new_id().encode(), digest_size=16).digest()
        first = self.target.first_dirty_offset
        keys = KeyOffsets(self.memory_max, self.target.end_offset - first, secret)
        producers = {
            state.producer_id: (state.last_offset, state.epoch)
            for state in self.log.active_producers()
        }
        return CleanerPass(
            keys,
            first,
            (yield from self._transactions(first)),
            producers,
            self.log.clock.now_ms(),
            self.log.config.delete_retention_ms,
        )

    def _transactions(self, offset: int) -> Waiting[CleanedTransactions]:
        transactions = yield from self._after_rebuilds(
            partial(self.log.aborted_transactions, offset, self.target.end_offset))
        return CleanedTransactions(transactions)

    def _after_rebuilds(self, ask: Callable[..., Result]) -> Waiting[Result]:
        """The result of `ask(patient=True)`; if an index is wrong, a thread first rebuilds it."""
        rebuild = None
        while True:
            try:
                return ask(patient=True)
            except RebuildNeeded as needed:
                needed.rebuild.check_new(rebuild)
                rebuild = needed.rebuild
            while not rebuild.over:
                yield rebuild
                rebuild.advance()
            self._check([])

    def _check(self, sources: list[Segment]) -> None:
        log = self.log
        if log.offline is not None or self.is_elsewhere:
            reached("a log was closed or failed while it was cleaned")
            raise Abandoned(f"{self.directory} was closed while it was cleaned")
        if log.segments is not self.segments or any(
            source not in log.segments for source in sources
        ):
            reached("a log lost segments while it was cleaned")
            raise Abandoned(f"{self.directory} lost segments while it was cleaned")

    def _index(self, work: CleanerPass, sources: list[Segment]) -> Steps:
        """Fills the table with the newest offset of each key. Reads only the part of the log that
        no pass has cleaned."""
        for source in sources:
            if source.end_offset <= work.first_dirty_offset:
                continue
            self._check([source])
            self.reading, position = source, 0
            if source.base_offset < work.first_dirty_offset:
                position = yield from self._after_rebuilds(
                    partial(source.position_of, work.first_dirty_offset))
            scan = BatchScan(source.data_file(), position, source.size, READ_SIZE)
            while True:
                yield from self._ready(scan, [source])
                done = work.index(scan, self.log.clock, self.slice_seconds)
                if done is None:
                    reached("compaction filled its table of keys")
                    return
                if done:
                    break
                if work.due is not None:
                    yield from self._aside(work.due, [source])
                    work.due = None
        work.end_offset = self.target.end_offset

    def _clean_group(self, work: CleanerPass, group: list[Segment]) -> Steps:
        """Rewrites a group of segments as one."""
        if not any(source.size for source in group):
            return
        self._check(group)
        cleaned = CleanedSegment(
            self.disk,
            OpenFiles(4),
            self.directory,
            group[0].base_offset,
            index_interval=self.log.config.index_interval_bytes,
        )
        self._discard(cleaned)
        try:
            yield from self._write(work, group, cleaned)
        except BaseException:
            # This includes GeneratorExit: a broker that stops leaves no temporary files.
            if self.log.directory == self.directory:    # also true if it was moved away and back
                self._discard(cleaned)
            raise

    def _write(self, work: CleanerPass, group: list[Segment], cleaned: CleanedSegment) -> Steps:
        before = work.changes
        cleaned.begin()
        filled = [source for source in group if source.size]
        for source in filled:
            self.reading = source
            scan = BatchScan(source.data_file(), 0, source.size, READ_SIZE)
            done = False
            while not done:
                yield from self._ready(scan, group)
                done = work.clean(
                    scan, cleaned, source is filled[-1], self.log.clock, self.slice_seconds
                )
                if work.due is not None:
                    yield from self._aside(work.due, group)
                    work.put(cleaned)
        cleaned.finish()
        aborted, work.transactions.kept = work.transactions.kept, []
        if len(group) == 1 and work.changes == before:
            reached("compaction left a segment unchanged")
            self._discard(cleaned)
            return
        files = cleaned.files_to_sync(sealed=True)
        if aborted:
            index = TransactionIndex(self.disk, cleaned.path(".txnindex"))
            reached("compaction kept an aborted transaction")
            for entry in aborted:
                index.append(entry)
            files.append(self.disk.open(index.path))
        yield from self._sync(SyncTask(self.disk, files))
        self._check(group)
        if len(group) > 1:
            reached("compaction made one segment of several")
        self.remove_later(self.log.replace_segments(group, cleaned))
        # Before this sync, a crash could bring back records that a tombstone deletes. After it, the
        # next group may drop the tombstone.
        yield from self._sync(SyncTask(self.disk, directory=self.directory))

    def _ready(self, scan: BatchScan, sources: list[Segment]) -> Steps:
        """Ends a step; if the next step's batch is not in memory, lets a thread read it first."""
        if scan.holds_next():
            yield None
        else:
            task = ReadTask(scan)
            yield task
            if isinstance(task.error, EOFError):
                self._check(sources)        # raises if the log was truncated and ends earlier
                raise CorruptMessage(str(task.error))
            if task.error is not None:
                raise task.error
        self._check(sources)

    def _aside(self, task: BatchTask, sources: list[Segment]) -> Steps:
        """Lets a thread process a large batch."""
        yield task
        if task.error is not None:
            raise task.error
        self._check(sources)

    def _sync(self, task: SyncTask) -> Steps:
        yield task
        if task.error is None:
            return
        if self.is_elsewhere:
            raise Abandoned(f"{self.directory} was moved or deleted while it was cleaned")
        self.log.fail(f"a cleaned segment did not reach the disk: {task.error}")
        raise StorageFailed(f"{self.directory}: {task.error}") from task.error

    def _discard(self, cleaned: CleanedSegment) -> None:
        cleaned.forget()
        for suffix in SUFFIXES:
            self.disk.unlink(cleaned.path(suffix))


def clean(
    target: Cleanable,
    memory_max: int,
    remove_later: Callable[[list[str]], None],
    slice_seconds: float = 1.0,
) -> Cleaner:
    """Runs a whole pass with all its tasks, for tools and tests. Blocks."""
    cleaner = Cleaner(target, memory_max, slice_seconds, remove_later)
    with closing(cleaner.steps()) as steps:
        for task in steps:
            if task is not None:
                task.run()
    return cleaner
