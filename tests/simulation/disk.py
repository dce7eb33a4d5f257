"""The disk of a simulated machine: the disk of tests/log/faulty_disk.py, used by one process after
another.

Each process of the broker has a view of its own (`reopened`), so that calls of a killed process
have no effect. The disk knows its used space. A directory may be missing for a while, or fail
permanently.
"""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable, Iterator

from tests.log.faulty_disk import FaultyDisk, FaultyFile, Inode, PowerCut
from tests.simulation.refusals import Refusal


class ProcessEnds(PowerCut, KeyboardInterrupt):
    """The process ends inside a call of the disk. This is a KeyboardInterrupt, because asyncio
    re-raises these."""


class SimFile(FaultyFile):
    """An open file of a SimDisk."""

    disk: SimDisk

    def put(self, position: int, data: bytes | None) -> None:
        super().put(position, data)
        self.inode.modified_ms = self.disk.now_ms()

    def resident(self, position: int, size: int) -> bool:
        """Whether the page cache has this range; random."""
        return self.disk.resident()


class SimDisk(FaultyDisk):
    """The view that one process has of the medium."""

    file_type = SimFile
    ended = ProcessEnds

    def __init__(self, seed: int, now_ms: Callable[[], int]) -> None:
        super().__init__(seed)
        self.now_ms = now_ms
        self.booted_ms = 0
        self.capacity: int | None = None
        self.absent: dict[str, dict[str, Inode | None]] = {}
        self.on_end: Callable[[], None] = lambda: None
        self.cold_share = 0.0
        self.locks: set[str] = set()
        self.refusal: Refusal | None = None
        self.failures = random.Random(f"failed writes {seed}")

    def seconds_since_boot(self) -> float:
        return (self.now_ms() - self.booted_ms) / 1000

    def cut_power(self) -> None:
        super().cut_power()
        self.booted_ms = self.now_ms()

    def reopened(self) -> SimDisk:
        """Returns a view for the next process. From now on, calls of the old view (`self`) have no
        effect."""
        new = SimDisk.__new__(SimDisk)
        new.__dict__.update(self.__dict__)
        new.stop_at, new.stopped, new.errors, new.locks = None, False, {}, set()
        self.stopped = True
        return new

    def resident(self) -> bool:
        return not self.cold_share or self.random.random() >= self.cold_share

    def is_well(self) -> bool:
        """Whether every call succeeds at present."""
        return not self.errors and self.capacity is None and self.refusal is None

    def stop(self) -> None:
        self.stopped = True
        self.on_end()
        raise ProcessEnds

    def room(self) -> int:
        return 1 << 40 if self.capacity is None else self.capacity - self.used()

    def used(self) -> int:
        """Bytes in files that have a name."""
        return sum(len(inode.content) for inode in self.names.values() if inode is not None)

    def free_bytes(self, path: str) -> tuple[int, int]:
        if self.capacity is None:
            return super().free_bytes(path)
        return max(0, self.capacity - self.used()), self.capacity

    def before(self, kind: str, path: str, size: int = 0) -> int:
        if self.refusal is not None:
            self.refuse(kind, path)
        return super().before(kind, path, size)

    def left_by_failure(self, size: int) -> int:
        """Half of the failed writes leave some of their bytes in the file: what the disk still has
        room for, at most."""
        left = self.failures.randrange(size + 1) if self.failures.random() < 0.5 else 0
        return max(0, min(left, self.room()))

    def refuse(self, kind: str, path: str) -> None:
        """Raises OSError if the disk is to refuse this call."""
        if not self.stopped and self.refusal is not None and self.refusal.hits(kind, path):
            raise OSError(self.refusal.code, f"injected refusal of one call: {kind}", path)

    @contextlib.contextmanager
    def willing(self) -> Iterator[None]:
        """For checks of the simulation: within this block, no call is refused or counted for
        `refusal`."""
        kept, self.refusal = self.refusal, None
        yield
        self.refusal = kept

    def change(self, kind: str, path: str, inode: Inode | None = None) -> None:
        if kind == "make" and self.refusal is not None:
            self.refuse(kind, path)
        super().change(kind, path, inode)

    def refuse_open(self, kind: str, path: str, create: bool = False) -> None:
        """Raises OSError if the disk is to refuse this opening of a file or directory. As on Linux,
        a lack of descriptors is noticed before it is noticed that there is no such file."""
        if self.refusal is not None and (
            create or path in self.names or self.refusal.code == errno.EMFILE
        ):
            self.refuse(kind, path)

    def open(self, path: str, create: bool = False) -> FaultyFile:
        self.refuse_open("open", path, create)
        if not create and path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return super().open(path, create)

    def read_bytes(self, path: str) -> bytes:
        self.refuse_open("open", path)
        return super().read_bytes(path)

    def listdir(self, path: str) -> list[str]:
        self.refuse_open("list", path)
        return super().listdir(path)

    def modified_ms(self, path: str) -> int:
        return getattr(self.inode(path), "modified_ms", 0)

    def new_id(self) -> str:
        return f"{self.random.getrandbits(120):020x}"[:22].rjust(22, "A")

    # Unmounted directories

    def holds(self, directory: str) -> bool:
        """Whether a directory has any file."""
        return any(name.startswith(directory + "/") for name in self.names)

    def take_away(self, directory: str) -> None:
        """Unmount a directory: the next start finds an empty one in its place."""
        inside = {name: inode for name, inode in self.names.items()
                  if name.startswith(directory + "/")}
        for inode in inside.values():
            if inode is not None:
                inode.durable = bytearray(inode.content)
                inode.pending.clear()
        self._forget(directory)
        self.absent[directory] = inside

    def give_back(self, directory: str) -> None:
        """Mount the directory again. Files that were written in its place meanwhile are hidden."""
        self._forget(directory)
        kept = self.absent.pop(directory)
        self.names.update(kept)
        self.durable_names.update(kept)

    def _forget(self, directory: str) -> None:
        for names in (self.names, self.durable_names):
            for name in [name for name in names if name.startswith(directory + "/")]:
                del names[name]
        self.pending_names = [
            change for change in self.pending_names if not change.path.startswith(directory + "/")
        ]
