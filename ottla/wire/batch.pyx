# cython: boundscheck=False, wraparound=False
"""Validates the record batch that a producer sent, before the batch becomes part of the log.
Recompresses the batch if the topic's compression.type asks for another codec.

The checksum only proves that the bytes arrived as the client sent them, not that they are valid.
Offsets, timestamps and record boundaries are therefore checked record by record, without creating
Python objects.
References: Kafka's message format v2 (KIP-98); timestamps KIP-32, KIP-937;
compression.type and its levels KIP-390.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from ottla.wire.checksum cimport crc32c
from ottla.wire.record_walk cimport (
    NULL_KEY, SOUND, TIMESTAMP, Flaw, Walk, flaw_text, walk_records,
)
from ottla.wire.varint cimport read_varint

from enum import IntEnum

from ottla.wire.errors import (
    CorruptMessage, InvalidRecord, InvalidTimestamp, MessageTooLarge, UnsupportedCompression,
)

DECOMPRESSED_SIZE_MAX = 134_217_728
HEADER_BYTES = <int>HEADER_SIZE


class TimestampType(IntEnum):
    """The meaning of a batch's timestamps (KIP-32)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


cdef enum:
    LEGACY_OVERHEAD = 14        # smallest value of the length field in any of Kafka's formats
    ZSTD = 4
    ATTRIBUTES_KNOWN = 0x7f     # other bits are cleared when the header is rewritten, as in Kafka
    LENGTH_FIELD_MAX = 5        # bytes of a record's length field
    RECORD_ERRORS_MAX = 4096    # an error lists at most so many records of a batch


cdef class BatchLimits:
    """The limits that a topic sets for a batch, and the properties of the last checked batch."""

    def __init__(
        self, *, int64_t batch_size_max=1_048_588,
        int64_t decompressed_size_max=DECOMPRESSED_SIZE_MAX,
        int64_t now_ms=0, int64_t timestamp_before_ms_max=INT64_MAX,
        int64_t timestamp_after_ms_max=3_600_000, bint log_append_time=False,
        bint compacted=False, bint zstd=True, int32_t record_size_max=INT32_MAX,
        int codec=-1, level=None,
    ):
        self.batch_size_max = batch_size_max
        self.decompressed_size_max = decompressed_size_max
        self.now_ms = now_ms
        self.timestamp_before_ms_max = timestamp_before_ms_max
        self.timestamp_after_ms_max = timestamp_after_ms_max
        self.log_append_time = log_append_time
        self.compacted = compacted
        self.zstd = zstd
        self.record_size_max = record_size_max
        self.codec, self.level = codec, level
        self.offset_delta_of_max_timestamp = -1
        self.max_timestamp = -1

    cdef BatchLimits copy(self):
        """A copy of these limits, for use by another caller at the same time."""
        cdef BatchLimits copied = BatchLimits(
            batch_size_max=self.batch_size_max, decompressed_size_max=self.decompressed_size_max,
            now_ms=self.now_ms, timestamp_before_ms_max=self.timestamp_before_ms_max,
            timestamp_after_ms_max=self.timestamp_after_ms_max,
            log_append_time=self.log_append_time, compacted=self.compacted, zstd=self.zstd,
            record_size_max=self.record_size_max, codec=self.codec, level=self.level)
        return copied

    cdef int64_t room_for(self, int32_t count):
        """The size limit in bytes for this many records, decompressed."""
        return min(self.decompressed_size_max,
                   count * (<int64_t>self.record_size_max + LENGTH_FIELD_MAX))


cdef int check_crc(const uint8_t *batch, Py_ssize_t size) except -1:
    """Raises CorruptMessage unless the stored batch matches its own checksum."""
    if crc32c(batch + ATTRIBUTES_AT, size - ATTRIBUTES_AT) != crc(batch):
        raise CorruptMessage(f"batch at offset {base_offset(batch)} does not match its checksum")
    return 0


cdef Py_ssize_t whole_batch(const uint8_t *batch, Py_ssize_t size) except -1:
    """The size of the batch at the start of the bytes; 0 if the batch is not complete."""
    cdef int64_t length
    if size < LOG_OVERHEAD:
        return 0
    length = load_int32(batch + LENGTH_AT)
    if length < LEGACY_OVERHEAD:
        raise CorruptMessage(f"batch length {length} is too small for a message of any format")
    if size <= MAGIC_AT:
        return 0
    if magic(batch) < 0 or magic(batch) > 2:
        raise CorruptMessage(f"unknown message format (magic) {magic(batch)}")
    return <Py_ssize_t>length + LOG_OVERHEAD if length + LOG_OVERHEAD <= size else 0


