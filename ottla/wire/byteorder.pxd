# Loads and stores at unaligned addresses, in big-endian, the only byte order on Kafka's wire.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    #define OTTLA_SWAP16(x) __builtin_bswap16(x)
    #define OTTLA_SWAP32(x) __builtin_bswap32(x)
    #define OTTLA_SWAP64(x) __builtin_bswap64(x)
    #else
    #define OTTLA_SWAP16(x) (x)
    #define OTTLA_SWAP32(x) (x)
    #define OTTLA_SWAP64(x) (x)
    #endif
    """
    uint16_t OTTLA_SWAP16(uint16_t) noexcept nogil
    uint32_t OTTLA_SWAP32(uint32_t) noexcept nogil
    uint64_t OTTLA_SWAP64(uint64_t) noexcept nogil


cdef inline int16_t load_int16(const uint8_t *at) noexcept nogil:
    cdef uint16_t value
    memcpy(&value, at, 2)
    return <int16_t>OTTLA_SWAP16(value)


cdef inline int32_t load_int32(const uint8_t *at) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, at, 4)
    return <int32_t>OTTLA_SWAP32(value)


cdef inline int64_t load_int64(const uint8_t *at) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, at, 8)
    return <int64_t>OTTLA_SWAP64(value)


cdef inline void store_int16(uint8_t *at, int16_t value) noexcept nogil:
    cdef uint16_t swapped = OTTLA_SWAP16(<uint16_t>value)
    memcpy(at, &swapped, 2)


cdef inline void store_int32(uint8_t *at, int32_t value) noexcept nogil:
    cdef uint32_t swapped = OTTLA_SWAP32(<uint32_t>value)
    memcpy(at, &swapped, 4)


cdef inline void store_int64(uint8_t *at, int64_t value) noexcept nogil:
    cdef uint64_t swapped = OTTLA_SWAP64(<uint64_t>value)
    memcpy(at, &swapped, 8)
