"""One partition's log on disk: opening, truncation, removal of old segments, closing, moving.

This file and `appendable_log` call the parts of a log in the right order. Each part manages its own
state: `chain` has the segments, `unflushed` knows what a flush has to sync, `health` knows whether
the log accepts writes, and `snapshots` has the producer snapshot files.
"""

from libc.stdint cimport int64_t

from ottla.log.files.closed_logs import DISTRUSTED, ClosedLog
from ottla.log.files.open_files cimport OpenFiles
from ottla.log.partition import derived_state, quarantine
from ottla.log.partition.appendable_log cimport AppendableLog
from ottla.log.partition.config import LogConfig
from ottla.log.partition.damage import damage_at_cut
from ottla.log.partition.loading import LogCheckpoint
from ottla.log.partition.rest_state cimport RestState
from ottla.log.partition.segment cimport Segment
from ottla.wire.errors import CorruptMessage, OffsetOutOfRange


cdef class PartitionLog(AppendableLog):
    """The log of one partition. Created with `PartitionLog.open`."""

    @staticmethod
    def open(disk, clock, directory, config=None, *, open_files=None, topic_id=None,
             checkpoint=LogCheckpoint(), clean=False):
        """Open the log in `directory`, which need not exist. Unless the last stop was `clean`, the
        log is recovered: every segment from the checkpoint's recovery point on is checked byte for
        byte."""
        cdef PartitionLog log = PartitionLog(
            disk, clock, directory, config or LogConfig(),
            OpenFiles() if open_files is None else open_files, topic_id)
        log.first_dirty_offset = checkpoint.first_dirty_offset
        log.expected_aborted = checkpoint.aborted_sizes
        log.load(checkpoint, clean, False)
        if log.log_end_offset < checkpoint.log_start_offset and log.health.offline is None:
            # A power cut lost the last records, which were already below the log start. Their
            # offsets must not be reused: the log start would hide new records with these offsets.
            log.truncate_fully_and_start_at(checkpoint.log_start_offset)
        return log

    @staticmethod
    def rest(disk, clock, directory, config, *, open_files, topic_id, closed,
             first_dirty_offset=0, aborted_sizes=None):
        """Creates a log at rest from its state at the clean stop, without reading its files."""
        cdef PartitionLog log = PartitionLog(
            disk, clock, directory, config, open_files, topic_id)
        log.log_start_offset, log.log_end_offset = closed.log_start_offset, closed.log_end_offset
        log.latest_epoch = closed.latest_epoch
        log.first_dirty_offset, log.expected_aborted = first_dirty_offset, aborted_sizes
        log.at_rest = RestState(
            closed.segments, closed.size_bytes, closed.first_ms, closed.aborted_bytes,
            closed.first_open)
        return log

    # Cut

    def truncate_to(self, int64_t offset):
        """Remove the batch that contains `offset`, everything after it, and the leader epochs that
        begin in the removed part. A follower does this if its log diverges from the leader's.
        Raises OffsetOutOfRange; StorageFailed: the log is then offline."""
        self.wake()
        self.health.check()
        if offset == self.log_end_offset:
            # Removes an epoch without records. Otherwise followers would request its end again and
            # again.
            self._epochs.truncate_from_end(offset)
            self.latest_epoch = self._epochs.latest
        if offset >= self.log_end_offset:
            return
        if offset < self.log_start_offset:
            raise OffsetOutOfRange(
                f"{self.directory} cannot be truncated to offset {offset}: it begins at offset"
                f" {self.log_start_offset}")
        self.cut(offset)

    cdef int cut(self, int64_t offset) except -1:
        cdef Segment segment
        try:
            for segment in self.chain.cut_to(offset):
                self.unflushed.forget(segment)
                self.unflushed.note_directory(self.directory)
            self.log_end_offset = self.chain.active.end_offset
            # The start may have been in the middle of the first batch that was removed.
            self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
            self.chain.sync_cut()
            self._epochs.truncate_from_end(self.log_end_offset)
            self.latest_epoch = self._epochs.latest
            self.unflushed.lower(self.log_end_offset)
            self.lower_to(self.log_end_offset)
            self.reload_producers()
            self.check_offsets()
        except CorruptMessage as error:
            self.health.end_in(self.disk, damage_at_cut(self.chain.active, error), error)
        except OSError as error:
            self.health.fail_with(f"it could not be truncated to offset {offset}", error)

    def repair(self):
        """Put the damaged segment and all later ones aside, or all segments (`quarantine`); returns
        their new paths. The log then ends before them, and accepts writes. Raises StorageFailed."""
        base, aside = quarantine.put_aside(self)
        self.health.repaired()
        if self.at_rest is not None:    # the log could not be read: all of it was put aside
            self.log_end_offset = self.log_start_offset
        if base <= self.log_start_offset:
            self.truncate_fully_and_start_at(self.log_start_offset)
        else:
            self.cut(base)
        return aside

    def truncate_fully_and_start_at(self, int64_t offset):
        """Removes everything and begins again, empty, at `offset`. Raises StorageFailed."""
        self.wake()
        self.health.check()
        try:
            self.chain.clear()
            self.unflushed.forget_all()
            self.log_start_offset = self.log_end_offset = offset
            self._epochs.clear()
            self.latest_epoch = self._epochs.latest
            self.unflushed.restart(offset)
            self.lower_to(offset)
            self.snapshots.remove_above(self.directory, -1)
            self.reload_producers()
            # After a restart, the name of this segment's file shows where the log begins.
            self.start_segment()
            self.disk.sync_directory(self.directory)
            self.check_offsets()
        except OSError as error:
            self.health.fail_with(f"it could not be restarted at offset {offset}", error)

    cdef int lower_to(self, int64_t offset) except -1:
        """Notes that the log was truncated to `offset`: nothing from there on has been cleaned."""
        self.first_dirty_offset = min(self.first_dirty_offset, offset)
        self.changed = True
        return 0

    cdef int reload_producers(self) except -1:
        """Loads the producers' state at the log's end, from the newest usable snapshot on."""
        self.snapshots.remove_above(self.directory, self.log_end_offset)
        self._producers = derived_state.load_producers(
            self.disk, self.directory, list(self.snapshots.offsets), self.chain.segments,
            self.forgotten_ms())
        return 0

    def remove_segment(self, Segment segment):
        """Removes a segment that is entirely below the log start offset.

        Returns the paths of its files, which any thread may unlink after file.delete.delay.ms.
        Readers that hold a File can still read. Raises OSError.
        """
        self.wake()
        assert segment is not self.chain.active and segment.end_offset <= self.log_start_offset
        paths = self.chain.take_away(segment)
        self.unflushed.forget(segment)
        paths += self.snapshots.take_up_to(self.directory, segment.base_offset)
        self.unflushed.note_directory(self.directory)
        return paths

    def replace_segments(self, list sources, Segment cleaned):
        """Replaces `sources` by a cleaned segment; returns paths for any thread to unlink later.

        The cleaned files have to be durable. Raises StorageFailed; the log is then offline.
        """
        cdef Segment segment
        self.wake()
        try:
            paths = self.chain.replace(sources, cleaned)
        except OSError as error:
            self.health.fail_with("a cleaned segment could not be put in place", error)
        for segment in sources:
            self.unflushed.forget(segment)
            if segment.base_offset != cleaned.base_offset:
                paths += self.snapshots.take(self.directory, segment.base_offset)
        self.unflushed.note_directory(self.directory)
        return paths

    def delete_before(self, offset):
        """Moves the log start forward; returns the segments that are now entirely below it."""
        self.wake()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            if offset < self.log_start_offset:
                return []
            raise OffsetOutOfRange(
                f"the log start of {self.directory} cannot be raised to offset {offset}: the log"
                f" ends at offset {self.log_end_offset}")
        self.log_start_offset = offset
        self._epochs.truncate_from_start(offset)
        self.check_offsets()
        return [segment for segment in self.chain.segments[:-1] if segment.end_offset <= offset]

    # End

    def seal(self):
        """Completes indexes and writes a producer snapshot, for a fast next start. Does nothing if
        the log has not changed. Raises StorageFailed."""
        self.health.check()
        if self.at_rest is not None or self.chain.active is None or not self.changed:
            return
        try:
            self.chain.seal_active()
            if self.chain.active.size:
                self.unflushed.note_sealed(self.chain.active)
            if self.log_end_offset not in self.snapshots.offsets and (
                    len(self._producers) or self.size_bytes > derived_state.REREAD_MAX):
                self.write_snapshot()
        except OSError as error:
            self.health.refuse("it could not be closed", error)
        self.changed = False

    def note_cleaned(self, int64_t offset):
        """Notes that a cleaner has processed everything below `offset`."""
        assert 0 <= offset <= self.log_end_offset
        self.first_dirty_offset = offset

    def share(self, OpenFiles open_files):
        """Counts the files of this log, which was opened in a thread, against the shared limit on
        open files."""
        self.open_files = open_files
        if self.chain is not None:
            self.chain.share(open_files)

    def close(self):
        """Seals and flushes the log, and closes all files. Raises StorageFailed."""
        try:
            if self.health.offline is None:
                self.seal()
                self.flush()
        finally:
            if self.chain is not None:
                self.chain.close()

    def closed(self):
        """The state with which the log can stay at rest at the next start; None if that start must
        read the log."""
        cdef RestState rest = self.at_rest
        cdef Segment first
        if self.health.offline is not None or self.health.damage is not None:
            return None
        if not self.segment_count:
            return None                 # it has no files
        if rest is None:
            if self.durable_offset() < self.log_end_offset:
                return None
            first = self.chain.segments[0]
            rest = RestState(
                len(self.chain.segments), self.chain.size_bytes(),
                first.max_timestamp if first.times_known else -1,
                DISTRUSTED if self.chain.distrusts_aborted() else self.chain.aborted_bytes(),
                self._producers.first_open())
        return ClosedLog(
            self.topic_id, self.log_start_offset, self.log_end_offset, self.latest_epoch,
            rest.segments, rest.size_bytes, rest.first_ms, rest.aborted_bytes, rest.first_open)

    def move_to(self, directory):
        """Renames the log's directory, the first step of a deletion. The rename is durable after
        `sync_directory` of its parent. Writes no pending data, because a deletion must work on a
        full disk. Raises OSError.
        """
        if self.chain is not None:
            self.chain.forget()
        if self.unflushed is not None:
            self.unflushed.lose_name()
        if self.segment_count or self.disk.exists(self.directory):
            self.disk.rename(self.directory, directory)
        self.directory = directory
        self.moves += 1
        self.health.renamed(directory)
        if self.chain is not None:
            self.chain.set_directory(directory)

    def continue_in(self, directory, on_failure, on_refusal=None):
        """Continues in `directory`, where the whole log is durable except for the active segment's
        indexes. The segments have to be closed; readers keep their descriptors."""
        cdef Segment segment
        self.wake()
        for segment in self.chain.segments:
            segment.aborted.synced()
        self.chain.set_directory(directory)
        self.directory = directory
        self.moves += 1
        self.health.renamed(directory)
        self.health.watch(on_failure, on_refusal)
        self.unflushed.moved(self.log_end_offset, self.chain.active, self.clock.monotonic_ms())
        self._epochs.changed = False
        self.check_offsets()
