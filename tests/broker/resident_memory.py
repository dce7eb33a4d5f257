"""The resident memory of the test's process, which includes the broker."""

from __future__ import annotations


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
