"""One partition's log on disk: append, read, find, roll, truncate, flush.

Only the thread of the loop calls it, but for `FlushTask.run`. Everything that is acknowledged went
through `append`, whose write is complete when it returns; what a power cut may take back lies at
`recovery_point` and above.

After a clean stop a log is at rest: its offsets are known (`closed_logs`), its files are read when
something needs them. That is what makes a start with 100,000 partitions a matter of seconds.
"""

from zlib import crc32

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.log import snapshots
from ottla.log import failure, rest, truncation, unflushed
from ottla.log.recovery import rebuild
from ottla.log.index import time_search
from ottla.log.config import LogConfig
from ottla.log.disk cimport File
from ottla.log.open_files cimport OpenFiles
from ottla.log.producers cimport Producers
from ottla.log.segment cimport Segment
from ottla.log.segment import file_name
from ottla.log.index.transaction_index import aborted_in
cimport ottla.wire.batch as fields
from ottla.wire.errors import (
    CorruptMessage, FencedLeaderEpoch, OffsetOutOfRange, StorageFailed,
)

cdef int64_t OFFSET_MAX = 0x7fffffffffffffff


cdef class LogSlice:
    """Contiguous bytes of one segment: batches, the last of which may be cut off."""

    def read(self):
        """The bytes themselves."""
        return self.file.pread(self.size, self.position) if self.size else b""


