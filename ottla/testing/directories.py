"""Makes the temporary directory for a test broker's data, in memory if enough is free.

A directory is locked by its test run. A directory without a lock was left by a run whose processes
could not clean up, and the next run removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

MEMORY = Path("/dev/shm")
MEMORY_FREE_MIN = 1 << 30       # by default, /dev/shm of a container has only 64 MiB
PREFIX = "ottla-test-"
LOCK = "lock"
LEFT_AFTER_SECONDS = 60.0


def base_directory() -> Path:
    """Memory (tmpfs) if at least 1 GiB of it is free, otherwise the temporary directory."""
    try:
        status = os.statvfs(MEMORY)
        if os.access(MEMORY, os.W_OK) and status.f_bavail * status.f_frsize >= MEMORY_FREE_MIN:
            return MEMORY
    except OSError:
        pass
    return Path(tempfile.gettempdir())


def make_directory(base: Path) -> tuple[Path, int]:
    """A new directory and the descriptor that locks it."""
    remove_leftovers(base)
    path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
    return path, lock(path)


def lock(path: Path) -> int:
    """Locks a directory. The descriptor is passed to the process that removes the directory."""
    fd = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def remove_leftovers(base: Path) -> None:
    """Remove the directories of this user that no test run has locked."""
    for path in base.glob(PREFIX + "*"):
        try:
            status = path.lstat()
            fresh = time.time() - status.st_mtime < LEFT_AFTER_SECONDS
            if status.st_uid != os.getuid() or fresh:
                continue                # a fresh directory may be about to be locked
            fd = lock(path)
        except OSError:
            continue
        shutil.rmtree(path, ignore_errors=True)
        os.close(fd)
