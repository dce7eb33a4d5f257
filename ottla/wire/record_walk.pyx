# cython: boundscheck=False, wraparound=False
"""Checks the records of a batch from the first to the last, in plain C.

Records are checked before they are read: if the check finds no flaw, every length in them is valid.
Reference: Kafka's message format v2 (KIP-98).
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from ottla.wire.varint cimport read_varint, read_varlong

cdef dict FLAWS = {
    LENGTH: "a length is malformed, negative, or exceeds the batch; is the record count right?",
    NUMBER: "a timestamp or offset delta is cut off or too long",
    OFFSET: "its offset delta does not follow that of the record before it",
    HEADERS: "it claims more headers than it has bytes, or one of its headers has no key",
    EXCESS: "its length differs from its content",
    TRAILING: "bytes follow after it; is the record count right?",
    NULL_KEY: "it has no key, which a compacted topic requires",
    TOO_LARGE: "it is larger than max.decompressed.message.bytes allows",
}


cdef str flaw_text(Flaw flaw):
    """Describes the flaw in the record at which the check stopped."""
    return FLAWS[flaw]


cdef inline const uint8_t *skip_bytes(
    const uint8_t *at, const uint8_t *end, int32_t *length
) noexcept nogil:
    """Skips bytes with a length prefix, which is -1 for null. Returns NULL if the length is
    malformed, or if the bytes would go beyond `end`."""
    at = read_varint(at, end, length)
    if at is NULL or length[0] < -1 or length[0] > end - at:
        return NULL
    return at + length[0] if length[0] > 0 else at


cdef Flaw walk_headers(const uint8_t **cursor, const uint8_t *end, int32_t count) noexcept nogil:
    cdef const uint8_t *at = cursor[0]
    cdef int32_t length
    if count < 0 or count > (end - at) // 2:        # a header takes two bytes at least
        return HEADERS
    while count:
        count -= 1
        at = skip_bytes(at, end, &length)
        if at is NULL:
            return LENGTH
        if length < 0:
            return HEADERS
        at = skip_bytes(at, end, &length)
        if at is NULL:
            return LENGTH
    cursor[0] = at
    return SOUND


cdef Flaw walk_records(
    const uint8_t *at, const uint8_t *end, int32_t count, Walk *walk
) noexcept nogil:
    """Checks `count` records, which have to end exactly at `end`.

    | length | attributes int8 | timestamp delta varlong | offset delta | key length | key
    | value length | value | header count | { key length | key | value length | value } ... |
    All numbers are varints, except the two whose type is given.
    """
    cdef int32_t index, length, key_length, offset_delta, previous = -1
    cdef int64_t timestamp
    cdef const uint8_t *record_end
    cdef Flaw flaw
    walk.max_timestamp = walk.max_timestamp_at = -1
    walk.without_timestamp = False
    for index in range(count):
        walk.index = index
        at = read_varint(at, end, &length)
        if at is NULL or length < 1 or length > end - at:
            return LENGTH
        if length > walk.size_max:
            return TOO_LARGE
        record_end = at + length
        # the attributes of records are unused so far
        at = read_varlong(at + 1, record_end, &timestamp)
        if at is NULL:
            return NUMBER
        timestamp = <int64_t>(<uint64_t>walk.base_timestamp + <uint64_t>timestamp)
        at = read_varint(at, record_end, &offset_delta)
        if at is NULL:
            return NUMBER
        if walk.gaps:
            if offset_delta <= previous or offset_delta > walk.last_offset_delta:
                return OFFSET
            previous = offset_delta
        elif offset_delta != index:
            return OFFSET
        if timestamp > walk.max_timestamp:
            walk.max_timestamp = timestamp
            walk.max_timestamp_at = offset_delta
        if timestamp == -1:
            walk.without_timestamp = True
        elif walk.check_timestamps and not walk.earliest <= timestamp <= walk.latest:
            walk.timestamp = timestamp
            return TIMESTAMP
        at = skip_bytes(at, record_end, &key_length)
        if at is NULL:
            return LENGTH
        at = skip_bytes(at, record_end, &length)
        if at is NULL:
            return LENGTH
        at = read_varint(at, record_end, &length)
        if at is NULL:
            return LENGTH
        if length:
            flaw = walk_headers(&at, record_end, length)
            if flaw != SOUND:
                return flaw
        if at != record_end:
            return EXCESS
        if walk.compacted and key_length < 0:
            return NULL_KEY
    return SOUND if at == end else TRAILING