cdef class PartitionLog:
    """The log of one partition. Make one with `PartitionLog.open`."""

    def __init__(self, disk, clock, str directory, config, OpenFiles open_files,
                 bytes topic_id=None):
        self.disk, self.clock, self.directory, self.topic_id = disk, clock, directory, topic_id
        self.open_files = open_files
        self.at_rest, self.latest_epoch = True, -1
        self.readable_end = OFFSET_MAX
        self.unwritten = []
        self.flushed_ms = clock.now_ms()
        self.configure(config)

    @staticmethod
    def open(disk, clock, directory, config=None, *, open_files=None, topic_id=None,
             recovery_point=0, log_start_offset=0, first_dirty_offset=0, clean=False):
        """Open the log in `directory`, which need not exist, and recover it unless it is `clean`.

        Without a clean stop every segment from `recovery_point` on is checked byte for byte.
        """
        cdef PartitionLog log = PartitionLog(
            disk, clock, directory, config or LogConfig(),
            OpenFiles() if open_files is None else open_files, topic_id)
        log.first_dirty_offset = first_dirty_offset
        rest.load(log, recovery_point, log_start_offset, clean)
        if log.log_end_offset < log_start_offset and log.offline is None:
            # A power cut took the rest of what had been deleted. Its offsets are not used again:
            # the checkpoint would hide what got them once more.
            log.truncate_fully_and_start_at(log_start_offset)
        return log

    @staticmethod
    def rest(disk, clock, directory, config, *, open_files, topic_id, closed):
        """A log of which only what it was when it was closed is known: a `ClosedLog`."""
        cdef PartitionLog log = PartitionLog(
            disk, clock, directory, config, open_files, topic_id)
        rest.begin(log, closed)
        return log

    cdef int awake(self) except -1:
        """Read the files of a log at rest. Raises StorageFailed; a later call tries again."""
        if self.at_rest:
            rest.wake(self)
        return 0

    @property
    def segments(self):
        """The Segments, ascending."""
        self.awake()
        return self._segments

    @property
    def epochs(self):
        """The LeaderEpochs."""
        self.awake()
        return self._epochs

    @property
    def producers(self):
        """The Producers."""
        self.awake()
        return self._producers

    @property
    def segment_count(self):
        """How many segments there are; without records, none and no directory."""
        return self.resting_segments if self.at_rest else len(self._segments)

    def __repr__(self):
        return f"PartitionLog({self.directory}, {self.log_start_offset}..{self.log_end_offset})"

    def configure(self, config):
        """Take over a topic's changed settings."""
        self.config = config
        self.segment_bytes, self.segment_ms = config.segment_bytes, config.segment_ms
        self.flush_messages = config.flush_messages
        if config.compacts:
            # The active segment is never cleaned: it has to end for its records' turn to come.
            self.segment_ms = min(config.segment_ms, config.max_compaction_lag_ms)
        self.index_entries_max = max(1, config.segment_index_bytes // 12)
        # Offsets in indexes are relative, and 32 bits wide.
        self.offset_span_max = 0x7fffffff
        for segment in self._segments or ():
            segment.index_interval = config.index_interval_bytes

    # Append

    cdef int64_t append(self, uint8_t *batch, Py_ssize_t size, int32_t leader_epoch) except -2:
        """Append one validated batch of a client or coordinator and return its base offset.

        The base offset and the leader epoch are set in `batch`. A batch that repeats one of its
        producer's last five returns that one's base offset, and `duplicate` is true.
        Raises StorageFailed, OutOfOrderSequence, InvalidProducerEpoch; the log is as before then.
        """
        cdef int64_t first = self.log_end_offset, repeated
        cdef int64_t last = first + fields.last_offset_delta(batch)
        self.duplicate = False
        if self.at_rest:
            self.awake()
        if self.offline is not None:
            raise StorageFailed(self.offline)
        if fields.producer_id(batch) >= 0:
            repeated = self._producers.check(batch)
            if repeated >= 0:
                self.duplicate = True
                return repeated
        if leader_epoch != self.latest_epoch:
            self.begin_epoch(leader_epoch)
        fields.set_base_offset(batch, first)
        fields.set_leader_epoch(batch, leader_epoch)
        self.write(batch, size, last)
        return first

    cdef int append_as_follower(self, uint8_t *batch, Py_ssize_t size) except -1:
        """Append one batch of the leader's log as it is, with its offset and epoch.

        Raises StorageFailed; OffsetOutOfRange if the batch begins below the end of this log.
        """
        self.duplicate = False
        self.awake()
        if self.offline is not None:
            raise StorageFailed(self.offline)
        # A cleaned log has gaps, so a follower's offsets may jump forward.
        if fields.base_offset(batch) < self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.directory} ends at offset {self.log_end_offset}, the leader's batch begins "
                f"at {fields.base_offset(batch)}")
        if fields.leader_epoch(batch) != self.latest_epoch:
            self.begin_epoch(fields.leader_epoch(batch), fields.base_offset(batch))
        self.write(batch, size, fields.last_offset(batch))
        return 0

    cdef int write(self, const uint8_t *batch, Py_ssize_t size, int64_t last_offset) except -1:
        cdef Segment segment = self.active
        cdef tuple aborted
        try:
            if segment is None or self.must_roll(batch, size, last_offset):
                self.start_segment()
                segment = self.active
            segment.append(batch, size)
        except OSError as error:
            failure.take_back(self, error)
        self.log_end_offset = last_offset + 1
        self.changed = True
        if fields.producer_id(batch) >= 0:
            aborted = self._producers.update(batch, size)
            if aborted is not None:
                failure.note_aborted(self, aborted)
        return 0

    cdef bint must_roll(self, const uint8_t *batch, Py_ssize_t size, int64_t last_offset) except -1:
        cdef Segment segment = self.active
        cdef int64_t waited
        if last_offset - segment.base_offset > self.offset_span_max:
            return True
        if segment.size == 0:
            return False
        if segment.size + size > self.segment_bytes:
            return True
        if not segment.appendable:
            segment.prepare_append()
        if segment.index.count >= self.index_entries_max:
            return True
        # Time passes by the batches' own timestamps: a copy of a log rolls where the first did.
        if segment.first_timestamp >= 0:
            waited = fields.max_timestamp(batch) - segment.first_timestamp
        else:
            waited = self.clock.now_ms() - segment.created_ms
        return waited > self.segment_ms and waited > self.segment_ms - self.jitter()

    def fail(self, reason):
        """Take the log offline for good: reads go on, nothing is written until a restart."""
        if self.offline is None:
            self.offline = f"{self.directory} is offline: {reason}"
            if self.on_failure is not None:
                self.on_failure(reason)

    def append_bytes(self, batch, leader_epoch):
        """Append one validated batch and return its base offset; the argument is not changed."""
        cdef bytearray copy = bytearray(batch)
        cdef uint8_t[::1] view = self.checked(copy)
        return self.append(&view[0], view.shape[0], leader_epoch)

    def append_bytes_as_follower(self, batch):
        """Append one batch of the leader's log as it is."""
        cdef bytearray copy = bytearray(batch)
        cdef uint8_t[::1] view = self.checked(copy)
        self.append_as_follower(&view[0], view.shape[0])

    cdef checked(self, bytearray batch):
        cdef const uint8_t[::1] view = batch
        if view.shape[0] < fields.HEADER_SIZE or fields.total_size(&view[0]) != view.shape[0]:
            raise CorruptMessage(f"{len(batch)} bytes are not one record batch")
        return batch

    # Segments

    def jitter(self):
        """How many ms early the active segment rolls, so that not all partitions roll at once."""
        if not self.config.segment_jitter_ms:
            return 0
        span = min(self.config.segment_jitter_ms, self.segment_ms)
        return crc32(f"{self.directory} {self.active.base_offset}".encode()) % (span + 1)

    def roll(self):
        """End the active segment, if it has records, and begin the next. Raises StorageFailed."""
        self.awake()
        if self.offline is not None:
            raise StorageFailed(self.offline)
        if self.active is None or not self.active.size:
            return
        try:
            self.start_segment()
        except OSError as error:
            failure.refuse(self, "a segment could not be begun", error)

    def start_segment(self):
        """Begin a segment at the log's end; the one before it is sealed. Raises OSError."""
        cdef Segment segment
        if self.active is None:
            self.make_directory()
        elif self.active.size:
            failure.write_aborted(self)
            self.active.seal()
            self.trim()
            self.write_snapshot()
        segment = Segment(
            self.disk, self.open_files, self.directory, self.log_end_offset,
            created_ms=self.clock.now_ms(), index_interval=self.config.index_interval_bytes)
        segment.prepare_append()
        if self.config.preallocate:
            segment.reserve(self.segment_bytes)
        if self.active is not None and not self.active.size:
            # Nothing was written at the old base, and the new segment takes over.
            truncation.remove_files(self, self._segments.pop())
        elif self.active is not None and self.active not in self.unsynced:
            self.unsynced.append(self.active)
        self._segments.append(segment)
        self.active, self.changed = segment, True
        self.unsynced_directories.add(self.directory)

    def trim(self):
        """Give the room back that was reserved behind the active segment's last batch."""
        if self.config.preallocate or self.active.reserved:
            self.active.trim()

    def make_directory(self):
        """Make the partition's directory and say in it whose it is."""
        self.disk.makedirs(self.directory)
        self.unsynced_directories.update((self.directory, self.directory.rpartition("/")[0] or "."))
        if self.topic_id is not None:
            # The flush that makes the first record durable takes this along.
            path = f"{self.directory}/partition.metadata"
            self.disk.write_and_rename(path, rebuild.partition_metadata(self.topic_id))
            self.unsynced_files.append(path)

    @property
    def size_bytes(self):
        """Bytes of all segments' batches."""
        if self.at_rest:
            return self.resting_bytes
        return sum([segment.size for segment in self._segments])

    # Read

    cdef Py_ssize_t segment_number(self, int64_t offset) except -2:
        """Which segment an offset lies in: the last whose base is not above it, -1 if none."""
        cdef Py_ssize_t low = -1, high = len(self._segments), middle
        if self.active is not None and offset >= self.active.base_offset:
            return high - 1
        while high - low > 1:
            middle = (low + high) >> 1
            if (<Segment>self._segments[middle]).base_offset <= offset:
                low = middle
            else:
                high = middle
        return low

    cdef LogSlice read(self, int64_t offset, Py_ssize_t size_max, bint at_least_one,
                       int64_t upto_offset):
        """Up to `size_max` bytes of one segment, from the batch with `offset`, below `upto_offset`.

        The first batch is whole: with `at_least_one` however large it is, else if it fits.
        Raises OffsetOutOfRange; StorageFailed behind damage that was found while the log was open.
        """
        cdef LogSlice slice = LogSlice.__new__(LogSlice)
        cdef Segment segment
        cdef Py_ssize_t number, batch_size = 0
        cdef int64_t start = 0, end, room
        if offset < self.log_start_offset or offset > self.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is not in {self.directory}, which has "
                f"{self.log_start_offset} to {self.log_end_offset}")
        slice.first_offset = offset
        if upto_offset > self.log_end_offset:
            upto_offset = self.log_end_offset
        if upto_offset > self.readable_end:
            if offset >= self.readable_end:
                raise StorageFailed(self.offline)
            upto_offset = self.readable_end
        if offset >= upto_offset or (size_max <= 0 and not at_least_one):
            return slice
        if self.at_rest:
            self.awake()
        number = max(self.segment_number(offset), 0)
        while True:
            segment = self._segments[number]
            start = segment.position_for(offset, &batch_size, size_max)
            if batch_size or number + 1 == len(self._segments):
                break
            number += 1
        if not batch_size:
            return slice
        # The position of upto_offset has to be looked up only where it may lie within reach.
        if upto_offset >= segment.end_offset:
            end = segment.size
        else:
            end = segment.bound_for(upto_offset)
        room = end - start
        if room <= 0:
            return slice
        if size_max < batch_size:
            # Half a first batch helps nobody: it is sent whole or not at all (KIP-74).
            if not at_least_one:
                return slice
            size_max = batch_size
        slice.size = min(room, <int64_t>size_max)
        slice.ends_segment = slice.size == room and number + 1 < len(self._segments)
        slice.position = start
        slice.file = segment.opened()
        return slice

    def slice(self, offset, size_max, upto=None, at_least_one=True):
        """What `read` returns, for Python."""
        return self.read(offset, size_max, at_least_one, OFFSET_MAX if upto is None else upto)

    def read_bytes(self, offset, size_max, upto=None):
        """Batches from the one with `offset` on, the first one whole. Raises OffsetOutOfRange."""
        cdef LogSlice found = self.read(
            offset, size_max, True, OFFSET_MAX if upto is None else upto)
        return found.read()

    # Find

    def offset_for_timestamp(self, timestamp_ms):
        """The first record not older than this: (offset, timestamp, leader epoch), None without."""
        return time_search.first_at(self, timestamp_ms)

    def offset_of_max_timestamp(self, upto=None):
        """The newest record below `upto`: (offset, timestamp, leader epoch), None without."""
        return time_search.newest(self, self.log_end_offset if upto is None else upto)

    def leader_epoch_for_offset(self, offset):
        """The leader epoch in which the record of an offset was written, -1 if that is unknown."""
        if self.at_rest and offset >= self.log_end_offset:
            return self.latest_epoch
        return self.epochs.of_offset(offset)

    def end_offset_for_epoch(self, epoch):
        """The largest known epoch up to `epoch` and its end, (-1, -1) if unknown (KIP-279)."""
        if self.at_rest and epoch == self.latest_epoch >= 0:
            return epoch, self.log_end_offset
        return self.epochs.end_offset(epoch, self.log_end_offset)

    def assign_epoch_start(self, epoch):
        """Let a leader epoch begin at the log's end. Has to come before its first append."""
        self.begin_epoch(epoch)

    cdef int begin_epoch(self, int32_t epoch, int64_t start_offset=-1) except -1:
        if epoch < self.latest_epoch:
            raise FencedLeaderEpoch(
                f"{self.directory} has leader epoch {self.latest_epoch}, {epoch} is over")
        if self.at_rest:                # `awake` tells the epochs, and the end stays till then
            self.latest_epoch = epoch
            return 0
        self._epochs.assign(epoch, self.log_end_offset if start_offset < 0 else start_offset)
        self.latest_epoch = self._epochs.latest
        return 0

    # Transactions

    @property
    def last_stable_offset(self):
        """The first offset of an open transaction; the log's end without one."""
        cdef int64_t first = -1 if self.at_rest else self._producers.first_open()
        return self.log_end_offset if first < 0 else first

    cpdef int64_t stable_offset(self, int64_t high_watermark) except -1:
        """Up to where committed records may be read, given how far the log is replicated."""
        # A log with an open transaction is not left at rest.
        cdef int64_t first = -1 if self.at_rest else (
            self._producers.first_unstable(high_watermark))
        if first < 0 or first >= high_watermark:
            return high_watermark
        return max(first, self.log_start_offset)        # DeleteRecords may pass an open transaction

    def active_producers(self):
        """The state of every producer that is known."""
        return self.producers.values()

    def aborted_transactions(self, from_offset, to_offset):
        """The aborted transactions which have records in this range of offsets."""
        self.awake()
        first = max(self.segment_number(from_offset), 0)
        return aborted_in(self._segments[first:], from_offset, to_offset, self.unwritten)

    def remove_expired_producers(self):
        """Forget producers that wrote nothing for producer.id.expiration.ms."""
        if self.at_rest:
            return 0
        return self._producers.remove_expired(
            self.clock.now_ms(), self.config.producer_id_expiration_ms)

    def write_snapshot(self):
        """Write what is known of the producers at the log's end. Raises OSError."""
        path = f"{self.directory}/{file_name(self.log_end_offset, '.snapshot')}"
        data = snapshots.encode(self._producers)
        file = self.disk.open(path, create=True)
        file.pwrite(data, 0)
        file.truncate(len(data))
        file.close()
        self.snapshots[self.log_end_offset] = None

    # Cut

    def truncate_to(self, offset):
        """Remove the batch that contains `offset` and all behind it, as a follower has to.

        Raises StorageFailed, and the log is offline then.
        """
        self.awake()
        truncation.truncate(self, offset)

    def truncate_fully_and_start_at(self, offset):
        """Throw everything away and begin anew, empty, at `offset`. Raises StorageFailed."""
        self.awake()
        truncation.start_anew(self, offset)

    def remove_segment(self, segment):
        """Take away a segment below the log start; paths for any thread to unlink, later."""
        self.awake()
        return truncation.remove_segment(self, segment)

    def replace_segments(self, sources, cleaned):
        """Put a cleaned segment in the place of `sources`; paths for any thread to unlink, later.

        The cleaned files have to be on the medium. Raises StorageFailed, the log is offline then.
        """
        self.awake()
        return truncation.replace_segments(self, sources, cleaned)

    def remove_below_start(self):
        """Take away every segment below the log start; paths for any thread to unlink, later."""
        self.awake()
        return truncation.remove_below_start(self)

    def apply_retention(self, high_watermark):
        """Take away what time, size and the log start say; paths for any thread to unlink, later.

        Raises StorageFailed.
        """
        if self.at_rest and not rest.retention_may_be_due(self):
            return []
        self.awake()
        return truncation.apply_retention(self, high_watermark)

    def delete_before(self, offset):
        """Raise the log start offset; returns the segments that are wholly below it now."""
        self.awake()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            if offset < self.log_start_offset:
                return []
            raise OffsetOutOfRange(
                f"{self.directory} ends at {self.log_end_offset}, below the new start {offset}")
        self.log_start_offset = offset
        self._epochs.truncate_from_start(offset)
        return [segment for segment in self._segments[:-1] if segment.end_offset <= offset]

    # Flush

    def begin_flush(self, by_file_system=False):
        """What to sync so that all that is appended by now is durable; None if nothing is.

        `by_file_system`: it is for many logs, so that no file of any is opened (`flush.run_all`).
        """
        return unflushed.begin(self, by_file_system)

    def end_flush(self, task):
        """Move the recovery point after `task.run()`. Raises StorageFailed if that failed."""
        if task not in self.flushes:
            return                      # it was moved, and all of it made durable in its new place
        self.flushes.remove(task)
        if task.error is not None:
            self.fail(f"a flush failed: {task.error}")
        if self.offline is not None:
            raise StorageFailed(self.offline)
        self.recovery_point = max(self.recovery_point, task.offset)
        if task.refused is None:
            self.checkpoint_offset = self.recovery_point
        else:
            # The batches are safe. That their epochs had no room only makes a recovery longer.
            self.epochs.changed = True
        self.flushed_ms = self.clock.now_ms()

    def flush_due(self, now_ms):
        """Whether flush.ms has passed since the last flush, and something is not on the medium."""
        return (self.recovery_point < self.log_end_offset and self.offline is None
                and now_ms - self.flushed_ms >= self.config.flush_ms)

    def flush(self):
        """Return once all that is appended by now is durable. Blocks. Raises StorageFailed."""
        task = self.begin_flush()
        if task is not None:
            task.run()
            self.end_flush(task)

    # End

    def seal(self):
        """Write what makes the next start fast, if anything changed. Raises StorageFailed."""
        rest.seal(self)

    def share(self, OpenFiles open_files):
        """Let the files of a log that was opened in a thread be bounded with those of others."""
        cdef Segment segment
        self.open_files = open_files
        for segment in self._segments or ():
            segment.share(open_files)

    def close(self):
        """Flush, write what makes the next start fast, and let go of all files.

        Raises StorageFailed.
        """
        try:
            if self.offline is None:
                self.seal()
                self.flush()
        finally:
            for segment in self._segments or ():
                segment.close()

    def closed(self):
        """What a later start has to know to leave this log at rest; None where it has to look."""
        return rest.closed(self)

    def move_to(self, directory):
        """Rename the log's directory, as a deletion does first; durable after `sync_directory` of
        the one that it is in. Nothing is written: a full disk is to get room by it. Raises OSError.
        """
        for segment in self._segments or ():
            segment.forget()
        if self.segment_count or self.disk.exists(self.directory):
            self.disk.rename(self.directory, directory)
        self.directory = directory
        for segment in self._segments or ():
            segment.directory = directory
