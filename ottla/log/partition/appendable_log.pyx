"""One partition's log as writers see it: append, roll, flush. Its end moves forward only.

`append` and `append_run` return once the records are written; only then may the records be
acknowledged. A power cut can lose only records from `recovery_point` on. Only the event loop's
thread may call a log; `FlushTask.run` may run in any thread.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.log.files.disk import is_passing
from ottla.log.files.flush import run_all
from ottla.log.files.names import COPIED_GAPS, PARTITION_METADATA, partition_metadata
from ottla.log.files.producers cimport Producers
from ottla.log.partition.chain cimport SegmentChain
from ottla.log.partition.follower_batches cimport checked_batches, run_in_segment
from ottla.log.partition.readable_log cimport ReadableLog
from ottla.log.partition.segment cimport Segment
cimport ottla.wire.batch as fields
from ottla.wire.errors import CorruptMessage, OffsetOutOfRange, StorageFailed


cdef bint has_gaps(const uint8_t *data, Py_ssize_t size, int64_t offset) noexcept:
    """Whether offsets from `offset` on are missing in these batches, because the leader's log was
    compacted."""
    cdef const uint8_t *end = data + size
    while data < end:
        if fields.base_offset(data) > offset:
            return True
        offset = fields.last_offset(data) + 1
        data += fields.total_size(data)
    return False


cdef class AppendableLog(ReadableLog):
    """A log that grows. `PartitionLog` adds everything that removes records."""

    def assign_epoch_start(self, epoch):
        """Begins a leader epoch at the log's end. Must be called before the epoch's first append.
        """
        self.begin_epoch(epoch)

    # Append

    cdef int64_t append(self, uint8_t *batch, Py_ssize_t size, int32_t leader_epoch) except -2:
        """Append one validated batch of a client or coordinator and return its base offset.

        The base offset and the leader epoch are set in `batch`. If `batch` repeats one of its
        producer's last five batches, the base offset of the first copy is returned and `duplicate`
        is set.
        Raises StorageFailed and the errors of `Producers.check`; the log is then unchanged.
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

    def note_refused(self, const uint8_t[::1] batch):
        """Notes a batch that was refused because the log is offline. Only the placeholder of a log
        that could not be opened keeps the note, for `take_refused`."""
        if self.at_rest is not None and not self.at_rest.segments:
            if self._producers is None:
                self._producers = Producers()
            self._producers.note_unwritten(&batch[0])

    def take_refused(self, AppendableLog placeholder):
        """Takes over the notes of the placeholder that this log replaces. Otherwise, if the log
        does not know a producer, it would accept the later one of two batches that were sent
        together as the producer's first, and then refuse the earlier one. Raises StorageFailed,
        CorruptMessage."""
        if placeholder._producers is None:
            return
        if self.health.offline is not None:
            self._producers = placeholder._producers        # the log could not be opened again
            return
        self.wake()
        self._producers.take_unwritten(placeholder._producers)

    cdef int append_run(self, const uint8_t *data, Py_ssize_t size) except -1:
        """Append whole batches of the leader's log unchanged, with one write per segment.

        `checked_batches` has checked them. Raises StorageFailed if a write fails; the log then
        keeps the batches of the earlier writes. Raises OffsetOutOfRange if the first batch begins
        below the end of this log.
        """
        cdef Py_ssize_t taken, entries = 0
        self.duplicate = False
        self.wake()
        self.health.check()
        if fields.base_offset(data) < self.log_end_offset:
            raise OffsetOutOfRange(
                f"the next offset of {self.directory} is {self.log_end_offset}, but the leader's "
                f"batch begins at the lower offset {fields.base_offset(data)}")
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

    cdef int note_gaps(self, const uint8_t *data, Py_ssize_t size) except -1:
        """If the leader's compaction has left gaps in the offsets of these batches, notes this in
        memory and on the disk. Called before the batches are appended. Raises OSError.

        Without the note, a gap at the beginning of a segment would look like damage as soon as the
        topic is no longer compacted.
        """
        if self.copied_gaps or not has_gaps(data, size, self.log_end_offset):
            return 0
        path = f"{self.directory}/{COPIED_GAPS}"
        self.disk.write_and_rename(path, b"copied from a log that was compacted\n")
        self.unflushed.note_file(path)      # becomes durable with the batches
        self.unflushed.note_directory(self.directory)
        self.copied_gaps = True
        return 0

    cdef int note_run(self, const uint8_t *data, Py_ssize_t size) except -1:
        """Note batches that were written: their epochs, the log's end, their producers."""
        cdef const uint8_t *batch = data
        cdef tuple aborted
        while batch < data + size:
            if fields.leader_epoch(batch) != self.latest_epoch:
                self.begin_epoch(fields.leader_epoch(batch), fields.base_offset(batch))
            assert fields.base_offset(batch) >= self.log_end_offset, "offsets overlap"
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
        """Indexes the transaction that the last batch, a marker, has aborted."""
        try:
            self.chain.note_aborted(aborted)
        except OSError as error:
            if not is_passing(error):
                self.health.fail_with("the transaction index could not be written", error)

    def fail(self, reason):
        """Takes the log offline: reads continue, nothing is written until a restart."""
        self.health.fail(reason)

    def end_before(self, damage):
        """Notes that a segment is damaged: writes are refused, and reads end before the fault."""
        self.health.end_before(self.disk, damage)

    def append_bytes(self, batch, leader_epoch):
        """Append one validated batch and return its base offset; the argument is not modified."""
        cdef bytearray copy = bytearray(batch)
        cdef uint8_t[::1] view = self.checked(copy)
        return self.append(&view[0], view.shape[0], leader_epoch)

    def append_run_bytes(self, const uint8_t[::1] data, int32_t leader_epoch):
        """Append the whole batches at the start of `data`, as a follower does; returns their size
        in bytes. Raises CorruptMessage, StorageFailed."""
        cdef Py_ssize_t size = checked_batches(
            &data[0], data.shape[0], self.log_end_offset, self.latest_epoch, leader_epoch, False)
        if size:
            self.append_run(&data[0], size)
        return size

    cdef checked(self, bytearray batch):
        cdef const uint8_t[::1] view = batch
        if view.shape[0] < fields.HEADER_SIZE or fields.total_size(&view[0]) != view.shape[0]:
            raise CorruptMessage(
                f"the data must be exactly one record batch, but these {len(batch)} bytes are not")
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

        `discards` means that the previous segment is about to be deleted. It is then no error if a
        full disk does not accept the rest of its indexes. If the disk has no space for a producer
        snapshot either, a broker that is killed loses the state of the producers.
        """
        cdef Segment ended = self.chain.active
        if ended is None:
            self.make_directory()
        else:
            try:
                self.chain.seal_active()
                self.write_snapshot()
            except OSError as error:
                if not (discards and is_passing(error)):
                    raise
                self.replace_snapshots()
        assert ended is None or ended.end_offset == self.log_end_offset
        # Also if the segment cannot begin: the next flush then makes the removal of its empty file
        # durable.
        self.unflushed.note_directory(self.directory)
        self.chain.begin(self.log_end_offset)
        if ended is not None:
            self.unflushed.note_sealed(ended)
        self.changed = True
        return 0

    cdef int make_directory(self) except -1:
        """Creates the partition's directory and the file with its topic id."""
        self.disk.makedirs(self.directory)
        self.unflushed.note_names(self.directory)
        if self.topic_id is not None:
            # The flush that makes the first record durable syncs this file too.
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
        # Compaction may drop a flushed marker. If a power cut lost this snapshot, recovery would
        # use an older one, in which the marker's transaction is still open.
        self.unflushed.note_file(path)

    cdef int replace_snapshots(self) except -1:
        """Replaces the older snapshots by a new one, if there is space for it.

        The old snapshots are removed in any case. The records after them are about to be deleted,
        so recovery could not bring their states up to date. A missing producer is better than one
        with an outdated state.
        """
        for path in self.snapshots.take_up_to(self.directory, self.log_end_offset):
            self.disk.unlink(path)
        try:
            self.write_snapshot()
        except OSError as error:
            if not is_passing(error):
                raise

    cdef bint has_sealed(self) noexcept:
        """Whether a sealed segment is not durable yet."""
        return self.unflushed is not None and len(self.unflushed.sealed) > 0

    # Flush

    def begin_flush(self, by_file_system=False):
        """A task that makes everything appended so far durable; None if there is nothing to do.

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
        """Moves the recovery point after `task.run()`. Raises StorageFailed if the task failed or
        the log is offline."""
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
        """Whether a flush is in progress. A flush that begins now takes effect only after those in
        progress have ended, unless it syncs the whole file system."""
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
