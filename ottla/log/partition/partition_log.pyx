"""One partition's log on disk: append, roll, truncate, flush.

Only the thread of the loop calls it, except for `FlushTask.run`. Everything that is acknowledged
went through `append`, whose write is complete when it returns; what a power cut may take back is at
`recovery_point` and above.

This file holds the order of a log's steps. Its parts manage their own state: `chain` the segments,
`unflushed` what a flush has to sync, `health` whether the log accepts writes, `snapshots` the
producer snapshot files.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.log.files.closed_logs import DISTRUSTED, ClosedLog
from ottla.log.files.disk import is_passing
from ottla.log.files.flush import run_all
from ottla.log.files.names import PARTITION_METADATA, partition_metadata
from ottla.log.files.open_files cimport OpenFiles
from ottla.log.partition import derived_state, quarantine
from ottla.log.partition.chain cimport SegmentChain
from ottla.log.partition.config import LogConfig
from ottla.log.partition.damage import damage_at_cut
from ottla.log.partition.follower_batches cimport checked_batches, run_in_segment
from ottla.log.partition.loading import LogCheckpoint
from ottla.log.partition.readable_log cimport ReadableLog
from ottla.log.partition.rest_state cimport RestState
from ottla.log.partition.segment cimport Segment
cimport ottla.wire.batch as fields
from ottla.wire.errors import CorruptMessage, OffsetOutOfRange, StorageFailed


cdef class PartitionLog(ReadableLog):
    """The log of one partition. Created with `PartitionLog.open`."""

    @staticmethod
    def open(disk, clock, directory, config=None, *, open_files=None, topic_id=None,
             checkpoint=LogCheckpoint(), clean=False):
        """Open the log in `directory`, which need not exist, and recover it unless it is `clean`:
        every segment from the checkpoint's recovery point on is checked byte for byte."""
        cdef PartitionLog log = PartitionLog(
            disk, clock, directory, config or LogConfig(),
            OpenFiles() if open_files is None else open_files, topic_id)
        log.first_dirty_offset = checkpoint.first_dirty_offset
        log.expected_aborted = checkpoint.aborted_sizes
        log.load(checkpoint, clean, False)
        if log.log_end_offset < checkpoint.log_start_offset and log.health.offline is None:
            # A power cut removed the rest of what had been deleted. Its offsets must not be reused:
            # the checkpointed log start would hide records that got them again.
            log.truncate_fully_and_start_at(checkpoint.log_start_offset)
        return log

    @staticmethod
    def rest(disk, clock, directory, config, *, open_files, topic_id, closed,
             first_dirty_offset=0, aborted_sizes=None):
        """Creates a log of which only the state at its closing is known: a `ClosedLog`."""
        cdef PartitionLog log = PartitionLog(
            disk, clock, directory, config, open_files, topic_id)
        log.log_start_offset, log.log_end_offset = closed.log_start_offset, closed.log_end_offset
        log.latest_epoch = closed.latest_epoch
        log.first_dirty_offset, log.expected_aborted = first_dirty_offset, aborted_sizes
        log.at_rest = RestState(
            closed.segments, closed.size_bytes, closed.first_ms, closed.aborted_bytes,
            closed.first_open)
        return log

    # Append

    cdef int64_t append(self, uint8_t *batch, Py_ssize_t size, int32_t leader_epoch) except -2:
        """Append one validated batch of a client or coordinator and return its base offset.

        The base offset and the leader epoch are set in `batch`. A batch that repeats one of its
        producer's last five returns the base offset of that one, and sets `duplicate`. Raises
        StorageFailed, OutOfOrderSequence, InvalidProducerEpoch; the log is then unchanged.
        """
        cdef int64_t first = self.log_end_offset, repeated
        cdef int64_t last = first + fields.last_offset_delta(batch)
        self.duplicate = False
        if self.at_rest is not None:
            self.wake()
        if self.health.offline is not None:
            self.health.check()
        if fields.producer_id(batch) >= 0:
            repeated = self._producers.check(batch)
            if repeated >= 0:
                self.duplicate = True
                return repeated
        try:
            if leader_epoch != self.latest_epoch:
                self.begin_epoch(leader_epoch)
            fields.set_base_offset(batch, first)
            fields.set_leader_epoch(batch, leader_epoch)
            self.write(batch, size, last)
        except StorageFailed:
            self._producers.note_unwritten(batch)
            raise
        return first

    cdef int append_run(self, const uint8_t *data, Py_ssize_t size) except -1:
        """Append whole batches of the leader's log unchanged, with one write per segment.

        `checked_batches` has found them sound. Raises StorageFailed: what was written before the
        failure is in; OffsetOutOfRange if the first one begins below the end of this log.
        """
        cdef Py_ssize_t taken, entries = 0
        self.duplicate = False
        self.wake()
        self.health.check()
        if fields.base_offset(data) < self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.directory} ends at offset {self.log_end_offset}, the leader's batch begins "
                f"at {fields.base_offset(data)}")
        while size > 0:
            try:
                if self.chain.active is None or self.chain.must_roll(
                        data, fields.total_size(data), fields.last_offset(data)):
                    self.start_segment()
                taken = run_in_segment(self.chain, data, size, &entries)
                self.note_gaps(data, taken)
                self.chain.active.append_run(data, taken, entries)
            except OSError as error:
                self.take_back(error)
            self.note_run(data, taken)
            data += taken
            size -= taken
        return 0

    cdef int note_run(self, const uint8_t *data, Py_ssize_t size) except -1:
        """What follows from batches that were written: epochs, the log's end, producers."""
        cdef const uint8_t *batch = data
        cdef tuple aborted
        while batch < data + size:
            if fields.leader_epoch(batch) != self.latest_epoch:
                self.begin_epoch(fields.leader_epoch(batch), fields.base_offset(batch))
            assert fields.base_offset(batch) >= self.log_end_offset, "offsets ascend"
            self.log_end_offset = fields.last_offset(batch) + 1
            if fields.producer_id(batch) >= 0:
                aborted = self._producers.update(batch, fields.total_size(batch))
                if aborted is not None:
                    self.note_aborted(aborted)
            batch += fields.total_size(batch)
        assert self.chain.active.end_offset == self.log_end_offset
        self.changed = True
        return 0

    cdef int write(self, const uint8_t *batch, Py_ssize_t size, int64_t last_offset) except -1:
        cdef SegmentChain chain = self.chain
        cdef tuple aborted
        try:
            if chain.active is None or chain.must_roll(batch, size, last_offset):
                self.start_segment()
            chain.active.append(batch, size)
        except OSError as error:
            self.take_back(error)
        assert last_offset >= self.log_end_offset and chain.active.end_offset == last_offset + 1
        self.log_end_offset = last_offset + 1
        self.changed = True
        if fields.producer_id(batch) >= 0:
            aborted = self._producers.update(batch, size)
            if aborted is not None:
                self.note_aborted(aborted)
        return 0

    cdef int take_back(self, error) except -1:
        """Undo a write that failed, and raise StorageFailed."""
        try:
            if self.chain.active is not None:
                self.chain.active.undo()
        except OSError as second:
            self.fail(f"after a failed write ({error}) the file could not be truncated: {second}")
        self.health.refuse("a write failed", error)

    def note_aborted(self, tuple aborted):
        """Indexes the transaction aborted by the last batch, which is its marker."""
        try:
            self.chain.note_aborted(aborted)
        except OSError as error:
            if not is_passing(error):
                self.health.fail_with("the transaction index could not be written", error)

    def fail(self, reason):
        """Takes the log offline for good: reads continue, nothing is written until a restart."""
        self.health.fail(reason)

    def end_before(self, damage):
        """Notes that a sealed segment has changed: stops writes, and reads end before the fault."""
        self.health.end_before(self.disk, damage)

    def append_bytes(self, batch, leader_epoch):
        """Append one validated batch and return its base offset; the argument is not modified."""
        cdef bytearray copy = bytearray(batch)
        cdef uint8_t[::1] view = self.checked(copy)
        return self.append(&view[0], view.shape[0], leader_epoch)

    def append_run_bytes(self, const uint8_t[::1] data, int32_t leader_epoch):
        """Append the whole batches at the start of `data`, as a follower of an epoch's leader does;
        returns their bytes. Raises CorruptMessage, StorageFailed."""
        cdef Py_ssize_t size = checked_batches(
            &data[0], data.shape[0], self.log_end_offset, self.latest_epoch, leader_epoch, False)
        if size:
            self.append_run(&data[0], size)
        return size

    cdef checked(self, bytearray batch):
        cdef const uint8_t[::1] view = batch
        if view.shape[0] < fields.HEADER_SIZE or fields.total_size(&view[0]) != view.shape[0]:
            raise CorruptMessage(f"{len(batch)} bytes are not one record batch")
        return batch

    # Roll

    def roll(self):
        """Ends the active segment, if it has records, and begins the next. Raises StorageFailed."""
        self.wake()
        self.health.check()
        if self.chain.active is None or not self.chain.active.size:
            return
        try:
            self.start_segment()
        except OSError as error:
            self.health.refuse("a new segment could not be created", error)

    cpdef int start_segment(self, bint discards=False) except -1:
        """Begins a segment at the log's end; the previous one is sealed. Raises OSError.

        `discards`: the segment that ends is about to be deleted, so on a full disk nothing is
        written for it. Without space for a snapshot, its producers are forgotten after a kill.
        """
        cdef Segment ended = self.chain.active
        if ended is None:
            self.make_directory()
        elif ended.size:
            try:
                self.chain.seal_active()
                self.write_snapshot()
            except OSError as error:
                if not (discards and is_passing(error)):
                    raise
                self.replace_snapshots()
        assert ended is None or ended.end_offset == self.log_end_offset
        self.chain.begin(self.log_end_offset)
        if ended is not None and ended.size:
            self.unflushed.note_sealed(ended)
        self.changed = True
        self.unflushed.note_directory(self.directory)
        return 0

    cdef int make_directory(self) except -1:
        """Creates the partition's directory and the file with its topic id."""
        self.disk.makedirs(self.directory)
        self.unflushed.note_names(self.directory)
        if self.topic_id is not None:
            # The flush that makes the first record durable syncs this too.
            path = f"{self.directory}/{PARTITION_METADATA}"
            self.disk.write_and_rename(path, partition_metadata(self.topic_id))
            self.unflushed.note_file(path)
        return 0

    def remove_expired_producers(self):
        """Forgets producers that have written nothing for producer.id.expiration.ms."""
        return 0 if self.at_rest is not None else self._producers.remove_expired(
            self.clock.now_ms(), self.config.producer_id_expiration_ms)

    def write_snapshot(self):
        """Writes a snapshot of the producers at the log's end. Raises OSError."""
        path = self.snapshots.write(self.directory, self.log_end_offset, self._producers)
        # Compaction may drop a marker once it is flushed: an older snapshot, which a power cut
        # would bring back, has its transaction as open.
        self.unflushed.note_file(path)

    cdef int replace_snapshots(self) except -1:
        """Replaces the older snapshots by a new one, if there is space for it.

        After the records following them are gone, the old snapshots are outdated: no knowledge of a
        producer is better than wrong knowledge.
        """
        for path in self.snapshots.take_up_to(self.directory, self.log_end_offset):
            self.disk.unlink(path)
        try:
            self.write_snapshot()
        except OSError as error:
            if not is_passing(error):
                raise

    cdef bint has_sealed(self) noexcept:
        """Whether a segment has ended that is not durable yet."""
        return self.unflushed is not None and len(self.unflushed.sealed) > 0

    # Cut

    def truncate_to(self, int64_t offset):
        """Remove the batch that contains `offset` and everything after it, as a follower has to,
        with the leader epochs that begin there. Raises StorageFailed; the log is then offline.
        """
        self.wake()
        self.health.check()
        if offset == self.log_end_offset:
            # An epoch in which nothing was written: it would be asked for again and again.
            self._epochs.truncate_from_end(offset)
            self.latest_epoch = self._epochs.latest
        if offset >= self.log_end_offset:
            return
        if offset < self.log_start_offset:
            raise OffsetOutOfRange(
                f"{self.directory} begins at {self.log_start_offset}, it cannot be cut to {offset}")
        self.cut(offset)

    cdef int cut(self, int64_t offset) except -1:
        cdef Segment segment
        try:
            for segment in self.chain.cut_to(offset):
                self.unflushed.forget(segment)
                self.unflushed.note_directory(self.directory)
            self.log_end_offset = self.chain.active.end_offset
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
        """Put the segments from the damaged one on aside; returns their paths. The log ends before
        them, and accepts writes again. Raises StorageFailed."""
        base, aside = quarantine.put_aside(self)
        self.health.repaired()
        if self.at_rest is not None:    # it could not be read: all of it was put aside
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
            # A restart learns from the file's name where the log begins.
            self.start_segment()
            self.disk.sync_directory(self.directory)
            self.check_offsets()
        except OSError as error:
            self.health.fail_with(f"it could not be restarted at offset {offset}", error)

    cdef int lower_to(self, int64_t offset) except -1:
        """The log was cut to `offset`: everything from there on is new."""
        self.first_dirty_offset = min(self.first_dirty_offset, offset)
        self.changed = True
        return 0

    cdef int reload_producers(self) except -1:
        """The producers' state at the log's end, from the newest usable snapshot."""
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
        """Raises the log start offset; returns the segments entirely below it now."""
        self.wake()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            if offset < self.log_start_offset:
                return []
            raise OffsetOutOfRange(
                f"{self.directory} ends at {self.log_end_offset}, below the new start {offset}")
        self.log_start_offset = offset
        self._epochs.truncate_from_start(offset)
        self.check_offsets()
        return [segment for segment in self.chain.segments[:-1] if segment.end_offset <= offset]

    # Flush

    def begin_flush(self, by_file_system=False):
        """What to sync to make everything appended so far durable; None if there is nothing.

        `by_file_system`: the flush is for many logs, so no files are opened (`flush.run_all`).
        """
        self.health.check()
        if self.at_rest is not None:
            return None
        try:
            return self.unflushed.begin(
                self.disk, self.chain, self._epochs, self.log_end_offset, by_file_system)
        except OSError as error:
            self.health.refuse("its files could not be opened for a flush", error)

    def end_flush(self, task):
        """Moves the recovery point after `task.run()`. Raises StorageFailed if that failed."""
        if self.unflushed is None or not self.unflushed.knows(task):
            # the partition was moved, and is durable in its new directory
            return
        if task.error is not None:
            self.fail(f"a flush failed: {task.error}")
        if self.health.offline is not None:
            self.unflushed.give_up(task)
        self.health.check()
        self.unflushed.end(task, self._epochs, self.clock.monotonic_ms())
        self.check_offsets()

    @property
    def flushing(self):
        """Whether a flush is under way that has to end before a later one is effective."""
        return self.unflushed is not None and bool(self.unflushed.tasks)

    def flush_due(self, now_ms):
        """Whether flush.ms has passed since the last flush, and something is not durable.

        `now_ms` is the clock's `monotonic_ms`.
        """
        return (self.durable_offset() < self.log_end_offset and self.health.offline is None
                and now_ms - self.unflushed.flushed_ms >= self.config.flush_ms)

    def flush(self):
        """Makes everything appended so far durable. Blocks. Raises StorageFailed."""
        task = self.begin_flush(self.flushing)
        if task is not None:
            run_all(self.disk, self.directory, [task])
            self.end_flush(task)

    # End

    def seal(self):
        """Writes what makes the next start fast, if anything changed. Raises StorageFailed."""
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
        """Adds the files of a log that was opened in a thread to the bound on open files."""
        self.open_files = open_files
        if self.chain is not None:
            self.chain.share(open_files)

    def close(self):
        """Flushes, writes what makes the next start fast, and closes all files.

        Raises StorageFailed.
        """
        try:
            if self.health.offline is None:
                self.seal()
                self.flush()
        finally:
            if self.chain is not None:
                self.chain.close()

    def closed(self):
        """What a later start needs to leave this log at rest; None if it has to read the log."""
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
        """Renames the log's directory, the first step of a deletion; durable after `sync_directory`
        of its parent. Writes nothing, since a deletion is to free space on a full disk. Raises
        OSError.
        """
        if self.chain is not None:
            self.chain.forget()
        if self.unflushed is not None:
            self.unflushed.lose_name()
        if self.segment_count or self.disk.exists(self.directory):
            self.disk.rename(self.directory, directory)
        self.directory = directory
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
        self.health.renamed(directory)
        self.health.watch(on_failure, on_refusal)
        self.unflushed.moved(self.log_end_offset, self.chain.active, self.clock.monotonic_ms())
        self._epochs.changed = False
        self.check_offsets()
