# Checksums of bytes at a pointer: CRC-32C of batches v2, CRC-32 of messages v0 and v1.

from libc.stdint cimport uint8_t, uint32_t

cdef uint32_t crc32c(const uint8_t *data, size_t size) noexcept nogil
cdef uint32_t crc32(const uint8_t *data, size_t size) noexcept nogil
