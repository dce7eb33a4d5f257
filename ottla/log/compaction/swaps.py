"""A cleaned segment takes the place of those that it was made of, in steps that a crash may stop.

    x.log.cleaned  →  x.log.swap  →  x.log      and x.txnindex, x.index, x.timeindex beside it

A `.cleaned` file may be cut off and is removed at the next start. A `.log.swap` file is whole and
on the medium: from it on, the start removes the segments that lie within its offsets and lets it
take their place. Reference: what Apache Kafka's brokers do with the same names.
"""

from ottla.log.disk import Disk
from ottla.log.recovery.scan import BatchScan

SWAP = ".swap"
SUFFIXES = (".txnindex", ".log", ".index", ".timeindex")
"""In the order in which cleaned files become `.swap`."""


def complete_swaps(disk: Disk, directory: str, names: list[str]) -> None:
    """Finish what an interrupted replacement of segments began. May be interrupted itself."""
    left = set(names)
    for name in sorted(name for name in names if name.endswith(".log" + SWAP)):
        base, final = offset_in(name), name.removesuffix(SWAP)
        end = end_of(disk, f"{directory}/{name}")
        if end is None and final in left:
            # It is not what was synced once, and the segments that it was made of are there.
            disk.unlink(f"{directory}/{name}")
            continue
        for old in sorted(left):
            inside = base == offset_in(old) or (end is not None and base < offset_in(old) < end)
            # The log file of the same name is replaced by the rename, in one step.
            if inside and old.endswith(SUFFIXES) and old != final:
                disk.unlink(f"{directory}/{old}")
                left.discard(old)
        disk.rename(f"{directory}/{name}", f"{directory}/{final}")
        left.add(final)
    for name in sorted(name for name in names if name.endswith(SWAP)):
        if name.endswith(".log" + SWAP):
            continue
        final = name.removesuffix(SWAP)
        # Either its log has its place already, or never got so far: then the old file is there, or
        # there was none, and an index that tells too much does no harm.
        if final in left:
            disk.unlink(f"{directory}/{name}")
        else:
            disk.rename(f"{directory}/{name}", f"{directory}/{final}")
    disk.sync_directory(directory)


def offset_in(name: str) -> int:
    """The offset that a file's name begins with, -1 if it begins with none."""
    front = name.partition(".")[0]
    return int(front) if front.isdecimal() else -1


def end_of(disk: Disk, path: str) -> int | None:
    """The offset behind the last batch of a log file; None if its headers contradict themselves."""
    scan = BatchScan(disk.open(path), 0, disk.size(path), headers_only=True)
    end = None
    while (header := scan.batch()) is not None:
        end = int.from_bytes(header[:8], "big") + int.from_bytes(header[23:27], "big") + 1
    return end if scan.problem is None else None
