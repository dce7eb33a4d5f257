"""Which partition of an internal topic holds a group or a transactional id."""

from __future__ import annotations

from functools import lru_cache

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"


def java_hash(text: str) -> int:
    """Java's String.hashCode, which takes UTF-16 code units and gives a signed 32-bit number."""
    value = 0
    if text.isascii():
        for byte in text.encode():
            value = (31 * value + byte) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for position in range(0, len(units), 2):
            unit = units[position] << 8 | units[position + 1]
            value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


CACHED_CHARS_MAX = 255
"""The results for longer names are not cached: a client may send names of 32 KiB, and the caches
keep thousands of entries."""


def partition_for(key: str, partitions: int) -> int:
    """Kafka's `abs(hashCode) % partitions`, where abs of the smallest integer counts as 0."""
    if len(key) > CACHED_CHARS_MAX:
        return _partition_for.__wrapped__(key, partitions)
    return _partition_for(key, partitions)


@lru_cache(maxsize=1 << 14)
def _partition_for(key: str, partitions: int) -> int:
    value = java_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % partitions
