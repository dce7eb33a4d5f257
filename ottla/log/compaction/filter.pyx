# cython: boundscheck=False, wraparound=False
"""The inner loops of a cleaner: indexing keys, and writing batches with the newest records only.

Every batch is verified before it is used: a rewritten batch gets a new checksum, which would hide
damage. Kept records are copied byte for byte, since their deltas remain valid; only a new delete
horizon, which replaces the base timestamp, changes their timestamp deltas. References: KIP-98
(which data of producers and transactions must be kept), KIP-534 (the delete horizon).
"""

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from ottla.log.compaction.key_table cimport KeyOffsets
from ottla.log.files.batch_scan cimport BatchScan
from ottla.log.files.control_batches cimport Marker, read_marker
from ottla.log.partition.segment cimport Segment
cimport ottla.wire.batch as fields
from ottla.wire.byteorder cimport store_int32, store_int64
from ottla.wire.checksum cimport crc32c
from ottla.wire.codec cimport Writer
from ottla.wire.compression import compress, decompress, size_bound
from ottla.wire.errors import CorruptMessage, ProtocolError
from ottla.wire.record_walk cimport SOUND, Flaw, Walk, flaw_text, walk_records
from ottla.wire.varint cimport read_varint, read_varlong, varlong_size, write_varlong

cdef enum:
    WRITE_SIZE = 1 << 16                # bytes per write
    SLICE_SIZE = 1 << 20                # bytes of work after which a slice ends in any case
    LOOK_SIZE = 1 << 14                 # bytes of work between two checks of the clock
    BATCH_COST = 128                    # fixed cost of a batch, in bytes of work
    # the interpreter lock is released for a batch with more bytes of records than this
    ASIDE_SIZE = 1 << 14
    # a thread processes every compressed batch with more bytes than this
    SHORT_SIZE = 4096
    SHORT_PLAIN_SIZE = 1 << 16          # bytes of records that cost less than a millisecond
    SHORT_COUNT = 2000                  # records that cost less than a millisecond
    GROWTH_MAX = 13                     # bytes that a new base timestamp adds to a record, at most

cdef enum:                              # what to do with a batch
    UNCHANGED, REWRITTEN, EMPTIED

cdef int64_t PLAIN_MAX = 0x7fffffff


cdef class CleanedSegment(Segment):
    """A segment that is written beside the segments that it will replace."""

    def path(self, suffix):
        """The temporary path of the file with this suffix."""
        return f"{self.directory}/{self.base_offset:020d}{suffix}.cleaned"

    def begin(self):
        """Creates the files. Raises OSError."""
        self.pending = Writer()
        self.prepare_append()

    cdef int add(self, const uint8_t *batch, Py_ssize_t size) except -1:
        if self.since_index > self.index_interval:
            self.index.make_room()
            self.times.make_room()
        self.note(batch, self.size, size)
        self.pending.write_raw(batch, size)
        self.size += size
        if self.pending.size >= WRITE_SIZE:
            self.write_pending()
        return 0

    cdef int write_pending(self) except -1:
        self.opened().write_at(self.pending.data, self.pending.size, self.written)
        self.written += self.pending.size
        self.pending.size = 0
        assert self.written == self.size
        return 0

    def finish(self):
        """Writes the remaining bytes. Raises OSError."""
        self.write_pending()
        self.seal()


cdef int check(BatchScan scan, const uint8_t *batch) except -1:
    if not scan.checksum_fits(batch):
        fields.check_crc(batch, scan.size)      # raises
    if fields.record_count(batch) < 0 or fields.last_offset_delta(batch) < 0:
        raise CorruptMessage(
            f"the batch at offset {fields.base_offset(batch)} has {fields.record_count(batch)} "
            f"records and a last offset delta of {fields.last_offset_delta(batch)}: neither may be "
            "negative")
    return 0


cdef class Slice:
    """The time limit of a step, counted from the creation of this object."""

    def __init__(self, Clock clock not None, double seconds):
        self.clock, self.deadline = clock, clock.monotonic() + seconds

    cdef bint over(self) except -1:
        if self.work - self.looked < LOOK_SIZE:
            return False
        self.looked = self.work
        return self.work >= SLICE_SIZE or self.clock.monotonic() >= self.deadline


