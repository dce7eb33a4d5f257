"""The expected sizes of sealed segments' transaction indexes, in a file for the next start.

After a crash, an index may be missing, or cut off between two entries. If a start did not notice
this, the segment would seem to have fewer aborted transactions than it has. Then read_committed
consumers would get aborted records. The checkpoint file `.ottla-aborted-sizes` has the sizes:
version, number of entries, then one entry per line.

    0
    1
    events 0 4711 68                topic, partition, base offset of the segment, bytes

The file covers the segments that recovery does not read: those below the recovery point that is
checkpointed together with this file. If an index is shorter than the size in its entry, it is
rebuilt from the segment's batches and only then used. If only compaction made it shorter, the
rebuild costs time and nothing else. The size -1 marks an index that has to be rebuilt in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ottla.log.files.checkpoints import Partition
from ottla.log.files.disk import Disk

ABORTED_SIZES = ".ottla-aborted-sizes"
Sizes = Mapping[int, int]
"""Sizes in bytes, by the base offset of the segment; a segment without an index has no entry."""


def lines_of(logs: Mapping[Partition, Sizes]) -> Iterator[str]:
    """Yields the lines of the file one by one."""
    yield "0"
    yield str(sum(map(len, logs.values())))
    for (topic, partition), sizes in logs.items():
        for base_offset, size in sizes.items():
            yield f"{topic} {partition} {base_offset} {size}"


def decode(data: bytes) -> dict[Partition, dict[int, int]]:
    """Parses the text of the file. Raises ValueError."""
    version, count, *lines = data.decode().split("\n")
    if version != "0":
        raise ValueError(f"the list of transaction index sizes has version {version!r}, expected 0")
    sizes: dict[Partition, dict[int, int]] = {}
    for line in lines[:-1]:
        topic, partition, base_offset, size = line.split(" ")
        sizes.setdefault((topic, int(partition)), {})[int(base_offset)] = int(size)
    if len(lines) - 1 != int(count):
        raise ValueError(
            f"the list of transaction index sizes has {len(lines) - 1} entries, expected {count}")
    return sizes


def read(disk: Disk, path: str) -> dict[Partition, dict[int, int]]:
    """The entries of the file; empty if it is missing or damaged."""
    try:
        return decode(disk.read_bytes(path))
    except (FileNotFoundError, ValueError):
        return {}
