# A table from digests of keys to offsets, open addressing with linear probing. An entry:
#
#   0                8                16           24
#   | digest, 16 bytes, SipHash-2-4   | offset + 1 |      an unused entry has 0 as offset + 1

from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef struct KeyEntry:
    uint64_t low
    uint64_t high
    int64_t offset_plus_one


cdef class KeyOffsets:
    cdef KeyEntry *entries
    cdef uint64_t slots
    cdef uint64_t secret_low, secret_high
    cdef readonly int64_t used              # keys in the table
    cdef readonly int64_t limit             # keys that fit; invariant: used <= limit < slots

    cdef int allocate(self, int64_t slots) except -1
    cdef void let_go(self) noexcept
    cdef KeyEntry *find(self, const uint8_t *key, Py_ssize_t size) noexcept nogil
    cdef void put(self, const uint8_t *key, Py_ssize_t size, int64_t offset) noexcept nogil
    cdef int64_t get(self, const uint8_t *key, Py_ssize_t size) noexcept nogil