cdef Py_ssize_t one_batch(const uint8_t *records, Py_ssize_t size, bint zstd) except -1:
    """The size of the one batch of format v2 in a partition's records.

    A second whole batch is an error, and so are bytes that cannot begin a batch. An incomplete
    batch at the end is ignored, as in Kafka: clients with an oversized buffer may send one.
    """
    cdef Py_ssize_t batch_size = whole_batch(records, size)
    if batch_size == 0:
        raise InvalidRecord(
            f"a partition's records have {size} bytes, too few for a complete batch")
    if magic(records) != 2:
        raise InvalidRecord(
            f"the records have message format v{magic(records)}, expected record batches (v2)")
    if not zstd and attributes(records) & CODEC_MASK == ZSTD:
        raise UnsupportedCompression("zstd needs Produce version 7 or later")
    if batch_size < size and whole_batch(records + batch_size, size - batch_size) > 0:
        raise InvalidRecord("a partition's records contain more than one batch")
    return batch_size


cdef int check_frame(const uint8_t *batch, Py_ssize_t size, BatchLimits limits) except -1:
    """Checks for exactly one whole batch of format v2, of an allowed size, with a valid
    checksum."""
    cdef int64_t length
    if size < LOG_OVERHEAD:
        raise InvalidRecord(f"a partition's records have {size} bytes, too few for a batch")
    length = load_int32(batch + LENGTH_AT)
    if length < LEGACY_OVERHEAD:
        raise CorruptMessage(f"batch length {length} is too small for a message of any format")
    if length + LOG_OVERHEAD > size:
        raise InvalidRecord(
            f"a batch takes {length + LOG_OVERHEAD} bytes, but only {size} of them were sent")
    if magic(batch) < 0 or magic(batch) > 2:
        raise CorruptMessage(f"unknown message format (magic) {magic(batch)}")
    if magic(batch) != 2:
        raise InvalidRecord(
            f"the records have message format v{magic(batch)}, expected record batches (v2)")
    if length + LOG_OVERHEAD < size:
        raise InvalidRecord(
            f"{size - length - LOG_OVERHEAD} bytes follow the batch, but a partition's records "
            "must be exactly one batch")
    if size < HEADER_SIZE:
        raise CorruptMessage(
            f"batch of {size} bytes is too short: a header alone takes {int(HEADER_SIZE)} bytes")
    if base_offset(batch) != 0:
        raise InvalidRecord(
            f"base offset is {base_offset(batch)}, but must be 0 in a producer's batch")
    if size > limits.batch_size_max:
        raise MessageTooLarge(
            f"a batch has {size} bytes, but max.message.bytes allows {limits.batch_size_max}")
    if crc32c(batch + ATTRIBUTES_AT, size - ATTRIBUTES_AT) != crc(batch):
        raise CorruptMessage(
            f"batch of {size} bytes does not match its checksum {crc(batch):#010x}")
    return 0


cdef int check_header(const uint8_t *batch, BatchLimits limits) except -1:
    """Checks that the client's values of header fields are allowed and agree with each other."""
    cdef int32_t count = record_count(batch)
    cdef int64_t pid = producer_id(batch)
    if count <= 0 or last_offset_delta(batch) != count - 1:
        raise InvalidRecord(
            f"record count {count} and last offset delta {last_offset_delta(batch)} are not "
            "valid: the count must be at least 1, and the delta must be the count minus 1")
    if attributes(batch) & (CONTROL | DELETE_HORIZON):
        raise InvalidRecord(
            "the batch is a control batch or has a delete horizon, which only brokers may write")
    if pid >= 0 and base_sequence(batch) < 0:
        raise InvalidRecord(
            f"a batch with producer id {pid} must have a base sequence of 0 or more, but has "
            f"{base_sequence(batch)}")
    if pid < 0 and attributes(batch) & TRANSACTIONAL:
        raise InvalidRecord("a transactional batch needs a producer id, but has none")
    if attributes(batch) & LOG_APPEND_TIME and limits.log_append_time:
        error = InvalidTimestamp(
            "timestamp type is LogAppendTime, but a producer must send CreateTime")
        error.record_errors = ((0, error.message),)
        raise error
    if attributes(batch) & CODEC_MASK == ZSTD and not limits.zstd:
        raise UnsupportedCompression("zstd needs Produce version 7 or later")
    return 0


