# cython: boundscheck=False, wraparound=False
"""Validates the record batch that a producer sent, before it becomes part of the log.

The checksum says that the bytes are the client's; it does not say that they are true. Offsets, timestamps
and record boundaries are therefore followed record by record, in plain C where the batch is not compressed.
References: Kafka's message format v2 (KIP-98); timestamps KIP-32, KIP-937.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from ottla.wire.checksum cimport crc32c

from ottla.wire.errors import (
    CorruptMessage, InvalidRecord, InvalidTimestamp, MessageTooLarge, UnsupportedCompression,
)

cdef enum:
    LEGACY_OVERHEAD = 14        # of the smallest message that Kafka ever had; a shorter length is garbage
    ZSTD = 4


cdef enum Flaw:
    SOUND, SHORT, LENGTH, OVERFLOW, OFFSET, KEY, HEADERS, EXCESS, TRAILING, TIMESTAMP, NULL_KEY


cdef dict FLAWS = {
    SHORT: "the bytes end before it does; is the record count right?",
    LENGTH: "a length is negative or reaches past the end",
    OVERFLOW: "a variable-length integer is too long",
    OFFSET: "its offset delta does not follow the record before it",
    KEY: "a header has no key",
    HEADERS: "it claims more headers than it has bytes",
    EXCESS: "its length differs from what it holds",
    TRAILING: "bytes follow behind it; is the record count right?",
    NULL_KEY: "it has no key, which a compacted topic needs",
}


cdef struct Walk:
    # in
    int64_t base_timestamp
    int64_t earliest            # bounds of timestamps; -1 means that a record has none and is allowed
    int64_t latest
    bint check_timestamps
    bint compacted
    # out
    int64_t max_timestamp
    int32_t max_timestamp_at
    int32_t index               # of the record that the walk stopped at
    int64_t timestamp           # of that record
    bint without_timestamp      # some record has none


cdef inline const uint8_t *read_varint(
    const uint8_t *at, const uint8_t *end, int32_t *value
) noexcept nogil:
    """Steps over a zigzag int32; NULL where it is too long or reaches past the end."""
    cdef uint32_t bits, byte
    cdef int shift
    if at >= end:
        return NULL
    bits = at[0]
    at += 1
    if bits >= 0x80:
        bits &= 0x7f
        shift = 7
        while True:
            if at >= end or shift > 28:
                return NULL
            byte = at[0]
            at += 1
            if shift == 28 and byte > 15:
                return NULL
            bits |= (byte & 0x7f) << shift
            if byte < 0x80:
                break
            shift += 7
    value[0] = <int32_t>((bits >> 1) ^ (~(bits & 1) + 1))
    return at


cdef inline const uint8_t *read_varlong(
    const uint8_t *at, const uint8_t *end, int64_t *value
) noexcept nogil:
    """Steps over a zigzag int64; NULL where it is too long or reaches past the end."""
    cdef uint64_t bits, byte
    cdef int shift
    if at >= end:
        return NULL
    bits = at[0]
    at += 1
    if bits >= 0x80:
        bits &= 0x7f
        shift = 7
        while True:
            if at >= end or shift > 63:
                return NULL
            byte = at[0]
            at += 1
            if shift == 63 and byte > 1:
                return NULL
            bits |= (byte & 0x7f) << shift
            if byte < 0x80:
                break
            shift += 7
    value[0] = <int64_t>((bits >> 1) ^ (~(bits & 1) + 1))
    return at


cdef Flaw walk_headers(const uint8_t **cursor, const uint8_t *end, int32_t count) noexcept nogil:
    cdef const uint8_t *at = cursor[0]
    cdef int32_t length
    if count < 0 or count > (end - at) // 2:        # a header takes two bytes at least
        return HEADERS
    while count:
        count -= 1
        at = read_varint(at, end, &length)
        if at is NULL:
            return OVERFLOW
        if length < 0:
            return KEY
        if length > end - at:
            return LENGTH
        at = read_varint(at + length, end, &length)
        if at is NULL:
            return OVERFLOW
        if length < -1 or length > end - at:
            return LENGTH
        if length > 0:
            at += length
    cursor[0] = at
    return SOUND


cdef Flaw walk_records(
    const uint8_t *at, const uint8_t *end, int32_t count, Walk *walk
) noexcept nogil:
    """Follows `count` records up to exactly `end`.

    record: | length varint | attributes int8 | timestamp delta varlong | offset delta varint
            | key length varint | key | value length varint | value | header count varint | headers |
    """
    cdef int32_t index, length, key_length
    cdef int64_t delta, timestamp
    cdef const uint8_t *record_end
    cdef Flaw flaw
    walk.max_timestamp = -1
    walk.max_timestamp_at = -1
    walk.without_timestamp = False
    for index in range(count):
        walk.index = index
        at = read_varint(at, end, &length)
        if at is NULL:
            return SHORT
        if length < 1 or length > end - at:
            return LENGTH
        record_end = at + length
        at = read_varlong(at + 1, record_end, &delta)       # behind the attributes, which mean nothing yet
        if at is NULL:
            return OVERFLOW
        timestamp = <int64_t>(<uint64_t>walk.base_timestamp + <uint64_t>delta)
        if timestamp > walk.max_timestamp:
            walk.max_timestamp = timestamp
            walk.max_timestamp_at = index
        if timestamp == -1:
            walk.without_timestamp = True
        elif walk.check_timestamps and not walk.earliest <= timestamp <= walk.latest:
            walk.timestamp = timestamp
            return TIMESTAMP
        at = read_varint(at, record_end, &length)
        if at is NULL:
            return OVERFLOW
        if length != index:
            return OFFSET
        at = read_varint(at, record_end, &key_length)
        if at is NULL:
            return OVERFLOW
        if key_length < -1 or key_length > record_end - at:
            return LENGTH
        if key_length > 0:
            at += key_length
        at = read_varint(at, record_end, &length)
        if at is NULL:
            return OVERFLOW
        if length < -1 or length > record_end - at:
            return LENGTH
        if length > 0:
            at += length
        at = read_varint(at, record_end, &length)
        if at is NULL:
            return OVERFLOW
        if length:
            flaw = walk_headers(&at, record_end, length)
            if flaw != SOUND:
                return flaw
        if at != record_end:
            return EXCESS
        if walk.compacted and key_length < 0:
            return NULL_KEY
    return SOUND if at == end else TRAILING


cdef class BatchLimits:
    """What a topic allows in a batch, and what the last checked batch was found to be."""

    def __init__(
        self, *, int64_t batch_size_max=1_048_588, int64_t decompressed_size_max=134_217_728,
        int64_t now_ms=0, int64_t timestamp_before_ms_max=INT64_MAX,
        int64_t timestamp_after_ms_max=3_600_000, bint log_append_time=False,
        bint compacted=False, bint zstd=True,
    ):
        self.batch_size_max = batch_size_max
        self.decompressed_size_max = decompressed_size_max
        self.now_ms = now_ms
        self.timestamp_before_ms_max = timestamp_before_ms_max
        self.timestamp_after_ms_max = timestamp_after_ms_max
        self.log_append_time = log_append_time
        self.compacted = compacted
        self.zstd = zstd
        self.offset_delta_of_max_timestamp = -1
        self.max_timestamp = -1


cdef int check_frame(const uint8_t *batch, Py_ssize_t size, BatchLimits limits) except -1:
    """Exactly one whole batch of format v2, of an allowed size, with the checksum that it says."""
    cdef int64_t length
    if size < LOG_OVERHEAD:
        raise InvalidRecord(f"a partition's records hold no batch, but {size} bytes")
    length = load_int32(batch + LENGTH_AT)
    if length < LEGACY_OVERHEAD:
        raise CorruptMessage(f"batch length {length} is below any message's overhead")
    if size <= MAGIC_AT or length + LOG_OVERHEAD > size:
        raise InvalidRecord(f"batch of {length + LOG_OVERHEAD} bytes, of which {size} were sent")
    if magic(batch) < 0 or magic(batch) > 2:
        raise CorruptMessage(f"unknown message format (magic) {magic(batch)}")
    if magic(batch) != 2:
        raise InvalidRecord(f"message format v{magic(batch)} where only record batches (v2) may be")
    if length + LOG_OVERHEAD < size:
        raise InvalidRecord(f"{size - length - LOG_OVERHEAD} bytes follow the one batch of a partition")
    if size < HEADER_SIZE:
        raise CorruptMessage(f"batch of {size} bytes, its header alone takes {int(HEADER_SIZE)}")
    if base_offset(batch) != 0:
        raise InvalidRecord(f"base offset {base_offset(batch)}, a producer's batch starts at 0")
    if size > limits.batch_size_max:
        raise MessageTooLarge(
            f"batch of {size} bytes, max.message.bytes allows {limits.batch_size_max}")
    if crc32c(batch + ATTRIBUTES_AT, size - ATTRIBUTES_AT) != crc(batch):
        raise CorruptMessage(f"batch of {size} bytes does not have its checksum {crc(batch):#010x}")
    return 0


cdef int check_header(const uint8_t *batch, BatchLimits limits) except -1:
    """The fields that a client may send, and that agree with each other."""
    cdef int32_t count = record_count(batch)
    cdef int64_t pid = producer_id(batch)
    if count <= 0 or last_offset_delta(batch) != count - 1:
        raise InvalidRecord(
            f"record count {count} contradicts last offset delta {last_offset_delta(batch)}")
    if attributes(batch) & (CONTROL | DELETE_HORIZON):
        raise InvalidRecord("control records and delete horizons are written by brokers only")
    if pid >= 0 and (base_sequence(batch) < 0 or producer_epoch(batch) < 0):
        raise InvalidRecord(
            f"producer id {pid} with epoch {producer_epoch(batch)}, sequence {base_sequence(batch)}")
    if pid < 0 and attributes(batch) & TRANSACTIONAL:
        raise InvalidRecord("transactional batch without a producer id")
    if attributes(batch) & LOG_APPEND_TIME and limits.log_append_time:
        raise InvalidTimestamp("LogAppendTime is set by the broker, a producer sends CreateTime")
    if attributes(batch) & CODEC_MASK == ZSTD and not limits.zstd:
        raise UnsupportedCompression("zstd needs Produce version 7 or later")
    return 0


cdef int check_records(
    const uint8_t *batch, Py_ssize_t size, BatchLimits limits, Walk *walk
) except -1:
    cdef const uint8_t[::1] plain
    cdef const uint8_t *at = batch + RECORDS_AT
    cdef const uint8_t *end = batch + size
    cdef Flaw flaw
    if attributes(batch) & CODEC_MASK:
        from ottla.wire.compression import decompress
        plain = decompress(
            attributes(batch) & CODEC_MASK,
            PyMemoryView_FromMemory(<char *>at, size - RECORDS_AT, PyBUF_READ),
            limits.decompressed_size_max)
        at = &plain[0] if plain.shape[0] else NULL
        end = at + plain.shape[0]
    flaw = walk_records(at, end, record_count(batch), walk)
    if flaw == TIMESTAMP:
        raise InvalidTimestamp(
            f"timestamp {walk.timestamp} of record {walk.index} is outside of "
            f"{walk.earliest} to {walk.latest}")
    if flaw != SOUND:
        raise InvalidRecord(f"record {walk.index} of {record_count(batch)}: {FLAWS[flaw]}")
    if attributes(batch) & LOG_APPEND_TIME and walk.without_timestamp:
        raise InvalidTimestamp("LogAppendTime is set by the broker, a producer sends CreateTime")
    return 0


cdef int check_batch(uint8_t *batch, Py_ssize_t size, BatchLimits limits) except -1:
    """Checks the one batch that a client produced; sets its timestamp type and maximum if need be.

    What a producer got wrong about its timestamps is put right as Kafka does, with the checksum; all else
    that is wrong raises CorruptMessage, InvalidRecord, InvalidTimestamp, MessageTooLarge or
    UnsupportedCompression, and leaves the bytes alone.
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
    walk.earliest = now - before if before < now else 0
    walk.latest = now + after if after < INT64_MAX - now else INT64_MAX
    check_records(batch, size, limits, &walk)
    wanted = attributes(batch) & ~LOG_APPEND_TIME
    if limits.log_append_time:
        wanted |= LOG_APPEND_TIME
        walk.max_timestamp = now
        walk.max_timestamp_at = 0           # all have it, the first counts
    limits.max_timestamp = walk.max_timestamp
    limits.offset_delta_of_max_timestamp = walk.max_timestamp_at
    if wanted != attributes(batch) or walk.max_timestamp != max_timestamp(batch):
        set_attributes(batch, wanted)
        set_max_timestamp(batch, walk.max_timestamp)
        set_crc(batch, crc32c(batch + ATTRIBUTES_AT, size - ATTRIBUTES_AT))
    return 0


def check(uint8_t[::1] batch not None, BatchLimits limits not None):
    """check_batch on a writable buffer, from Python."""
    cdef uint8_t nothing
    check_batch(&batch[0] if batch.shape[0] else &nothing, batch.shape[0], limits)
