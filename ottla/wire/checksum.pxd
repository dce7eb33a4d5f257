# CRC-32C of bytes at a pointer.

from libc.stdint cimport uint8_t, uint32_t

cdef uint32_t crc32c(const uint8_t *data, size_t size) noexcept nogil
