"""Replaces segments by a cleaned one, in steps that a crash may interrupt.

    x.log.cleaned  →  x.log.swap  →  x.log      and x.txnindex, x.index, x.timeindex beside it

A `.cleaned` file may be incomplete and is removed at the next start. A `.log.swap` file is complete
and durable. If one exists, the next start removes the segments whose offsets it covers, and puts it
in their place. Reference: the files of the same names in Apache Kafka.
"""

from ottla.log.files.batch_scan import BatchScan
from ottla.log.files.disk import Disk
from ottla.wire.batch import BatchHeader
from ottla.wire.marks import reached

SWAP = ".swap"
SUFFIXES = (".txnindex", ".log", ".index", ".timeindex")
"""The order in which cleaned files are renamed to `.swap`."""


def complete_swaps(disk: Disk, directory: str, names: list[str]) -> None:
    """Finishes an interrupted replacement of segments. May itself be interrupted and repeated."""
    left = set(names)
    for name in sorted(name for name in names if name.endswith(".log" + SWAP)):
        base, final = offset_in(name), name.removesuffix(SWAP)
        end = end_of(disk, f"{directory}/{name}")
        if end is None and final in left:
            reached("a swapped segment was not whole")
            # Every `.swap` file was complete and durable: this one was damaged later. It is not
            # usable, but the segments to replace still exist.
            disk.unlink(f"{directory}/{name}")
            continue
        for old in sorted(left):
            inside = base == offset_in(old) or (end is not None and base < offset_in(old) < end)
            # The rename replaces the log file of the same name atomically.
            if inside and old.endswith(SUFFIXES) and old != final:
                disk.unlink(f"{directory}/{old}")
                left.discard(old)
        disk.rename(f"{directory}/{name}", f"{directory}/{final}")
        left.add(final)
    for name in sorted(name for name in names if name.endswith(SWAP)):
        if name.endswith(".log" + SWAP):
            continue
        final = name.removesuffix(SWAP)
        # If the loop above has put the cleaned log file in place, it has also removed the old
        # index. The new index then takes the name. If the crash came before the cleaned log file
        # became a `.swap` file, the old segments stay. An old index of this name then stays, too.
        # If there is no old index, the new index takes the name: its entries about later segments
        # do no harm.
        if final in left:
            disk.unlink(f"{directory}/{name}")
        else:
            disk.rename(f"{directory}/{name}", f"{directory}/{final}")
    disk.sync_directory(directory)


def offset_in(name: str) -> int:
    """The offset at the beginning of a file's name, -1 if there is none."""
    front = name.partition(".")[0]
    return int(front) if front.isdecimal() else -1


def end_of(disk: Disk, path: str) -> int | None:
    """The offset after a log file's last batch; None if the file has no batches or is damaged."""
    scan = BatchScan(disk.open(path), 0, disk.size(path), headers_only=True)
    end = None
    while (header := scan.batch()) is not None:
        end = BatchHeader(header).next_offset
    return end if scan.problem is None else None
