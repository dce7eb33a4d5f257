"""How much memory the process of the test, and its broker, holds."""

from __future__ import annotations


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