cdef str record_text(Walk *walk, int32_t index, Flaw flaw):
    if flaw == TIMESTAMP:
        return (f"timestamp {walk.timestamp} of record {index} is out of range: "
                f"{walk.earliest} to {walk.latest} are allowed")
    return f"record {index}: {flaw_text(flaw)}"


cdef object rejection(
    const uint8_t *at, const uint8_t *end, int32_t count, Walk *walk, Flaw first
):
    """The error for a batch with records that the topic does not allow (KIP-467).

    The error lists each rejected record, so that the client can send the others again. If the batch
    also has a malformed record, the list is empty, but the message still describes the first
    rejected record.
    """
    cdef str text = record_text(walk, walk.index, first)
    cdef const uint8_t *record_end
    cdef int32_t index, length
    cdef Flaw flaw
    cdef list errors = []
    # Each record is checked separately, so its offset cannot be compared with those around it.
    walk.gaps, walk.last_offset_delta = True, INT32_MAX
    for index in range(count):
        record_end = read_varint(at, end, &length)
        if record_end is NULL or length < 1 or length > end - record_end:
            errors.clear()
            break
        record_end += length
        flaw = walk_records(at, record_end, 1, walk)
        if flaw == TIMESTAMP or flaw == NULL_KEY:
            errors.append((index, record_text(walk, index, flaw)))
            if len(errors) == RECORD_ERRORS_MAX:
                break
        elif flaw != SOUND:
            errors.clear()
            break
        at = record_end
    error = InvalidTimestamp(text) if first == TIMESTAMP else InvalidRecord(text)
    error.record_errors = tuple(errors)
    return error


cdef int check_records(
    const uint8_t *batch, Py_ssize_t size, BatchLimits limits, Walk *walk
) except -1:
    cdef const uint8_t[::1] plain
    cdef const uint8_t *at = batch + RECORDS_AT
    cdef const uint8_t *end = batch + size
    cdef Flaw flaw
    limits.plain = None
    walk.size_max = INT32_MAX
    if attributes(batch) & CODEC_MASK:
        from ottla.wire.compression import decompress
        records = decompress(
            attributes(batch) & CODEC_MASK,
            PyMemoryView_FromMemory(<char *>at, size - RECORDS_AT, PyBUF_READ),
            limits.room_for(record_count(batch)))
        plain = records
        at = &plain[0] if plain.shape[0] else NULL
        end = at + plain.shape[0]
        walk.size_max = limits.record_size_max
        if to_recompress(batch, limits):
            limits.plain = records
    flaw = walk_records(at, end, record_count(batch), walk)
    if flaw == TIMESTAMP or flaw == NULL_KEY:
        raise rejection(at, end, record_count(batch), walk, flaw)
    if flaw != SOUND:
        raise InvalidRecord(f"record {walk.index} of {record_count(batch)}: {flaw_text(flaw)}")
    if attributes(batch) & LOG_APPEND_TIME and walk.without_timestamp:
        raise InvalidTimestamp(
            "timestamp type is LogAppendTime, but a producer must send CreateTime")
    return 0


cdef int check_batch(uint8_t *batch, Py_ssize_t size, BatchLimits limits) except -1:
    """Checks the one batch that a client produced; corrects its timestamp type and its maximum
    timestamp.

    If one of them is corrected, the checksum is corrected too, as in Kafka. Any other
    fault raises CorruptMessage, InvalidRecord, InvalidTimestamp, MessageTooLarge or
    UnsupportedCompression; the bytes are then unchanged.
    """
    cdef Walk walk
    cdef int64_t now = limits.now_ms, before = limits.timestamp_before_ms_max
    cdef int64_t after = limits.timestamp_after_ms_max
    cdef int wanted
    check_frame(batch, size, limits)
    check_header(batch, limits)
    walk.base_timestamp = base_timestamp(batch)
    walk.check_timestamps = not limits.log_append_time
    walk.compacted = limits.compacted
    walk.gaps = False
    walk.earliest = now - before if before < now else 0
    walk.latest = now + after if after < INT64_MAX - now else INT64_MAX
    check_records(batch, size, limits, &walk)
    assert total_size(batch) == size, "the length field of a checked batch is wrong"
    assert last_offset_delta(batch) == record_count(batch) - 1, "a checked batch has offset gaps"
    assert -1 <= walk.max_timestamp_at < record_count(batch), "max_timestamp_at is out of range"
    wanted = attributes(batch) & ~LOG_APPEND_TIME
    if limits.log_append_time:
        wanted |= LOG_APPEND_TIME
        walk.max_timestamp = now
        walk.max_timestamp_at = 0           # all timestamps are equal: take the first record
    limits.max_timestamp = walk.max_timestamp
    limits.offset_delta_of_max_timestamp = walk.max_timestamp_at
    if wanted != attributes(batch) or walk.max_timestamp != max_timestamp(batch):
        set_attributes(batch, wanted & ATTRIBUTES_KNOWN)
        set_max_timestamp(batch, walk.max_timestamp)
        set_crc(batch, crc32c(batch + ATTRIBUTES_AT, size - ATTRIBUTES_AT))
    return 0


