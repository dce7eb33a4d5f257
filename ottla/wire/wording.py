"""A number with its noun, for the messages of all packages."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """1 partition, 2 partitions, 1,234 entries."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
