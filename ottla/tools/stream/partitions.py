"""The partition of a key: as Java's clients choose it, by murmur2 of the key's bytes, or as one of
librdkafka's partitioners chooses it."""

from __future__ import annotations

import zlib

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


def fnv1a(data: bytes) -> int:
    """The 32-bit FNV-1a hash as a positive number, as librdkafka and Sarama compute it."""
    digest = 0x811C9DC5
    for byte in data:
        digest = (digest ^ byte) * 0x01000193 & WORD
    return digest if digest < 1 << 31 else (1 << 32) - digest


HASHES = {
    "murmur2": lambda key: murmur2(key) & 0x7FFFFFFF, "fnv1a": fnv1a, "consistent": zlib.crc32,
}
"""The hash of each of librdkafka's partitioners. Those with the suffix _random choose a random
partition for a record without a key."""


def chosen_by(partitioner: str, key: bytes, partitions: int) -> int | None:
    """The partition that a partitioner of librdkafka chooses for a key; None if it chooses a random
    one."""
    found = HASHES.get(partitioner.removesuffix("_random"))
    return None if found is None else found(key) % partitions
