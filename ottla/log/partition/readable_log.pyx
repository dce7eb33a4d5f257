"""One partition's log as readers see it: its offsets, its segments and their contents.

A caller that can wait for a thread passes `patient=True`. RebuildNeeded is then raised in two
cases: if an index must be rebuilt first (`index_rebuilds`); or if the files of a log at rest take
long to read (`reread`).

After a clean stop a log is at rest: its offsets are known (`closed_logs`), and its files are read
when they are needed. This makes a start with 100,000 partitions a matter of seconds.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.log.files.index_file import RebuildNeeded
from ottla.log.files.names import PARTITION_METADATA
from ottla.log.files.open_files cimport OpenFiles
from ottla.log.files.snapshots import SnapshotFiles
from ottla.log.files.transaction_index import ENTRY, TransactionIndex
from ottla.log.partition import derived_state, loading, time_search
from ottla.log.partition.aborted_transactions import aborted_in, trusted
from ottla.log.partition.chain cimport LogSlice, SegmentChain
from ottla.log.partition.damage import changed_at_rest
from ottla.log.partition.health cimport LogHealth
from ottla.log.partition.reread import Reread
from ottla.log.partition.rest_state cimport RestState
from ottla.log.partition.segment cimport Segment
from ottla.log.partition.unflushed cimport Unflushed
cimport ottla.wire.batch as fields
from ottla.wire.errors import CorruptMessage, FencedLeaderEpoch, OffsetOutOfRange, StorageFailed

cdef int64_t OFFSET_MAX = 0x7fffffffffffffff


cdef class ReadableLog:
    """A log's state and all queries. Subclasses add the methods that change a log."""

    def __init__(self, disk, clock, str directory, config, OpenFiles open_files,
                 bytes topic_id=None):
        self.disk, self.clock, self.directory, self.topic_id = disk, clock, directory, topic_id
        self.open_files, self.latest_epoch = open_files, -1
        self.health, self.at_rest = LogHealth(directory), RestState()
        self.configure(config)

    cpdef int wake(self, bint patient=False) except -1:
        """Reads the files of a log at rest. Raises StorageFailed, and RebuildNeeded if the caller
        is `patient`; a later call tries again."""
        cdef int64_t end = self.log_end_offset
        cdef int32_t epoch = self.latest_epoch
        cdef int64_t aborted_bytes, start = self.log_start_offset
        if self.at_rest is None:
            return 0
        aborted_bytes = self.at_rest.aborted_bytes
        self.health.check()
        if self.reread is not None and not self.reread.over:
            if patient:
                raise RebuildNeeded(self.reread)
            self.reread.run()
        try:
            self.load(loading.LogCheckpoint(
                end, start, self.first_dirty_offset, end if self.at_rest.segments else 0,
                self.expected_aborted), True, patient)
            if aborted_bytes != -1 and aborted_bytes != self.chain.aborted_found():
                # entries are missing: an index was lost or truncated, before or after the stop
                self.chain.distrust_aborted()
        except RebuildNeeded as needed:
            if isinstance(needed.rebuild, Reread):
                self.reread = needed.rebuild
            raise
        except OSError as error:
            self.health.cannot_open(error, self.log_start_offset)
            raise StorageFailed(f"{self.directory} could not be opened: {error}") from error
        damage = changed_at_rest(self.directory, self.chain.segments, start, end)
        if damage is not None and self.health.damage is None:
            # Clients know the log's former offsets: new records must not get the same offsets.
            self.health.note_damage(damage)
        elif epoch > self.latest_epoch:
            self.begin_epoch(epoch)
        return 0

    cdef bint appends_at_once(self) noexcept:
        """Whether an append needs no other disk access before its write."""
        cdef Segment active
        if self.at_rest is not None:
            return False
        active = self.chain.active
        return active is None or active.appendable or active.size == 0

    def prepare_append(self, bint patient=False):
        """Opens the files and reads the state that appends need. Raises StorageFailed, OSError, and
        RebuildNeeded if the caller is `patient`."""
        self.wake(patient)
        if not self.appends_at_once():
            self.chain.active.prepare_append(patient)

    cdef int load(self, checkpoint, bint clean, bint patient) except -1:
        """Loads the log from its files, and recovers it unless the last stop was `clean`."""
        reread, self.reread = self.reread, None
        loaded = loading.load(
            self.disk, self.clock, self.directory, self.config, self.open_files, checkpoint, clean,
            reread if reread is not None and reread.error is None else None, patient)
        self.chain = SegmentChain(
            self.disk, self.clock, self.open_files, self.directory, self.config, loaded.segments)
        self.unflushed = Unflushed(
            loaded.recovery_point, loaded.has_epochs_file, self.clock.monotonic_ms(),
            loaded.rebuilt)
        if loaded.recovery_point < loaded.log_end_offset or (
                not clean and self.chain.active is not None and not self.chain.active.size):
            # Three things may not be durable: the name of the active segment, the name of its
            # directory, and the topic id in the directory. So the next flush must sync them, too.
            self.unflushed.note_names(self.directory)
            path = f"{self.directory}/{PARTITION_METADATA}"
            if self.disk.exists(path):
                self.unflushed.note_file(path)
        self._epochs, self._producers = loaded.epochs, loaded.producers
        self.snapshots = SnapshotFiles(self.disk, loaded.snapshots)
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset, self.copied_gaps = loaded.log_end_offset, loaded.copied_gaps
        self.latest_epoch = self._epochs.latest
        self.health.note_damage(loaded.damage)
        # Files that recovery rebuilt are not durable yet.
        self.changed = loaded.recovery_point < self.log_end_offset
        self.at_rest = None
        return self.check_offsets()

    cdef int check_offsets(self) except -1:
        """Asserts the order of the log's offsets; called after every change to one of them."""
        assert 0 <= self.log_start_offset <= self.log_end_offset
        assert self.chain.active is None or self.chain.active.end_offset == self.log_end_offset
        assert self.latest_epoch == self._epochs.latest
        if self.health.damage is None:  # a damaged log keeps its recovery point
            assert self.unflushed.checkpoint_offset <= self.unflushed.recovery_point
            assert self.unflushed.recovery_point <= self.log_end_offset
        return 0

    @property
    def segments(self):
        """The Segments, ascending."""
        self.wake()
        return self.chain.segments

    @property
    def epochs(self):
        """The LeaderEpochs."""
        self.wake()
        return self._epochs

    @property
    def producers(self):
        """The Producers."""
        self.wake()
        return self._producers

    @property
    def segment_count(self):
        """How many segments there are; a log that never had records has none, and no directory."""
        return len(self.chain.segments) if self.at_rest is None else self.at_rest.segments

    @property
    def size_bytes(self):
        """Bytes of all segments' batches."""
        return self.chain.size_bytes() if self.at_rest is None else self.at_rest.size_bytes

    @property
    def offline(self):
        """Why the log accepts no writes; None if it accepts them."""
        return self.health.offline

    @property
    def damage(self):
        """The Damage that stops writes, or None."""
        return self.health.damage

    @property
    def put_aside(self):
        """The Damage that recovery has cut off the log, or None. The rest of the log is sound."""
        return self.health.put_aside

    @property
    def readable(self):
        """Whether the log can be read, at least up to damage; false if its directory has failed."""
        return self.health.offline is None or self.health.damage is not None

    def readable_own_end(self):
        """(leader epoch, end offset) of the log's readable part, which ends before damage."""
        cdef int64_t end = min(self.log_end_offset, self.health.readable_end)
        return self.leader_epoch_for_offset(end - 1), end

    @property
    def recovery_point(self):
        """The offset below which all batches are durable."""
        return self.durable_offset()

    @property
    def checkpoint_offset(self):
        """The offset below which all batches and their leader epochs are durable: recovery may
        begin there."""
        return self.log_end_offset if self.unflushed is None else self.unflushed.checkpoint_offset

    cdef int64_t durable_offset(self) noexcept:
        # A log at rest is durable as a whole.
        return self.log_end_offset if self.unflushed is None else self.unflushed.recovery_point

    def __repr__(self):
        return f"PartitionLog({self.directory}, {self.log_start_offset}..{self.log_end_offset})"

    def retention_may_be_due(self):
        """Whether something may be due for deletion; this check opens no log at rest."""
        return self.at_rest is None or self.at_rest.retention_may_be_due(
            self.config, self.clock.now_ms())

    def configure(self, config):
        """Applies a topic's changed settings."""
        self.config = config
        self.flush_messages = config.flush_messages
        if self.chain is not None:
            self.chain.configure(config)

    # Read

    cdef LogSlice read(self, int64_t offset, Py_ssize_t size_max, bint at_least_one,
                       int64_t upto_offset, bint patient):
        """Up to `size_max` bytes of one segment: batches from `offset` on, up to `upto_offset`.

        The first batch is always complete; if it has more than `size_max` bytes, it is returned
        only with `at_least_one`. Raises OffsetOutOfRange; StorageFailed if damage that is already
        known begins at or before `offset`; CorruptMessage if this read finds missing or damaged
        batches.
        """
        cdef LogSlice slice = LogSlice.__new__(LogSlice)
        cdef int64_t readable_end
        if self.at_rest is not None and offset < self.log_end_offset:
            self.wake(patient)
        readable_end = self.health.readable_end
        if offset < self.log_start_offset or offset > self.log_end_offset:
            if self.health.damage is not None and offset >= readable_end:
                raise StorageFailed(self.health.offline)    # the damage may hide this offset
            raise OffsetOutOfRange(
                f"offset {offset} is not in {self.directory}, which begins at offset "
                f"{self.log_start_offset} and ends at {self.log_end_offset}")
        slice.first_offset = offset
        if upto_offset > self.log_end_offset:
            upto_offset = self.log_end_offset
        if upto_offset > readable_end:
            if offset >= readable_end:
                raise StorageFailed(self.health.offline)
            upto_offset = readable_end
        if offset >= upto_offset or (size_max <= 0 and not at_least_one):
            return slice
        if (self.chain.read(slice, size_max, at_least_one, upto_offset, patient)
                and offset >= self.first_dirty_offset
                and not (self.copied_gaps or self.config.compacts)):
            raise CorruptMessage(
                f"{self.directory} lacks offset {offset}: batches are missing or damaged")
        return slice

    def slice(self, offset, size_max, upto=None, at_least_one=True, bint patient=False):
        """The result of `read`, for Python."""
        return self.read(
            offset, size_max, at_least_one, OFFSET_MAX if upto is None else upto, patient)

    def read_bytes(self, offset, size_max, upto=None, bint patient=False):
        """The bytes of batches from the one with `offset` on; at least the first batch is complete.
        Raises OffsetOutOfRange."""
        cdef LogSlice found = self.read(
            offset, size_max, True, OFFSET_MAX if upto is None else upto, patient)
        return found.read()

    # Find

    def offset_for_timestamp(self, timestamp_ms, bint patient=False):
        """The first record with at least this timestamp: (offset, timestamp, leader epoch), or
        None."""
        return time_search.at_once(self.timestamp_steps(timestamp_ms, patient))

    def offset_of_max_timestamp(self, upto=None, bint patient=False):
        """The newest record below `upto`: (offset, timestamp, leader epoch), or None."""
        return time_search.at_once(
            self.newest_steps(self.log_end_offset if upto is None else upto, patient))

    def timestamp_steps(self, timestamp_ms, bint patient=False):
        """The same as `offset_for_timestamp`, as a search in steps (`time_search`)."""
        self.wake(patient)
        return time_search.first_at(
            self.chain.segments, self.log_start_offset, self.log_end_offset, timestamp_ms, patient)

    def newest_steps(self, upto, bint patient=False):
        """The same as `offset_of_max_timestamp`, as a search in steps."""
        self.wake(patient)
        return time_search.newest(self.chain.segments, self.log_start_offset, upto, patient)

    def leader_epoch_for_offset(self, offset, bint patient=False):
        """The leader epoch in which the record of an offset was written, -1 if that is unknown."""
        if self.at_rest is not None and offset >= self.log_end_offset:
            return self.latest_epoch
        self.wake(patient)
        return self._epochs.of_offset(offset)

    def end_offset_for_epoch(self, epoch, bint patient=False):
        """The largest known epoch up to `epoch`, and its end; (-1, -1) if unknown (KIP-279)."""
        if self.at_rest is not None and epoch == self.latest_epoch >= 0:
            return epoch, self.log_end_offset
        self.wake(patient)
        return self._epochs.end_offset(epoch, self.log_end_offset)

    cdef int begin_epoch(self, int32_t epoch, int64_t start_offset=-1) except -1:
        if epoch < self.latest_epoch:
            raise FencedLeaderEpoch(
                f"{self.directory} has leader epoch {self.latest_epoch}, so epoch {epoch} is too "
                "old")
        if self.at_rest is not None:    # `wake` loads the epochs and then begins this one
            self.latest_epoch = epoch
            return 0
        self._epochs.assign(epoch, self.log_end_offset if start_offset < 0 else start_offset)
        assert self._epochs.latest >= self.latest_epoch, "the leader epoch fell"
        self.latest_epoch = self._epochs.latest
        return 0

    # Transactions

    @property
    def last_stable_offset(self):
        """The first offset of the oldest open transaction; the log's end if there is none."""
        cdef int64_t first = (
            self._producers.first_open() if self.at_rest is None else self.at_rest.first_open)
        return self.log_end_offset if first < 0 else first

    cpdef int64_t stable_offset(self, int64_t high_watermark) except -1:
        """The last stable offset, up to which read_committed consumers may read."""
        cdef int64_t first = (
            self._producers.first_unstable(high_watermark) if self.at_rest is None
            else self.at_rest.first_open)
        if first < 0 or first >= high_watermark:
            return high_watermark
        return max(first, self.log_start_offset)    # DeleteRecords may delete an open transaction

    cdef int64_t forgotten_ms(self) except? -1:
        """A time in ms: producers that have written nothing since then are forgotten."""
        return self.clock.now_ms() - self.config.producer_id_expiration_ms

    def active_producers(self, bint patient=False):
        """The state of every known producer."""
        self.wake(patient)
        return self._producers.values()

    def aborted_transactions(self, from_offset, to_offset, bint patient=False):
        """The aborted transactions which have records in this range of offsets."""
        self.wake(patient)
        first = max(self.chain.number_of(from_offset), 0)
        return aborted_in(self, self.chain.segments[first:], from_offset, to_offset, patient)

    def aborted_sizes(self):
        """Sizes of the transaction indexes that recovery would not rebuild, by base offset of their
        segments (`aborted_sizes`); None for a log at rest."""
        return None if self.at_rest is not None else self.chain.aborted_sizes(
            self.unflushed.checkpoint_offset)

    def waiting_aborted(self, Segment segment not None):
        """The aborted transactions of a segment that are not yet in its transaction index, because
        the disk was full."""
        return self.chain.waiting(segment)

    def producers_before(self, Segment segment not None):
        """Returns what a thread needs to compute the producers before a segment: the producers of
        the newest snapshot, the snapshot's offset, and scans of the later batches. Raises OSError.
        """
        before = self.chain.segments[:self.chain.segments.index(segment)]
        producers, known = derived_state.newest_snapshot(
            self.disk, self.directory,
            [at for at in self.snapshots.offsets if at <= segment.base_offset], before,
            self.forgotten_ms())
        return producers, known, derived_state.scans_from(known, before)

    def adopt_aborted(self, Segment segment not None, list entries, bint grown):
        """Uses a transaction index that was put in place. `grown` says that its last entries may
        not be durable yet."""
        self.chain.forget_waiting(segment)
        segment.aborted.placed(len(entries) * ENTRY.size, trusted(entries), grown)

    def remake_aborted(self, Segment segment not None, bint patient=False):
        """Rebuilds a segment's transaction index from the batches, and returns its entries.

        Raises RebuildNeeded if the caller is `patient`; OSError; CorruptMessage if the batches are
        damaged.
        """
        cdef list entries = []
        if self.open_files.rebuilds is not None:
            return self.open_files.rebuilds.renew(segment, patient, self)
        before = self.chain.segments[:self.chain.segments.index(segment)]
        producers = derived_state.load_producers(
            self.disk, self.directory,
            [at for at in self.snapshots.offsets if at <= segment.base_offset], before,
            self.forgotten_ms())
        fault = segment.rebuild(producers, None, segment.size, entries.append)
        if fault is not None:
            raise CorruptMessage(f"{segment.path('.log')} at byte {fault[0]}: {fault[1]}")
        self.chain.forget_waiting(segment)
        TransactionIndex(self.disk, segment.path(".txnindex")).replace(entries)
        segment.aborted.rebuilt(len(entries) * ENTRY.size)
        if segment is not self.chain.active:
            segment.seal()
            self.unflushed.note_sealed(segment)
        return entries
