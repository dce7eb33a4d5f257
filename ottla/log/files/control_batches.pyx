"""Reads transaction markers out of control batches (KIP-98)."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

cimport ottla.wire.batch as fields
from ottla.wire.byteorder cimport load_int16, load_int32


cdef const uint8_t *skip_varint(const uint8_t *at, const uint8_t *end, int64_t *value) noexcept:
    """Reads a zigzag varint and returns its end; NULL if the bytes end within it."""
    cdef uint64_t raw = 0
    cdef int shift = 0
    while at < end and shift < 64:
        raw |= (<uint64_t>(at[0] & 0x7f)) << shift
        at += 1
        if not at[-1] & 0x80:
            value[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
            return at
        shift += 7
    return NULL


cdef Marker read_marker(const uint8_t *batch, Py_ssize_t size) noexcept:
    cdef Marker marker
    cdef const uint8_t *at = batch + fields.RECORDS_AT
    cdef const uint8_t *end = batch + size
    cdef int64_t number = 0
    cdef int field
    marker.valid, marker.commits, marker.coordinator_epoch = False, False, -1
    at = skip_varint(at, end, &number)
    if at is NULL or at >= end:
        return marker
    at += 1
    for field in range(3):
        at = skip_varint(at, end, &number)
        if at is NULL:
            return marker
    if number < 4 or number > end - at or load_int16(at) < 0 or not 0 <= load_int16(at + 2) <= 1:
        return marker
    marker.commits = load_int16(at + 2) == 1
    at = skip_varint(at + number, end, &number)
    if at is NULL or number < 6 or number > end - at:
        return marker
    marker.coordinator_epoch = load_int32(at + 2)
    marker.valid = True
    return marker