cdef bytearray recompressed(const uint8_t *batch, Py_ssize_t size, BatchLimits limits):
    """The batch that check_batch has just accepted, compressed with the topic's codec.

    The records keep their bytes; in the header only length, codec and checksum change. Raises
    MessageTooLarge if the result exceeds max.message.bytes, UnsupportedCompression if the codec's
    package is not installed.
    """
    from ottla.wire.compression import compress
    records, limits.plain = limits.plain, None
    if records is None:
        records = PyMemoryView_FromMemory(
            <char *>batch + RECORDS_AT, size - RECORDS_AT, PyBUF_READ)
    # Without compression the size is known in advance, so a batch that is too large is not built.
    if limits.codec == 0 and len(records) + HEADER_SIZE > limits.batch_size_max:
        raise too_large(len(records) + HEADER_SIZE, limits)
    packed = compress(limits.codec, records, limits.level) if limits.codec else records
    if len(packed) + HEADER_SIZE > limits.batch_size_max:
        raise too_large(len(packed) + HEADER_SIZE, limits)
    return with_body(batch, packed, limits.codec)


cdef bytearray with_body(const uint8_t *batch, const uint8_t[::1] body, int codec):
    """A new batch: a copy of the header of `batch`, then `body`. Sets the header fields that depend
    on the body."""
    cdef bytearray result = bytearray(HEADER_SIZE + body.shape[0])
    cdef uint8_t[::1] made = result
    assert codec & ~CODEC_MASK == 0, "the codec has more than three bits"
    assert made.shape[0] <= INT32_MAX, "the batch is too long for its length field"
    memcpy(&made[0], batch, HEADER_SIZE)
    if body.shape[0]:
        memcpy(&made[HEADER_SIZE], &body[0], body.shape[0])
    set_total_size(&made[0], <int32_t>made.shape[0])
    set_attributes(&made[0], attributes(batch) & ATTRIBUTES_KNOWN & ~CODEC_MASK | codec)
    set_crc(&made[0], crc32c(&made[ATTRIBUTES_AT], made.shape[0] - ATTRIBUTES_AT))
    return result


cdef object too_large(Py_ssize_t size, BatchLimits limits):
    return MessageTooLarge(
        f"the batch takes {size} bytes with the topic's compression.type, but max.message.bytes "
        f"allows {limits.batch_size_max}")


cdef int restamp(uint8_t *batch, Py_ssize_t size, int64_t now_ms) except -1:
    """Sets the append time of a batch that was checked earlier, if its type is LogAppendTime."""
    if attributes(batch) & LOG_APPEND_TIME and max_timestamp(batch) != now_ms:
        set_max_timestamp(batch, now_ms)
        set_crc(batch, crc32c(batch + ATTRIBUTES_AT, size - ATTRIBUTES_AT))
    return 0


def recompress(uint8_t[::1] batch not None, BatchLimits limits not None):
    """A checked batch in the codec of `limits`; the argument itself if the batch has that codec."""
    if not to_recompress(&batch[0], limits):
        return batch.base
    return recompressed(&batch[0], batch.shape[0], limits)


def check(uint8_t[::1] batch not None, BatchLimits limits not None):
    """Runs check_batch on a writable buffer, for callers in Python."""
    cdef uint8_t nothing
    check_batch(&batch[0] if batch.shape[0] else &nothing, batch.shape[0], limits)


