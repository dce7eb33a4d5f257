# Zigzag integers of variable length inside records: reading and writing them, and their size.
#
# Seven bits a byte, the lowest first; the highest bit says that another byte follows. The sign is
# the lowest bit of the value: 0, -1, 1, -2, 2 are encoded as 0, 1, 2, 3, 4.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t


cdef inline const uint8_t *read_bits(
    const uint8_t *at, const uint8_t *end, int shift_max, uint8_t last_byte_max, uint64_t *value
) noexcept nogil:
    """Reads an unsigned integer and returns its end; NULL if it is too long or exceeds `end`.

    The last byte that an integer may have is the one whose bits begin at `shift_max`; that byte may
    be at most `last_byte_max`. Callers pass constants for these two, which cost nothing once
    inlined.
    """
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
            if at >= end or shift > shift_max:
                return NULL
            byte = at[0]
            at += 1
            if shift == shift_max and byte > last_byte_max:
                return NULL
            bits |= (byte & 0x7f) << shift
            if byte < 0x80:
                break
            shift += 7
    value[0] = bits
    return at


cdef inline const uint8_t *read_varint(
    const uint8_t *at, const uint8_t *end, int32_t *value
) noexcept nogil:
    """Reads a zigzag int32 and returns its end; NULL if it is too long or exceeds `end`."""
    cdef uint64_t bits
    at = read_bits(at, end, 28, 15, &bits)
    if at is not NULL:
        value[0] = <int32_t>((bits >> 1) ^ (~(bits & 1) + 1))
    return at


cdef inline const uint8_t *read_varlong(
    const uint8_t *at, const uint8_t *end, int64_t *value
) noexcept nogil:
    """Reads a zigzag int64 and returns its end; NULL if it is too long or exceeds `end`."""
    cdef uint64_t bits
    at = read_bits(at, end, 63, 1, &bits)
    if at is not NULL:
        value[0] = <int64_t>((bits >> 1) ^ (~(bits & 1) + 1))
    return at


cdef inline uint8_t *write_varlong(uint8_t *at, int64_t value) noexcept nogil:
    """Writes a zigzag int64, or int32, at a pointer; returns its end, at most 10 bytes further."""
    cdef uint64_t bits = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    while bits >= 0x80:
        at[0] = <uint8_t>(bits & 0x7f | 0x80)
        at += 1
        bits >>= 7
    at[0] = <uint8_t>bits
    return at + 1


cdef inline int varlong_size(int64_t value) noexcept nogil:
    """The number of bytes that `write_varlong` writes."""
    cdef uint64_t bits = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int size = 1
    while bits >= 0x80:
        bits >>= 7
        size += 1
    return size
