"""The parts of one log that are not durable yet, and the progress of its flushes."""

from libc.stdint cimport int64_t

from ottla.log.files.flush import EpochsFile, FlushTask
from ottla.log.partition.chain cimport SegmentChain
from ottla.log.partition.derived_state import REREAD_MAX
from ottla.log.partition.segment cimport Segment


cdef class Unflushed:
    """One log's recovery point, and everything that the next flush has to sync."""

    def __init__(self, int64_t recovery_point, bint has_epochs_file, int64_t now_ms, list sealed):
        self.recovery_point = self.checkpoint_offset = recovery_point
        self.has_epochs_file, self.flushed_ms = has_epochs_file, now_ms
        self.sealed, self.paths, self.directories, self.tasks = sealed, [], [], []
        assert recovery_point >= 0

    cdef int note_names(self, str directory) except -1:
        """Notes that the names of a log's files and of its directory may have changed."""
        self.note_directory(directory)
        return self.note_directory(directory.rpartition("/")[0] or ".")

    cdef int note_directory(self, str path) except -1:
        """Notes that names in this directory have changed."""
        if path not in self.directories:
            self.directories.append(path)
        return 0

    def note_file(self, str path):
        """Notes that a file beside the segments was written. Its directory is noted separately."""
        self.paths.append(path)

    cdef int note_sealed(self, Segment segment) except -1:
        """Notes that a segment was sealed."""
        if segment not in self.sealed:
            self.sealed.append(segment)
        return 0

    cdef int forget(self, Segment segment) except -1:
        """Notes that a segment was removed or replaced."""
        if segment in self.sealed:
            self.sealed.remove(segment)
        return 0

    cdef int forget_all(self) except -1:
        """Notes that all segments are gone."""
        self.sealed.clear()
        return 0

    cdef int lower(self, int64_t offset) except -1:
        """Notes that the log was truncated: batches from `offset` on are new, so a flush that began
        before the truncation does not make them durable."""
        self.recovery_point = min(self.recovery_point, offset)
        self.checkpoint_offset = min(self.checkpoint_offset, offset)
        for task in self.tasks:
            task.offset = min(task.offset, offset)
        return 0

    cdef int restart(self, int64_t offset) except -1:
        """Notes that the log begins again, empty, at `offset`."""
        self.lower(offset)
        self.recovery_point = self.checkpoint_offset = offset
        return 0

    def begin(self, disk, SegmentChain chain, epochs, int64_t end, bint by_file_system):
        """A FlushTask for everything below `end`; None if all of it is durable.

        Raises OSError if the files could not be opened.
        """
        cdef bint epochs_due = self.epochs_are_due(chain, epochs)
        cdef Segment segment
        assert self.recovery_point <= end, "the recovery point is past the end of the log"
        if (self.recovery_point >= end and not self.sealed and not self.directories
                and not epochs_due):
            return None
        chain.write_aborted()
        for segment in self.sealed:
            segment.seal()
        files = [] if by_file_system else self.files_to_sync(chain)
        if self.epochs_file is None:
            self.epochs_file = EpochsFile(disk, chain.directory)
        # A sync of the file system may end before earlier flushes, so it writes the epochs that
        # these flushes are about to write, too.
        epochs_taken = epochs_due or by_file_system and any(
            [each.epochs is not None for each in self.tasks])
        task = FlushTask(
            disk, end, files, sorted(self.directories), self.epochs_file,
            self.epochs_file.next_version(), epochs.encode() if epochs_taken else None,
            by_file_system)
        if not by_file_system:
            for segment in self.touched(chain) + self.sealed:
                segment.aborted.synced()
        self.sealed.clear()
        self.paths.clear()
        self.directories.clear()
        if epochs_due:
            epochs.changed, self.has_epochs_file = False, True
        self.tasks.append(task)
        return task

    def end(self, task, epochs, int64_t now_ms):
        """Notes that a task has succeeded; flushes take effect in the order in which they began.

        A later flush may end first, in another thread. It does not include the files of an earlier
        flush, such as a new file's directory, so it takes effect only after the earlier one. A sync
        of the whole file system includes all files, and takes effect at once.
        """
        assert task in self.tasks
        task.ended = True
        if task.by_file_system:
            self.tasks.remove(task)
            self.reached(task, epochs, now_ms)
        while self.tasks and self.tasks[0].ended:
            self.reached(self.tasks.pop(0), epochs, now_ms)

    cdef int reached(self, task, epochs, int64_t now_ms) except -1:
        """Moves the recovery point up to the end of the batches that a flush has made durable."""
        self.recovery_point = max(self.recovery_point, <int64_t>task.offset)
        if task.refused is None:
            self.checkpoint_offset = self.recovery_point
        else:
            # The batches are durable. If their epochs are not, a recovery only takes longer.
            epochs.changed = True
            for later in self.tasks:
                if later.epochs is None:
                    later.refused = task.refused
        assert self.checkpoint_offset <= self.recovery_point
        self.flushed_ms = now_ms
        return 0

    def knows(self, task):
        """Whether a task is still under way: neither completed nor dropped."""
        return task in self.tasks

    def give_up(self, task):
        """Drops a task that has failed, or whose log is offline."""
        self.tasks.remove(task)

    def lose_name(self):
        """Keeps all tasks from writing the epochs file. Called before the log's directory is
        renamed, because its old path may belong to another topic afterwards."""
        if self.epochs_file is not None:
            self.epochs_file.close()
            self.epochs_file = None

    def moved(self, int64_t end, Segment active, int64_t now_ms):
        """Continues the log in another directory, where everything below `end` is durable except
        for the active segment's indexes. Tasks under way are dropped."""
        self.recovery_point = self.checkpoint_offset = end
        self.sealed = [active] if active is not None and active.size else []
        self.paths, self.directories, self.tasks = [], [], []
        self.lose_name()
        self.has_epochs_file, self.flushed_ms = True, now_ms

    cdef bint epochs_are_due(self, SegmentChain chain, epochs) except -1:
        """Whether the epochs must be written. A small log needs no file: its batches have them."""
        return epochs.changed and chain.active is not None and (
            self.has_epochs_file or len(chain.segments) > 1 or chain.active.size > REREAD_MAX)

    cdef list touched(self, SegmentChain chain):
        """The segments that have batches from the recovery point on, without those in `sealed`."""
        return [
            segment
            for segment in chain.segments[max(chain.number_of(self.recovery_point), 0):]
            if segment.size and segment not in self.sealed]

    cdef list files_to_sync(self, SegmentChain chain):
        cdef Segment segment
        # Retention may have removed a snapshot since its path was noted.
        files = [chain.disk.open(path) for path in self.paths if chain.disk.exists(path)]
        for segment in self.touched(chain):
            files += segment.files_to_sync()
        for segment in self.sealed:
            files += segment.files_to_sync(sealed=True)
        return files
