# cython: boundscheck=False, wraparound=False, cdivision=True
"""The newest offset of each key, in a table of bounded size.

The table stores a keyed hash of 128 bits instead of each key. The chance that any two of ten
million keys collide is below 1 in 10^24. Nobody can construct colliding keys without the secret.
Reference: SipHash-2-4 with 128 bits of output, Aumasson and Bernstein.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <stddef.h>
    #include <sys/mman.h>

    /* Zeroed memory in huge pages, if the system offers them on request. Without huge pages, random
       access to a large table spends most of its time on page table lookups. */
    static void *ottla_table(size_t size) {
        void *made = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (made == MAP_FAILED) return NULL;
    #if defined(MADV_HUGEPAGE)
        madvise(made, size, MADV_HUGEPAGE);
    #endif
        return made;
    }
    """
    void *ottla_table(size_t size) nogil
    int munmap(void *at, size_t size) nogil

cdef double LOAD_MAX = 0.9              # Kafka's log.cleaner.io.buffer.load.factor


cdef inline uint64_t rotate(uint64_t value, int bits) noexcept nogil:
    return (value << bits) | (value >> (64 - bits))


cdef inline void mix(uint64_t *v, int rounds) noexcept nogil:
    while rounds:
        rounds -= 1
        v[0] += v[1]
        v[1] = rotate(v[1], 13) ^ v[0]
        v[0] = rotate(v[0], 32)
        v[2] += v[3]
        v[3] = rotate(v[3], 16) ^ v[2]
        v[0] += v[3]
        v[3] = rotate(v[3], 21) ^ v[0]
        v[2] += v[1]
        v[1] = rotate(v[1], 17) ^ v[2]
        v[2] = rotate(v[2], 32)


cdef void siphash(
    const uint8_t *at, Py_ssize_t size, uint64_t k0, uint64_t k1, uint64_t *low, uint64_t *high
) noexcept nogil:
    cdef uint64_t[4] v
    cdef uint64_t word = 0
    cdef uint64_t last = (<uint64_t>size) << 56
    v[0] = k0 ^ 0x736f6d6570736575u
    v[1] = k1 ^ 0x646f72616e646f6du ^ 0xee
    v[2] = k0 ^ 0x6c7967656e657261u
    v[3] = k1 ^ 0x7465646279746573u
    while size >= 8:
        memcpy(&word, at, 8)
        v[3] ^= word
        mix(v, 2)
        v[0] ^= word
        at += 8
        size -= 8
    word = 0
    memcpy(&word, at, size)
    last |= word
    v[3] ^= last
    mix(v, 2)
    v[0] ^= last
    v[2] ^= 0xee
    mix(v, 4)
    low[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xdd
    mix(v, 4)
    high[0] = v[0] ^ v[1] ^ v[2] ^ v[3]


cdef int64_t slots_for(int64_t keys) noexcept:
    return <int64_t>(max(keys, 1) / LOAD_MAX) + 2


cdef class KeyOffsets:
    """The newest offset of each key."""

    def __init__(self, int64_t memory_max, int64_t keys_max, bytes secret not None):
        if len(secret) != 16:
            raise ValueError(f"the secret must have 16 bytes, not {len(secret)}")
        memcpy(&self.secret_low, <const uint8_t *>secret, 8)
        memcpy(&self.secret_high, <const uint8_t *>secret + 8, 8)
        self.allocate(min(memory_max // <int64_t>sizeof(KeyEntry), slots_for(keys_max)))

    def __dealloc__(self):
        self.let_go()

    cdef void let_go(self) noexcept:
        if self.entries is not NULL:
            munmap(self.entries, self.slots * sizeof(KeyEntry))

    cdef int allocate(self, int64_t slots) except -1:
        cdef KeyEntry *entries
        slots = max(slots, 4)
        entries = <KeyEntry *>ottla_table(slots * sizeof(KeyEntry))
        if entries is NULL:
            raise MemoryError(f"out of memory for a cleaner's table of {slots} keys")
        self.let_go()
        self.entries, self.slots = entries, slots
        self.limit, self.used = <int64_t>(slots * LOAD_MAX), 0
        return 0

    @property
    def memory(self):
        """Size of the table in bytes."""
        return self.slots * sizeof(KeyEntry)

    def grow(self, int64_t keys):
        """Makes room for this many keys in an empty table, so that one batch always fits."""
        assert self.used == 0
        if keys > self.limit:
            self.allocate(slots_for(keys))

    cdef KeyEntry *find(self, const uint8_t *key, Py_ssize_t size) noexcept nogil:
        """The entry of a key, or the free entry that this key would get."""
        cdef uint64_t low, high, slot
        cdef KeyEntry *entry
        siphash(key, size, self.secret_low, self.secret_high, &low, &high)
        slot = low % self.slots
        while True:
            entry = self.entries + slot
            if entry.offset_plus_one == 0:
                entry.low, entry.high = low, high
                return entry
            if entry.low == low and entry.high == high:
                return entry
            slot += 1
            if slot == self.slots:
                slot = 0

    cdef void put(self, const uint8_t *key, Py_ssize_t size, int64_t offset) noexcept nogil:
        """Stores a key's offset; the caller has checked that `used` is below `limit`."""
        cdef KeyEntry *entry = self.find(key, size)
        if entry.offset_plus_one == 0:
            self.used += 1
        entry.offset_plus_one = offset + 1

    cdef int64_t get(self, const uint8_t *key, Py_ssize_t size) noexcept nogil:
        return self.find(key, size).offset_plus_one - 1

    def set(self, bytes key not None, int64_t offset):
        """Stores that `key` was written at `offset`. Raises OverflowError if the table is full."""
        if self.used >= self.limit:
            raise OverflowError(f"the table is full: it has room for {self.limit} keys")
        self.put(<const uint8_t *>key, len(key), offset)

    def offset_of(self, bytes key not None):
        """The newest offset of `key`, -1 if it is not in the table."""
        return self.get(<const uint8_t *>key, len(key))


def digest_of(bytes key not None, bytes secret not None):
    """The 16-byte digest of a key."""
    cdef KeyOffsets table = KeyOffsets(0, 1, secret)
    cdef uint64_t low, high
    siphash(<const uint8_t *>key, len(key), table.secret_low, table.secret_high, &low, &high)
    return low.to_bytes(8, "little") + high.to_bytes(8, "little")
