"""Keeps the host from taking back a virtual machine's memory during a benchmark.

A host may take memory back as soon as a guest has freed two megabytes in one piece. If a process
then touches a page of this memory, the host has to provide a new page of zeros. On the machine of
`results/` this costs 2.5 to 3.5 CPU seconds a gigabyte, which the guest charges to the process. A
broker's own work costs about one CPU second a gigabyte. So the measured cost of a load that fills
and frees memory would depend on luck.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator

from benchmarks import machine

CHUNK = 64 << 20
PIECE = 256 << 10  # one page of each piece is kept
SPARE = 4 << 30  # left free for everything else


@contextlib.contextmanager
def kept(size: int) -> Iterator[None]:
    """Make the host provide about `size` bytes of memory. While the block runs, hold one page in
    each PIECE of this memory.

    The other pages are free for other use, but never in one piece that the host could take back.
    They cannot become huge pages either; neither broker uses huge pages here.
    """
    chunks: list[mmap.mmap] = []
    zeros = bytes(CHUNK)
    with contextlib.ExitStack() as stack:
        for _ in range(min(size, machine.free_memory() - SPARE) // CHUNK):
            chunks.append(stack.enter_context(mmap.mmap(-1, CHUNK)))
            chunks[-1].madvise(mmap.MADV_NOHUGEPAGE)
            chunks[-1][:] = zeros
        for chunk in chunks:
            for start in range(0, CHUNK, PIECE):
                chunk.madvise(
                    mmap.MADV_DONTNEED, start + mmap.PAGESIZE, PIECE - mmap.PAGESIZE
                )
        yield