cdef const uint8_t *next_batch(BatchScan scan) except? NULL:
    """The next batch, NULL at the end of the file; damage raises CorruptMessage."""
    cdef const uint8_t *batch = scan.next()
    if batch is NULL and scan.problem is not None:
        raise CorruptMessage(f"{scan.file.path} at byte {scan.position}: {scan.problem}")
    return batch


cdef bint takes_long(const uint8_t *batch, Py_ssize_t size) except -1:
    """Whether a batch's records may take more than a millisecond: too long for the event loop."""
    cdef int codec = fields.attributes(batch) & fields.CODEC_MASK
    if fields.record_count(batch) > SHORT_COUNT:
        return True
    if not codec:
        return size > SHORT_PLAIN_SIZE
    return size > SHORT_SIZE or size_bound(
        codec, PyMemoryView_FromMemory(
            <char *>batch + fields.RECORDS_AT, size - fields.RECORDS_AT, PyBUF_READ),
    ) > 16 * SHORT_PLAIN_SIZE


cdef class BatchTask:
    """A large batch of a pass. `run` processes its records, in any thread.

    Until `run` returns, nothing else may use the pass or the batch's bytes. `run` does not touch
    the target segment.
    """

    cdef int prepare(self, CleanerPass work, BatchScan scan, const uint8_t *batch,
                     bint indexes) except -1:
        self.work, self.scan, self.batch, self.indexes = work, scan, batch, indexes
        self.size = scan.size
        return 0

    def run(self):
        """Processes the batch; keeps an exception in `error`."""
        try:
            if self.indexes:
                self.work.index_records(self.batch, self.size)
            else:
                self.work.choose_records(self.batch, self.size)
        except (ProtocolError, MemoryError) as error:
            self.error = error


