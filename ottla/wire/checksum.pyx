# cython: boundscheck=False, wraparound=False
"""CRC-32C of record batches, by the processor's CRC instruction if it has one, otherwise by tables.

The choice is made once, on import. CRC-32, for the older message formats, always uses tables.
References: RFC 3720, B.4; RFC 1952, 8.
"""

from libc.stdint cimport uint8_t, uint32_t

cdef extern from "checksum.h":
    int ottla_crc_prepare() noexcept nogil
    uint32_t ottla_crc32c_table(uint32_t crc, const uint8_t *at, size_t size) noexcept nogil
    uint32_t ottla_crc32_table(uint32_t crc, const uint8_t *at, size_t size) noexcept nogil
    uint32_t ottla_crc32c_hardware(uint32_t crc, const uint8_t *at, size_t size) noexcept nogil

cdef bint has_hardware = ottla_crc_prepare() != 0


cdef uint32_t crc32c_part(uint32_t state, const uint8_t *data, size_t size) noexcept nogil:
    if has_hardware:
        return ottla_crc32c_hardware(state, data, size)
    return ottla_crc32c_table(state, data, size)


cdef uint32_t crc32c(const uint8_t *data, size_t size) noexcept nogil:
    return crc32c_part(<uint32_t>0xffffffff, data, size) ^ <uint32_t>0xffffffff


cdef uint32_t crc32(const uint8_t *data, size_t size) noexcept nogil:
    return ottla_crc32_table(0xffffffff, data, size) ^ <uint32_t>0xffffffff


def crc32c_of(const uint8_t[::1] data not None):
    """CRC-32C of a contiguous bytes-like object."""
    return crc32c(&data[0] if data.shape[0] else NULL, data.shape[0])


def crc32c_by_table(const uint8_t[::1] data not None):
    """CRC-32C by a table, for processors without a CRC instruction."""
    cdef uint32_t crc = ottla_crc32c_table(
        0xffffffff, &data[0] if data.shape[0] else NULL, data.shape[0])
    return crc ^ <uint32_t>0xffffffff


def crc32_of(const uint8_t[::1] data not None):
    """CRC-32 (as zlib's) of a contiguous bytes-like object."""
    return crc32(&data[0] if data.shape[0] else NULL, data.shape[0])