# --- reading what is stored -------------------------------------------------------------------


cdef class BatchHeader:
    """The header of a batch of format v2: a view of bytes that belong to another object."""

    cdef const uint8_t[::1] view            # keeps `at` alive
    cdef const uint8_t *at

    def __init__(self, data):
        self.view = data
        if self.view.shape[0] < HEADER_SIZE:
            raise CorruptMessage(f"{self.view.shape[0]} bytes are too few for a record batch")
        self.at = &self.view[0]

    @property
    def magic(self):
        return magic(self.at)

    @property
    def size(self):
        return total_size(self.at)

    @property
    def base_offset(self):
        return base_offset(self.at)

    @property
    def last_offset(self):
        return last_offset(self.at)

    @property
    def next_offset(self):
        return last_offset(self.at) + 1

    @property
    def last_offset_delta(self):
        return last_offset_delta(self.at)

    @property
    def leader_epoch(self):
        return leader_epoch(self.at)

    @property
    def crc(self):
        return crc(self.at)

    @property
    def attributes(self):
        return attributes(self.at)

    @property
    def codec(self):
        return attributes(self.at) & CODEC_MASK

    @property
    def timestamp_type(self):
        return TimestampType(attributes(self.at) >> 3 & 1)

    @property
    def transactional(self):
        return attributes(self.at) & TRANSACTIONAL != 0

    @property
    def control(self):
        return attributes(self.at) & CONTROL != 0

    @property
    def delete_horizon_ms(self):
        return base_timestamp(self.at) if attributes(self.at) & DELETE_HORIZON else None

    @property
    def base_timestamp(self):
        return base_timestamp(self.at)

    @property
    def max_timestamp(self):
        return max_timestamp(self.at)

    @property
    def producer_id(self):
        return producer_id(self.at)

    @property
    def producer_epoch(self):
        return producer_epoch(self.at)

    @property
    def base_sequence(self):
        return base_sequence(self.at)

    @property
    def last_sequence(self):
        return last_sequence(self.at)

    @property
    def record_count(self):
        return record_count(self.at)


cdef class BatchView(BatchHeader):
    """One whole batch: its header fields as attributes, its records on demand."""

    cdef readonly object data               # memoryview of exactly this batch

    def __init__(self, data):
        BatchHeader.__init__(self, data)
        self.data = memoryview(data)
        if total_size(self.at) != self.view.shape[0] or magic(self.at) != 2:
            raise CorruptMessage(
                f"{self.view.shape[0]} bytes are not one whole record batch (v2): the header has "
                f"length {load_int32(self.at + LENGTH_AT)} and magic {magic(self.at)}")

    def crc_holds(self):
        """Whether the bytes match the checksum in the header."""
        return crc32c(self.at + ATTRIBUTES_AT, self.size - ATTRIBUTES_AT) == crc(self.at)

    def with_codec(self, int codec, level=None, size_max=DECOMPRESSED_SIZE_MAX):
        """The same batch in another codec; raises the errors of read_records."""
        from ottla.wire.compression import compress, decompress
        body = self.data[RECORDS_AT:]
        if not body:
            return bytes(self.data)                         # compaction removed its records
        return bytes(with_body(
            self.at, compress(codec, decompress(self.codec, body, size_max), level), codec))

    def records(self, size_max=DECOMPRESSED_SIZE_MAX):
        """The batch's records as a list; raises the errors of read_records."""
        from ottla.wire.records import read_records         # that module imports this one
        return read_records(self.view, size_max)

    def __repr__(self):
        return (
            f"BatchView(offsets {self.base_offset} to {self.last_offset}, "
            f"{self.record_count} records, {self.size} bytes)")


def batches(data):
    """Views of the consecutive batches in `data`, up to the first one that is cut off."""
    cdef const uint8_t[::1] view = data
    cdef Py_ssize_t position = 0, size
    whole = memoryview(data)
    while view.shape[0] - position >= LOG_OVERHEAD:
        size = <Py_ssize_t>load_int32(&view[position] + LENGTH_AT) + LOG_OVERHEAD
        if size < HEADER_SIZE:
            raise CorruptMessage(
                f"the batch at position {position} declares a size of {size} bytes, but a header "
                f"alone takes {int(HEADER_SIZE)} bytes")
        if size > view.shape[0] - position:
            return
        yield BatchView(whole[position : position + size])
        position += size