cdef class CleanerPass:
    """The state of one pass: keys, transactions, producers, and the time at its start."""

    def __init__(self, KeyOffsets keys, int64_t first_dirty_offset, transactions, producers,
                 int64_t now_ms, int64_t delete_retention_ms):
        self.keys, self.first_dirty_offset = keys, first_dirty_offset
        self.end_offset = first_dirty_offset
        self.transactions, self.producers = transactions, dict(producers)
        self.now_ms, self.delete_retention_ms = now_ms, delete_retention_ms
        self.body, self.batch = Writer(), Writer()

    def index(self, BatchScan scan, clock, double seconds):
        """Indexes the keys of the batches in `scan`, for a slice of time.

        Returns True at the end of the scan, False before it, None if the table is full: then the
        next pass begins at `end_offset`. If `due` is set afterwards, the caller must run that task
        before the next call. Raises CorruptMessage, InvalidRecord, OSError.
        """
        cdef const uint8_t *batch
        cdef int64_t count
        cdef Slice slice = Slice(clock, seconds)
        while self.due is None and scan.holds_next() and not slice.over():
            batch = next_batch(scan)
            if batch is NULL:
                return True
            count = fields.record_count(batch)
            if fields.last_offset(batch) < self.first_dirty_offset:
                continue
            check(scan, batch)
            if self.keys.used + count > self.keys.limit:
                if self.keys.used:
                    return None
                self.keys.grow(count)
            slice.work += scan.size + BATCH_COST + self.index_batch(scan, batch)
            self.bytes_read += scan.size
            self.end_offset = fields.last_offset(batch) + 1
        return False

    cdef int index_batch(self, BatchScan scan, const uint8_t *batch) except -1:
        cdef Marker marker
        if fields.attributes(batch) & fields.CONTROL:
            if fields.record_count(batch):
                marker = read_marker(batch, scan.size)
                if marker.valid:
                    self.transactions.marker(
                        fields.producer_id(batch), fields.last_offset(batch), marker.commits)
            return 0
        if fields.attributes(batch) & fields.TRANSACTIONAL and self.transactions.batch(
                fields.producer_id(batch), fields.base_offset(batch), fields.last_offset(batch)):
            return 0
        if takes_long(batch, scan.size):
            self.due = BatchTask.__new__(BatchTask)
            self.due.prepare(self, scan, batch, True)
            return 0
        return self.index_records(batch, scan.size)

    cdef int index_records(self, const uint8_t *batch, Py_ssize_t size) except -1:
        """Indexes the keys of a batch, in any thread; returns the amount of work."""
        cdef const uint8_t *end
        cdef const uint8_t *at = self.records_of(batch, size, &end)
        if end - at > ASIDE_SIZE:
            with nogil:
                self.put_keys(batch, at, end)
        else:
            self.put_keys(batch, at, end)
        return <int>min(end - at, SLICE_SIZE)

    cdef void put_keys(
        self, const uint8_t *batch, const uint8_t *at, const uint8_t *end
    ) noexcept nogil:
        cdef const uint8_t *record_end
        cdef int32_t length, delta, left = fields.record_count(batch)
        cdef int64_t timestamp, base = fields.base_offset(batch)
        while left:
            left -= 1
            at = read_varint(at, end, &length)
            record_end = at + length
            at = read_varlong(at + 1, end, &timestamp)
            at = read_varint(at, end, &delta)
            at = read_varint(at, end, &length)
            if length >= 0 and base + delta >= self.first_dirty_offset:
                self.keys.put(at, length, base + delta)
            at = record_end

    cdef const uint8_t *records_of(self, const uint8_t *batch, Py_ssize_t size,
                                   const uint8_t **end) except? NULL:
        """The records of a batch, decompressed and checked: every length in them is valid."""
        cdef Walk walk
        cdef Flaw flaw
        cdef const uint8_t[::1] plain
        cdef const uint8_t *at = batch + fields.RECORDS_AT
        cdef int codec = fields.attributes(batch) & fields.CODEC_MASK
        end[0] = batch + size
        if codec and fields.record_count(batch):
            self.plain = decompress(
                codec, PyMemoryView_FromMemory(<char *>at, end[0] - at, PyBUF_READ), PLAIN_MAX)
            plain = self.plain
            at = &plain[0] if plain.shape[0] else batch
            end[0] = at + plain.shape[0]
        walk.base_timestamp = fields.base_timestamp(batch)
        walk.check_timestamps = walk.compacted = False
        walk.gaps = True
        walk.size_max = INT32_MAX
        walk.last_offset_delta = fields.last_offset_delta(batch)
        if end[0] - at > ASIDE_SIZE:
            with nogil:
                flaw = walk_records(at, end[0], fields.record_count(batch), &walk)
        else:
            flaw = walk_records(at, end[0], fields.record_count(batch), &walk)
        if flaw != SOUND:
            raise CorruptMessage(
                f"batch at offset {fields.base_offset(batch)}, record {walk.index}: "
                f"{flaw_text(flaw)}")
        return at

    def clean(self, BatchScan scan, CleanedSegment target, bint last_source, clock, double seconds):
        """Filters the batches in `scan` and writes them to `target`, for a slice of time.

        Returns True at the end of the scan. The last batch of the last source is always kept, if
        necessary without records. So the target ends at the same offset as its sources, and the
        target alone shows recovery which segments it replaces. If `due` is set afterwards, the
        caller must run that task and call `put` before the next call. Raises CorruptMessage,
        OSError.
        """
        cdef const uint8_t *batch
        cdef Slice slice = Slice(clock, seconds)
        while self.due is None and scan.holds_next() and not slice.over():
            batch = next_batch(scan)
            if batch is NULL:
                return True
            check(scan, batch)
            self.bytes_read += scan.size
            slice.work += scan.size + BATCH_COST + self.clean_batch(
                scan, batch, target, last_source and scan.next_position == scan.end)
        return False

    cdef bint must_stay(self, const uint8_t *batch) except -1:
        """Whether a batch is needed to restore the state of its producer. The last data batch of a
        producer is needed. If the producer has no data batch, the control batches of its current
        epoch are needed."""
        cdef tuple last
        if fields.producer_id(batch) < 0:
            return False
        last = self.producers.get(fields.producer_id(batch))
        if last is None:
            return False
        if last[0] >= 0:
            return fields.last_offset(batch) == last[0]
        return (fields.attributes(batch) & fields.CONTROL
                and fields.producer_epoch(batch) == last[1])

    cdef int clean_batch(self, BatchScan scan, const uint8_t *batch, CleanedSegment target,
                         bint is_last) except -1:
        """Filters and writes a batch, or sets `due` if that takes long. Returns the amount of work.
        """
        cdef int attributes = fields.attributes(batch), work
        cdef bint drop = False
        cdef Py_ssize_t size = scan.size
        cdef Marker marker
        self.stays = is_last or self.must_stay(batch)
        self.over = False
        if attributes & fields.CONTROL:
            self.over = fields.record_count(batch) == 0
            if fields.record_count(batch):
                marker = read_marker(batch, size)
                self.over = marker.valid and self.transactions.marker(
                    fields.producer_id(batch), fields.last_offset(batch), marker.commits)
            drop = (self.over and attributes & fields.DELETE_HORIZON
                    and fields.base_timestamp(batch) <= self.now_ms)
        elif attributes & fields.TRANSACTIONAL:
            drop = self.transactions.batch(
                fields.producer_id(batch), fields.base_offset(batch), fields.last_offset(batch))
        if drop or fields.record_count(batch) == 0:
            self.outcome = EMPTIED
            # `put_batch` counts a batch without records as changed. If the batch was empty before
            # and is kept, it has not changed, so it is subtracted here.
            self.changes -= self.stays and fields.record_count(batch) == 0
            return self.put_batch(batch, size, target)
        if takes_long(batch, size):
            self.due = BatchTask.__new__(BatchTask)
            self.due.prepare(self, scan, batch, False)
            return 0
        work = self.choose_records(batch, size)
        self.put_batch(batch, size, target)
        return work

    cdef int choose_records(self, const uint8_t *batch, Py_ssize_t size) except -1:
        """Filters a batch, in any thread; returns the amount of work."""
        cdef int64_t base_timestamp = fields.base_timestamp(batch), horizon_ms = -1
        cdef int attributes = fields.attributes(batch)
        cdef Kept kept
        cdef const uint8_t *end
        cdef const uint8_t *at = self.records_of(batch, size, &end)
        self.filter_records(batch, at, end, base_timestamp, &kept)
        if (kept.tombstones or self.over) and not attributes & fields.DELETE_HORIZON:
            horizon_ms = self.now_ms + self.delete_retention_ms
        if kept.count == 0:
            self.outcome = EMPTIED
        elif kept.count == fields.record_count(batch) and horizon_ms < 0:
            self.outcome = UNCHANGED
        else:
            self.outcome = REWRITTEN
            if horizon_ms >= 0:
                self.filter_records(batch, at, end, horizon_ms, &kept)
            self.rewrite(batch, &kept, horizon_ms)
        return <int>min(2 * (end - at) if horizon_ms >= 0 else end - at, SLICE_SIZE)

    def put(self, CleanedSegment target not None):
        """Writes the result of the task in `due`, which has run. Raises OSError."""
        cdef BatchTask task = self.due
        self.due = None
        self.put_batch(task.batch, task.size, target)

    cdef int put_batch(
        self, const uint8_t *batch, Py_ssize_t size, CleanedSegment target
    ) except -1:
        cdef int64_t before = target.size
        self.changes += self.outcome != UNCHANGED
        if self.outcome == UNCHANGED:
            target.add(batch, size)
        elif self.outcome == REWRITTEN:
            target.add(self.batch.data, self.batch.size)
        elif self.stays:
            self.write_empty(batch, target)
        self.bytes_written += target.size - before
        return 0

    cdef int filter_records(self, const uint8_t *batch, const uint8_t *at, const uint8_t *end,
                            int64_t base_timestamp, Kept *kept) except -1:
        """Copies the kept records to `body`, with timestamps relative to `base_timestamp`."""
        cdef Py_ssize_t room = end - at
        if base_timestamp != fields.base_timestamp(batch):
            room += <Py_ssize_t>GROWTH_MAX * fields.record_count(batch)
        self.body.size = 0
        self.body.more(room)
        if room > ASIDE_SIZE:
            with nogil:
                self.copy_records(batch, at, end, base_timestamp, kept)
        else:
            self.copy_records(batch, at, end, base_timestamp, kept)
        self.body.size = kept.size
        return 0

    cdef void copy_records(self, const uint8_t *batch, const uint8_t *at, const uint8_t *end,
                           int64_t base_timestamp, Kept *kept) noexcept nogil:
        cdef int32_t length, key_length, value_length, delta, left = fields.record_count(batch)
        cdef int64_t timestamp, offset, newest, new_delta
        cdef int64_t old_base = fields.base_timestamp(batch)
        cdef bint everything = (fields.attributes(batch) & fields.CONTROL) != 0
        cdef bint expired = ((fields.attributes(batch) & fields.DELETE_HORIZON) != 0
                             and old_base <= self.now_ms)
        cdef const uint8_t *start
        cdef const uint8_t *record_end
        cdef const uint8_t *after
        cdef const uint8_t *key
        cdef uint8_t *to = self.body.data
        kept.count, kept.tombstones, kept.max_timestamp = 0, False, -1
        while left:
            left -= 1
            start = at
            at = read_varint(at, end, &length)
            record_end = at + length
            at = after = read_varlong(at + 1, end, &timestamp)
            at = read_varint(at, end, &delta)
            at = read_varint(at, end, &key_length)
            key = at
            if key_length > 0:
                at += key_length
            at = read_varint(at, end, &value_length)
            at = record_end
            offset = fields.base_offset(batch) + delta
            if not everything and offset < self.end_offset:
                if key_length < 0:
                    continue
                newest = self.keys.get(key, key_length)
                if offset < newest or (value_length < 0 and expired):
                    continue
            if value_length < 0:
                kept.tombstones = True
            kept.count += 1
            timestamp = <int64_t>(<uint64_t>old_base + <uint64_t>timestamp)
            kept.max_timestamp = max(kept.max_timestamp, timestamp)
            if base_timestamp == old_base:
                memcpy(to, start, record_end - start)
                to += record_end - start
            else:
                new_delta = <int64_t>(<uint64_t>timestamp - <uint64_t>base_timestamp)
                to = write_varlong(to, 1 + varlong_size(new_delta) + (record_end - after))
                to[0] = 0
                to = write_varlong(to + 1, new_delta)
                memcpy(to, after, record_end - after)
                to += record_end - after
        kept.size = to - self.body.data

    cdef int write_empty(self, const uint8_t *batch, CleanedSegment target) except -1:
        """Writes the batch's header without its records: this preserves the last offset and the
        sequence numbers."""
        cdef uint8_t[fields.HEADER_SIZE] header
        memcpy(header, batch, fields.HEADER_SIZE)
        fields.set_attributes(header, fields.attributes(batch) & (
            fields.LOG_APPEND_TIME | fields.TRANSACTIONAL | fields.CONTROL))
        store_int32(header + fields.LENGTH_AT, fields.HEADER_SIZE - fields.LOG_OVERHEAD)
        store_int64(header + fields.BASE_TIMESTAMP_AT, -1)
        if fields.producer_id(batch) < 0:
            # The timestamp shows when a producer was last active; this batch has no producer.
            fields.set_max_timestamp(header, -1)
        store_int32(header + fields.RECORD_COUNT_AT, 0)
        fields.set_crc(header, crc32c(
            header + fields.ATTRIBUTES_AT, fields.HEADER_SIZE - fields.ATTRIBUTES_AT))
        target.add(header, fields.HEADER_SIZE)
        return 0

    cdef int rewrite(self, const uint8_t *batch, const Kept *kept, int64_t horizon_ms) except -1:
        """Builds the batch whose records are in `body`, with its original codec."""
        cdef int attributes = fields.attributes(batch)
        cdef bytes packed
        cdef uint8_t *header
        self.batch.size = 0
        header = self.batch.more(fields.HEADER_SIZE)
        memcpy(header, batch, fields.HEADER_SIZE)
        if attributes & fields.CODEC_MASK:
            packed = compress(attributes & fields.CODEC_MASK, PyMemoryView_FromMemory(
                <char *>self.body.data, self.body.size, PyBUF_READ))
            self.batch.write_raw(<const uint8_t *>packed, len(packed))
        else:
            self.batch.write_raw(self.body.data, self.body.size)
        header = self.batch.data
        if horizon_ms >= 0:
            fields.set_attributes(header, attributes | fields.DELETE_HORIZON)
            store_int64(header + fields.BASE_TIMESTAMP_AT, horizon_ms)
        if not attributes & fields.LOG_APPEND_TIME:
            fields.set_max_timestamp(header, kept.max_timestamp)
        store_int32(header + fields.LENGTH_AT, self.batch.size - fields.LOG_OVERHEAD)
        store_int32(header + fields.RECORD_COUNT_AT, kept.count)
        fields.set_crc(header, crc32c(
            header + fields.ATTRIBUTES_AT, self.batch.size - fields.ATTRIBUTES_AT))
        return 0
