# cython: boundscheck=False, wraparound=False
"""The inner loops of a cleaner: keys out of batches, and batches with the newest records only.

Every batch is checked before anything is believed: a rewritten one gets a new checksum, under which
damage would look sound. Records of a batch that stays the same in part are copied byte for byte,
their deltas still hold. References: KIP-98 for what has to stay of producers and transactions,
KIP-534 for the delete horizon, which takes the place of the base timestamp.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from ottla.log.compaction.key_table cimport KeyOffsets
from ottla.log.control_batches cimport Marker, read_marker
from ottla.log.recovery.scan cimport BatchScan
from ottla.log.segment cimport Segment
cimport ottla.wire.batch as fields
from ottla.wire.byteorder cimport store_int32, store_int64
from ottla.wire.checksum cimport crc32c
from ottla.wire.codec cimport Writer
from ottla.wire.compression import compress, decompress
from ottla.wire.errors import CorruptMessage
from ottla.wire.record_walk cimport SOUND, Flaw, Walk, flaw_text, walk_records
from ottla.wire.varint cimport read_varint, read_varlong

cdef enum:
    WRITE_SIZE = 1 << 16                # bytes that are written at once
    SLICE_SIZE = 1 << 20                # bytes of work after which a slice ends in any case
    LOOK_SIZE = 1 << 14                 # bytes of work between two looks at the clock
    BATCH_COST = 128                    # what a batch costs besides its bytes, in bytes

cdef int64_t PLAIN_MAX = 0x7fffffff


cdef class CleanedSegment(Segment):
    """A segment that is being written beside those that it will replace."""

    def path(self, suffix):
        """Where the file with this suffix lies until it is whole."""
        return f"{self.directory}/{self.base_offset:020d}{suffix}.cleaned"

    def begin(self):
        """Make the files. Raises OSError."""
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
        return 0

    def finish(self):
        """Write what is left. Raises OSError."""
        self.write_pending()
        self.seal()


cdef int check(BatchScan scan, const uint8_t *batch) except -1:
    if not scan.checksum_fits(batch):
        fields.check_crc(batch, scan.size)      # says so
    if fields.record_count(batch) < 0 or fields.last_offset_delta(batch) < 0:
        raise CorruptMessage(
            f"the batch at offset {fields.base_offset(batch)} has {fields.record_count(batch)} "
            f"records and a last offset delta of {fields.last_offset_delta(batch)}")
    return 0


cdef class Slice:
    """The time that a step may hold the loop, from its making on."""

    def __init__(self, Clock clock not None, double seconds):
        self.clock, self.deadline = clock, clock.monotonic() + seconds

    cdef bint over(self) except -1:
        if self.work - self.looked < LOOK_SIZE:
            return False
        self.looked = self.work
        return self.work >= SLICE_SIZE or self.clock.monotonic() >= self.deadline


cdef const uint8_t *next_batch(BatchScan scan) except? NULL:
    """The batch behind the last, NULL at the end of the file; damage raises CorruptMessage."""
    cdef const uint8_t *batch = scan.next()
    if batch is NULL and scan.problem is not None:
        raise CorruptMessage(f"{scan.file.path} at {scan.position}: {scan.problem}")
    return batch


cdef class CleanerPass:
    """What one pass knows: keys, transactions, producers, and the time that it is for it."""

    def __init__(self, KeyOffsets keys, int64_t first_dirty_offset, transactions, producers,
                 int64_t now_ms, int64_t delete_retention_ms):
        self.keys, self.first_dirty_offset = keys, first_dirty_offset
        self.end_offset = first_dirty_offset
        self.transactions, self.producers = transactions, dict(producers)
        self.now_ms, self.delete_retention_ms = now_ms, delete_retention_ms
        self.body, self.batch = Writer(), Writer()

    def index(self, BatchScan scan, clock, double seconds):
        """Note the keys of the batches that `scan` holds, for a slice of time.

        True where the scan is at its end, False where it is not, None where the table is full: then
        `end_offset` is where the next pass begins. Raises CorruptMessage, InvalidRecord, OSError.
        """
        cdef const uint8_t *batch
        cdef int64_t count
        cdef Slice slice = Slice(clock, seconds)
        while scan.holds_next() and not slice.over():
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
            slice.work += scan.size + BATCH_COST + self.index_batch(batch, scan.size)
            self.bytes_read += scan.size
            self.end_offset = fields.last_offset(batch) + 1
        return False

    cdef int index_batch(self, const uint8_t *batch, Py_ssize_t size) except -1:
        cdef Marker marker
        cdef const uint8_t *at
        cdef const uint8_t *end
        cdef const uint8_t *record_end
        cdef int32_t length, delta, left = fields.record_count(batch)
        cdef int64_t timestamp, base = fields.base_offset(batch)
        cdef Py_ssize_t plain_size
        if fields.attributes(batch) & fields.CONTROL:
            if left:
                marker = read_marker(batch, size)
                if marker.valid:
                    self.transactions.marker(
                        fields.producer_id(batch), fields.last_offset(batch), marker.commits)
            return 0
        if fields.attributes(batch) & fields.TRANSACTIONAL and self.transactions.batch(
                fields.producer_id(batch), base, fields.last_offset(batch)):
            return 0
        at = self.records_of(batch, size, &end)
        plain_size = end - at
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
        return <int>min(plain_size, SLICE_SIZE)

    cdef const uint8_t *records_of(self, const uint8_t *batch, Py_ssize_t size,
                                   const uint8_t **end) except? NULL:
        """The records of a batch, decompressed and walked: every length in them is true."""
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
        flaw = walk_records(at, end[0], fields.record_count(batch), &walk)
        if flaw != SOUND:
            raise CorruptMessage(
                f"batch at offset {fields.base_offset(batch)}, record {walk.index}: "
                f"{flaw_text(flaw)}")
        return at

    def clean(self, BatchScan scan, CleanedSegment target, bint last_source, clock, double seconds):
        """Write what stays of the batches that `scan` holds to `target`, for a slice of time.

        True where the scan is at its end. The last batch of the last source stays in any case, if
        need be without records: so the target ends where its sources did, and recovery can tell
        from it alone which segments it replaces. Raises CorruptMessage, OSError.
        """
        cdef const uint8_t *batch
        cdef int64_t before
        cdef Slice slice = Slice(clock, seconds)
        while scan.holds_next() and not slice.over():
            batch = next_batch(scan)
            if batch is NULL:
                return True
            check(scan, batch)
            before = target.size
            slice.work += scan.size + BATCH_COST + self.clean_batch(
                batch, scan.size, target, last_source and scan.next_position == scan.end)
            self.bytes_read += scan.size
            self.bytes_written += target.size - before
        return False

    cdef bint must_stay(self, const uint8_t *batch) except -1:
        """Whether a batch has the last sequence of its producer, or the marker that fences it."""
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

    cdef int clean_batch(self, const uint8_t *batch, Py_ssize_t size, CleanedSegment target,
                         bint is_last) except -1:
        cdef int32_t count = fields.record_count(batch), kept
        cdef int attributes = fields.attributes(batch)
        cdef bint stays = is_last or self.must_stay(batch)
        cdef bint over = False, drop = False, tombstones = False
        cdef int64_t base_timestamp = fields.base_timestamp(batch), max_timestamp, horizon_ms = -1
        cdef const uint8_t *at
        cdef const uint8_t *end
        cdef Marker marker
        if attributes & fields.CONTROL:
            over = count == 0
            if count:
                marker = read_marker(batch, size)
                over = marker.valid and self.transactions.marker(
                    fields.producer_id(batch), fields.last_offset(batch), marker.commits)
            drop = over and attributes & fields.DELETE_HORIZON and base_timestamp <= self.now_ms
        elif attributes & fields.TRANSACTIONAL:
            drop = self.transactions.batch(
                fields.producer_id(batch), fields.base_offset(batch), fields.last_offset(batch))
        if drop or count == 0:
            self.changes += not (stays and count == 0)
            if stays:
                self.write_empty(batch, target)
            return 0
        at = self.records_of(batch, size, &end)
        kept = self.filter_records(batch, at, end, base_timestamp, attributes & fields.CONTROL,
                                   &tombstones, &max_timestamp)
        if (tombstones or over) and not attributes & fields.DELETE_HORIZON:
            horizon_ms = self.now_ms + self.delete_retention_ms
        if kept == count and horizon_ms < 0:
            target.add(batch, size)
            return <int>min(end - at, SLICE_SIZE)
        self.changes += 1
        if kept == 0:
            if stays:
                self.write_empty(batch, target)
            return <int>min(end - at, SLICE_SIZE)
        if horizon_ms >= 0:
            self.filter_records(batch, at, end, horizon_ms, attributes & fields.CONTROL,
                                &tombstones, &max_timestamp)
        self.rewrite(batch, target, kept, horizon_ms, max_timestamp)
        return <int>min(2 * (end - at), SLICE_SIZE)

    cdef int32_t filter_records(self, const uint8_t *batch, const uint8_t *at, const uint8_t *end,
                                int64_t base_timestamp, bint everything, bint *tombstones,
                                int64_t *max_timestamp) except -1:
        """Put the records that stay into `body`, for a batch with `base_timestamp`; how many."""
        cdef int32_t length, key_length, value_length, delta, kept = 0
        cdef int32_t left = fields.record_count(batch)
        cdef int64_t timestamp, offset, found
        cdef int64_t old_base = fields.base_timestamp(batch)
        cdef bint expired = (fields.attributes(batch) & fields.DELETE_HORIZON
                             and old_base <= self.now_ms)
        cdef const uint8_t *start
        cdef const uint8_t *record_end
        cdef const uint8_t *behind
        cdef const uint8_t *key
        self.body.size = 0
        max_timestamp[0] = -1
        while left:
            left -= 1
            start = at
            at = read_varint(at, end, &length)
            record_end = at + length
            at = behind = read_varlong(at + 1, end, &timestamp)
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
                found = self.keys.get(key, key_length)
                if offset < found or (value_length < 0 and expired):
                    continue
            if value_length < 0:
                tombstones[0] = True
            kept += 1
            timestamp = <int64_t>(<uint64_t>old_base + <uint64_t>timestamp)
            max_timestamp[0] = max(max_timestamp[0], timestamp)
            if base_timestamp == old_base:
                self.body.write_raw(start, record_end - start)
            else:
                self.batch.size = 0
                self.batch.write_int8(0)
                self.batch.write_varlong(
                    <int64_t>(<uint64_t>timestamp - <uint64_t>base_timestamp))
                self.batch.write_raw(behind, record_end - behind)
                self.body.write_varlong(self.batch.size)
                self.body.write_raw(self.batch.data, self.batch.size)
        return kept

    cdef int write_empty(self, const uint8_t *batch, CleanedSegment target) except -1:
        """Write a batch's header without records: its offsets and sequence numbers are known on."""
        cdef uint8_t[fields.HEADER_SIZE] header
        memcpy(header, batch, fields.HEADER_SIZE)
        fields.set_attributes(header, fields.attributes(batch) & (
            fields.LOG_APPEND_TIME | fields.TRANSACTIONAL | fields.CONTROL))
        store_int32(header + fields.LENGTH_AT, fields.HEADER_SIZE - fields.LOG_OVERHEAD)
        store_int64(header + fields.BASE_TIMESTAMP_AT, -1)
        if fields.producer_id(batch) < 0:
            # Its time says how long ago a producer was active; no record has it any more.
            fields.set_max_timestamp(header, -1)
        store_int32(header + fields.RECORD_COUNT_AT, 0)
        fields.set_crc(header, crc32c(
            header + fields.ATTRIBUTES_AT, fields.HEADER_SIZE - fields.ATTRIBUTES_AT))
        target.add(header, fields.HEADER_SIZE)
        return 0

    cdef int rewrite(self, const uint8_t *batch, CleanedSegment target, int32_t count,
                     int64_t horizon_ms, int64_t max_timestamp) except -1:
        """Write the batch that `body` holds the records of, with the codec that it had."""
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
            fields.set_max_timestamp(header, max_timestamp)
        store_int32(header + fields.LENGTH_AT, self.batch.size - fields.LOG_OVERHEAD)
        store_int32(header + fields.RECORD_COUNT_AT, count)
        fields.set_crc(header, crc32c(
            header + fields.ATTRIBUTES_AT, self.batch.size - fields.ATTRIBUTES_AT))
        target.add(header, self.batch.size)
        return 0
