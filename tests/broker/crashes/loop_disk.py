"""A real file system whose power can be cut: ext4 on a loop device, in a file.

The cut is ext4's shutdown ioctl, without a flush of the journal. From then on every write and sync
fails. After the next mount, only what had been synced is certain to be there.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2


def run(*command: str | Path) -> None:
    """Run a command. If it fails, raise an OSError with its error output."""
    words = [str(word) for word in command]
    ended = subprocess.run(words, capture_output=True, text=True)
    if ended.returncode:
        raise OSError(f"{' '.join(words)}: {ended.stderr.strip()}")


def cut_power(mount_point: Path) -> None:
    """Cut the power: unwritten data are lost, and every access fails until the next mount."""
    handle = os.open(mount_point, os.O_RDONLY)
    try:
        fcntl.ioctl(handle, EXT4_IOC_SHUTDOWN, struct.pack("=I", NO_LOG_FLUSH))
    finally:
        os.close(handle)


class Mounted:
    """A file system that is mounted at `mount_point` until the block ends."""

    mount_point: Path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        subprocess.run(["umount", "-l", str(self.mount_point)], capture_output=True)


class LoopDisk(Mounted):
    """An ext4 file system on a loop device. Skips the test if the machine does not allow it."""

    def __init__(self, directory: Path, size_bytes: int) -> None:
        if sys.platform != "linux" or os.geteuid() != 0:
            pytest.skip("a loop mount needs Linux and root")
        if shutil.which("mkfs.ext4") is None:
            pytest.skip("a loop mount needs mkfs.ext4 (e2fsprogs)")
        self.image, self.mount_point = directory / "image", directory / "mounted"
        self.mount_point.mkdir()
        self.image.touch()
        os.truncate(self.image, size_bytes)
        run("mkfs.ext4", "-q", str(self.image))
        try:
            self.mount()
        except OSError as error:
            pytest.skip(f"no loop mount here: {error}")

    def mount(self) -> None:
        """Mount the file system, which replays its journal."""
        run("mount", "-o", "loop", str(self.image), str(self.mount_point))

    def unmount(self) -> None:
        """Unmount the file system; no process may have files open in it."""
        run("umount", str(self.mount_point))

    def cut_power(self) -> None:
        """Cut the power of the disk."""
        cut_power(self.mount_point)


class MemoryDisk(Mounted):
    """A file system in memory with a fixed size. Once that is used up, writes fail at once."""

    def __init__(self, mount_point: Path, size_bytes: int) -> None:
        if sys.platform != "linux" or os.geteuid() != 0:
            pytest.skip("a mount needs Linux and root")
        self.mount_point = mount_point
        mount_point.mkdir()
        try:
            run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(mount_point))
        except OSError as error:
            pytest.skip(f"no tmpfs mount here: {error}")
