"""A disk in memory that loses, tears and reorders unsynced writes, and that fails on demand.

In a power cut, each write since the last sync of its file is kept as a whole, in part (by sectors),
or not at all. Of the changes of names (files and directories that were made, renamed or removed)
since their directory was synced, only the first ones are kept. A seed decides what is kept.

If a directory is synced, a file system with a journal also keeps all earlier changes of names in
other directories. A disk that is not `journaled` keeps only what a caller may rely on: the names in
the synced directory.
"""

from __future__ import annotations

import contextlib
import errno
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from ottla.log.files.disk import DelegatingFile, Disk

SECTOR = 512


class PowerCut(BaseException):
    """Raised when the power fails; no handler may catch it."""


@dataclass(eq=False)
class Inode:
    """A file: its bytes as programs see them, its bytes on the medium, and the pending writes."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)

    def apply(self, target: bytearray, position: int, data: bytes | None) -> None:
        """Write `data` at `position`, or truncate there if it is None."""
        if data is None:
            if len(target) > position:
                del target[position:]
            else:
                target.extend(bytes(position - len(target)))
            return
        if len(target) < position:
            target.extend(bytes(position - len(target)))
        target[position : position + len(data)] = data


@dataclass(eq=False)
class Change:
    """A change of a name that no sync has made durable. `kind` is "make" or "remove"; for a rename,
    `kind` is the new path, and `path` the old one."""

    kind: str
    path: str
    inode: Inode | None = None
    synced: bool = False
    """Whether the directory was synced after this change."""

    def __post_init__(self) -> None:
        self.renames = self.kind not in ("make", "remove")
        paths = (self.path, self.kind) if self.renames else (self.path,)
        self.directories = {path.rpartition("/")[0] for path in paths}
        """The directories whose names this change affects."""


class FaultyFile(DelegatingFile):
    """An open file of a FaultyDisk."""

    def __init__(self, disk: FaultyDisk, inode: Inode, path: str) -> None:
        super().__init__(-1, path)
        self.disk, self.inode = disk, inode

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        whole = bytes(data)
        try:
            room = self.disk.before("write", self.path, len(whole))
        except OSError:
            left = self.disk.left_by_failure(len(whole))
            if left:
                self.put(position, whole[:left])
            raise
        self.put(position, whole[:room])
        if room < len(whole):
            self.disk.stop()

    def put(self, position: int, data: bytes | None) -> None:
        self.inode.apply(self.inode.content, position, data)
        self.inode.pending.append((position, data))

    def pread(self, size: int, position: int) -> bytes:
        self.disk.before("read", self.path)
        self.disk.check_readable(self.inode, self.path)
        return bytes(self.inode.content[position : position + size])

    def size(self) -> int:
        return len(self.inode.content)

    def sync(self) -> None:
        self.disk.before("sync", self.path)
        self.inode.durable = bytearray(self.inode.content)
        self.inode.pending.clear()

    def truncate(self, size: int) -> None:
        self.disk.before("truncate", self.path)
        cut = len(self.inode.content) - size
        if not size:
            self.disk.unreadable.discard(self.inode)        # new writes go to other sectors
        if cut:
            self.put(size, None)
            self.disk.free += max(cut, 0)

    def reserve(self, size: int) -> None:
        self.disk.before("reserve", self.path)

    def close(self) -> None:
        pass


class FaultyDisk(Disk):
    """Used by a log in place of a Disk; `cut_power` changes it to what a restart would find.

    The power fails at the operation with the number `stop_at`; if that is a write, a part of it may
    be written. `errors` maps kinds of operations to the errno with which they fail, on paths that
    begin with `failing`; "open" fails on every path. `unreadable` has the files with bad sectors.
    """

    file_type = FaultyFile
    ended = PowerCut
    journaled = True

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.names: dict[str, Inode | None] = {"/": None}
        self.durable_names = dict(self.names)
        self.pending_names: list[Change] = []
        self.operations = 0
        self.stop_at: int | None = None
        self.stopped = False
        self.errors: dict[str, int] = {}
        self.failing = "/"
        self.unreadable: set[Inode] = set()
        self.free = 1 << 40
        self.ids = 0
        self.boots = 1

    # Faults

    def before(self, kind: str, path: str, size: int = 0) -> int:
        """Count an operation; raises a due fault. Returns how many of `size` bytes are written."""
        if self.stopped:
            raise self.ended
        if kind in self.errors and path.startswith(self.failing):
            raise OSError(self.errors[kind], f"injected {kind} error", path)
        if kind == "write":
            if size > self.room():
                raise OSError(errno.ENOSPC, "injected full disk", path)
            self.free -= size
        if kind != "read":
            self.operations += 1
            if self.operations == self.stop_at:
                if kind != "write" or not size:
                    self.stop()
                # Never all of it: a complete write is covered by a stop one operation later.
                return self.random.randrange(size)
        return size

    def left_by_failure(self, size: int) -> int:
        """How many of `size` bytes a write that fails leaves in the file."""
        return 0

    def check_readable(self, inode: Inode, path: str) -> None:
        """Raises OSError for a file with bad sectors."""
        if inode in self.unreadable:
            raise OSError(errno.EIO, "injected bad sector", path)

    def room(self) -> int:
        """How many bytes may still be written."""
        return self.free

    def stop(self) -> None:
        """Let the power fail now."""
        self.stopped = True
        raise PowerCut

    @contextlib.contextmanager
    def stops_at(self, operation: int) -> Iterator[None]:
        """Let the power fail at this operation of the disk, which ends the block without an
        error."""
        self.stop_at = operation
        with contextlib.suppress(PowerCut):
            yield

    def kill(self) -> None:
        """End only the process: all writes stay, and the disk can be used again."""
        self.stopped, self.stop_at, self.errors = False, None, {}

    def cut_power(self) -> None:
        """Lose, tear and reorder what was not synced."""
        self.kill()
        self.boots += 1
        self.durable_names = self.kept_names(self.random.randrange(len(self.pending_names) + 1))
        self.pending_names.clear()
        self.names = dict(self.durable_names)
        for inode in self.names.values():
            if inode is not None:
                self.lose(inode)

    def lose(self, inode: Inode) -> None:
        mode = self.random.randrange(4)
        for position, data in inode.pending:
            if mode == 0 or (mode == 1 and self.random.random() < 0.5):
                continue
            if mode < 3 and data is not None and self.random.random() < 0.5:
                position, data = self.torn(position, data)
            inode.apply(inode.durable, position, data)
        inode.content = bytearray(inode.durable)
        inode.pending.clear()

    def torn(self, position: int, data: bytes) -> tuple[int, bytes]:
        """A part of a write: some sectors at its start, or those at its end."""
        edge = (SECTOR - position % SECTOR + SECTOR * self.random.randrange(4)) % (len(data) + 1)
        if self.random.random() < 0.5:
            return position, data[:edge]
        return position + edge, data[edge:]

    # Names

    def kept_names(self, count: int = 0) -> dict[str, Inode | None]:
        """The names that a power cut leaves if it keeps the first `count` pending changes, and all
        that were synced.

        Without the lost changes, the directory of a later change may have another path: the change
        is kept below that path. In a directory that is lost itself, nothing is kept."""
        lost, names = list[Change](), dict(self.durable_names)
        for number, change in enumerate(self.pending_names):
            if number >= count and not change.synced:
                lost.append(change)
                continue
            path = path_without(lost, change.path)
            kind = path_without(lost, change.kind) if change.renames else change.kind
            if path is not None and kind is not None:
                self.apply_name(names, kind, path, change.inode)
        return names

    def apply_name(
        self, names: dict[str, Inode | None], kind: str, path: str, inode: Inode | None
    ) -> None:
        if kind == "remove":
            names.pop(path, None)
        elif kind == "make":
            names[path] = inode
        elif names.get(path) is not None:           # a file: nothing lies below it
            names[kind] = names.pop(path)
        else:
            for name in [n for n in list(names) if n == path or n.startswith(path + "/")]:
                names[kind + name[len(path) :]] = names.pop(name)

    def change(self, kind: str, path: str, inode: Inode | None = None) -> None:
        self.before("name", path)
        self.apply_name(self.names, kind, path, inode)
        self.pending_names.append(Change(kind, path, inode))

    def open(self, path: str, create: bool = False) -> FaultyFile:
        inode = self.names.get(path)
        if "open" in self.errors:
            raise OSError(self.errors["open"], "injected open error", path)
        if inode is None:
            if not create or path.rpartition("/")[0] not in self.names:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            inode = Inode()
            self.change("make", path, inode)
        return self.file_type(self, inode, path)

    def listdir(self, path: str) -> list[str]:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        front = path.rstrip("/") + "/"
        # A copy: logs are recovered in threads, which create and remove files meanwhile.
        inside = [name[len(front) :] for name in list(self.names) if name.startswith(front)]
        return [name for name in inside if name and "/" not in name]

    def exists(self, path: str) -> bool:
        return path in self.names

    def subdirectories(self, path: str) -> list[str]:
        front = path.rstrip("/") + "/"
        return [name for name in self.listdir(path) if self.names[front + name] is None]

    def size(self, path: str) -> int:
        return len(self.inode(path).content)

    def modified_ms(self, path: str) -> int:
        return 0

    def read_bytes(self, path: str) -> bytes:
        self.check_readable(self.inode(path), path)
        return bytes(self.inode(path).content)

    def inode(self, path: str) -> Inode:
        """The file behind a path. Raises FileNotFoundError."""
        found = self.names.get(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return found

    def makedirs(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent and parent not in self.names:
            self.makedirs(parent)
        if path not in self.names:
            self.change("make", path)

    def rename(self, source: str, target: str) -> None:
        if source not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self.change(target, source)

    def unlink(self, path: str) -> None:
        if path in self.names:
            self.change("remove", path)

    def remove_directory(self, path: str) -> None:
        self.unlink(path)

    def sync_directory(self, path: str) -> None:
        self.before("sync", path)
        pending = self.pending_names
        if self.journaled:
            # A journal writes changes in order: all up to the last change in `path` are kept.
            count = len(pending)
            while count and pending[count - 1].path.rpartition("/")[0] not in (path, ""):
                count -= 1
        else:
            self.note_synced({path, ""})
            count = next((at for at, one in enumerate(pending) if not one.synced), len(pending))
        self.keep_names_for_good(count)

    def note_synced(self, directories: set[str]) -> None:
        """Note which changes a sync of these directories keeps. If a name moved from one directory
        to another, a sync of one of them keeps the changes in both."""
        known = 0
        while known != len(directories):
            known = len(directories)
            for change in self.pending_names:
                if not change.synced and not directories.isdisjoint(change.directories):
                    directories |= change.directories
        for change in self.pending_names:
            if not change.synced:
                change.synced = not directories.isdisjoint(change.directories)

    def keep_names_for_good(self, count: int) -> None:
        """Move the first `count` changes of names to the medium."""
        for change in self.pending_names[:count]:
            self.apply_name(self.durable_names, change.kind, change.path, change.inode)
        del self.pending_names[:count]

    def sync_file_system(self, path: str) -> None:
        self.before("sync", path)
        self.durable_names = dict(self.names)
        self.pending_names.clear()
        for name, inode in list(self.names.items()):
            if inode is not None:
                FaultyFile(self, inode, name).sync()

    def lock(self, path: str) -> FaultyFile:
        return self.open(path, create=True)

    def new_id(self) -> str:
        self.ids += 1
        return f"id-{self.ids}"

    def boot_id(self) -> str:
        return f"boot-{self.boots}"

    def seconds_since_boot(self) -> float:
        return math.inf

    def free_bytes(self, path: str) -> tuple[int, int]:
        return self.free, 1 << 40


def path_without(lost: list[Change], path: str) -> str | None:
    """The path that a file or directory would have without the `lost` changes of names; None if one
    of these changes made its directory."""
    for change in reversed(lost):
        if change.kind == "make":
            if path.startswith(change.path + "/"):
                return None
        elif change.renames and path.startswith(change.kind + "/"):
            path = change.path + path[len(change.kind) :]
    return path
