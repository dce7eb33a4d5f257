"""The partition of a key, as Java's clients choose it: by murmur2 of the key's bytes."""

from __future__ import annotations

SEED, FACTOR = 0x9747B28C, 0x5BD1E995
WORD = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that Java's default partitioner chooses for a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 of Austin Appleby, with the seed of Kafka's clients."""
    length = len(data)
    digest = SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * FACTOR & WORD
        word = (word ^ word >> 24) * FACTOR & WORD
        digest = digest * FACTOR & WORD ^ word
    if length > whole:
        digest = (digest ^ int.from_bytes(data[whole:], "little")) * FACTOR & WORD
    digest = (digest ^ digest >> 13) * FACTOR & WORD
    return digest ^ digest >> 15
