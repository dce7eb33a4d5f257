# Checksums of bytes at a pointer: CRC-32C of batches v2, CRC-32 of messages v0 and v1.

from libc.stdint cimport uint8_t, uint32_t

cdef uint32_t crc32c(const uint8_t *data, size_t size) noexcept nogil
# CRC-32C in parts: start with CRC32C_START; the checksum is the last result with all bits inverted.
cdef enum:
    CRC32C_START = 0xffffffff
cdef uint32_t crc32c_part(uint32_t state, const uint8_t *data, size_t size) noexcept nogil
cdef uint32_t crc32(const uint8_t *data, size_t size) noexcept nogil
