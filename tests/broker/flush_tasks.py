"""Flush tasks of real files, and of one that cannot be synced."""

from __future__ import annotations

import os
from pathlib import Path

from ottla.log.files.disk import Disk, File
from ottla.log.files.flush import EpochsFile, FlushTask


def opened(path: Path, number: int = 0) -> File:
    file = Disk().open(str(path / f"{number}.log"), create=True)
    file.pwrite(b"record", 0)
    return file


def refusing() -> File:
    """A file that cannot be synced."""
    reading_end, writing_end = os.pipe()
    os.close(reading_end)
    return File(writing_end, "a pipe")


def task(files: list[File], directories: list[str] | None = None) -> FlushTask:
    return FlushTask(Disk(), 1, files, directories or [], EpochsFile(Disk(), "t-0"), 1, None)
