"""Which calls a disk refuses, and which stops are found to be unclean."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.log.files.checkpoints import HIGH_WATERMARKS
from ottla.log.storage.log_directory import CLEAN_MARKER
from tests.log.batches import batch
from tests.simulation.disk import SimDisk
from tests.simulation.refusals import Refusal, Stopped
from tests.simulation.violation import Violation

LOG = "/d0/t-0/00000000000000000000.log"


def disk_of(refusal: Refusal | None = None) -> SimDisk:
    disk = SimDisk(1, lambda: 0)
    disk.makedirs("/d0/t-0")
    disk.refusal = refusal
    return disk


def outcomes(disk: SimDisk, *names: str) -> list[int]:
    """The errors with which the creation of files ends; 0 for success."""
    found = []
    for name in names:
        try:
            disk.open(f"/d0/t-0/{name}", create=True)
            found.append(0)
        except OSError as error:
            found.append(error.errno or -1)
    return found


def test_calls_are_refused_after_those_that_are_skipped() -> None:
    disk = disk_of(Refusal(errno.EMFILE, skip=1, count=2))
    assert outcomes(disk, "a", "b", "c", "d") == [0, errno.EMFILE, errno.EMFILE, 0]
    assert not disk.exists("/d0/t-0/b")


def test_a_refusal_at_a_segment_waits_for_the_segments_file() -> None:
    disk = disk_of(Refusal(errno.EMFILE, skip=0, count=1, waits=True))
    assert outcomes(disk, "a", "1.log", "1.index", "1.timeindex") == [0, 0, errno.EMFILE, 0]


def test_only_calls_that_need_space_fail_for_lack_of_space() -> None:
    disk = disk_of()
    file = disk.open(LOG, create=True)
    disk.refusal = Refusal(errno.ENOSPC, skip=0, count=1)
    assert file.pread(1, 0) == b"" and outcomes(disk, LOG.rpartition("/")[2]) == [0]
    with pytest.raises(OSError, match="refusal of one call: write"):
        file.pwrite(b"x", 0)
    file.pwrite(b"x", 0)


def test_a_lack_of_descriptors_shows_before_a_missing_file() -> None:
    disk = disk_of(Refusal(errno.EMFILE, skip=0, count=2))
    for read in (disk.open, disk.read_bytes):
        with pytest.raises(OSError, match="refusal of one call: open"):
            read(LOG)
    disk.refusal = Refusal(errno.EIO, skip=0, count=1)
    with pytest.raises(FileNotFoundError):
        disk.open(LOG)


def test_a_failed_write_may_leave_a_part_of_its_bytes() -> None:
    disk = disk_of()
    file, lengths = disk.open(LOG, create=True), set[int]()
    for _ in range(100):
        file.truncate(0)
        disk.refusal = Refusal(errno.EIO, skip=0, count=1)
        with pytest.raises(OSError, match="refusal of one call: write"):
            file.pwrite(b"abc", 0)
        left = disk.read_bytes(LOG)
        assert b"abc".startswith(left)
        lengths.add(len(left))
    assert lengths == {0, 1, 2, 3}


def test_a_write_that_a_full_disk_refuses_leaves_what_fits() -> None:
    disk = disk_of()
    file, lengths = disk.open(LOG, create=True), set[int]()
    disk.capacity = 2
    for _ in range(100):
        file.truncate(0)
        with pytest.raises(OSError, match="full disk"):
            file.pwrite(b"abcdef", 0)
        lengths.add(file.size())
    assert lengths == {0, 1, 2}


def test_checks_of_the_simulation_are_not_refused() -> None:
    disk = disk_of(Refusal(errno.EIO, skip=0, count=1))
    with disk.willing():
        assert disk.listdir("/d0") == ["t-0"]
    with pytest.raises(OSError, match="refusal"):
        disk.listdir("/d0")


@pytest.mark.parametrize(("content", "high_watermark", "found"), [
    (batch(b"a"), 1, ""),
    (batch(b"a"), 0, "left the high watermark 0 of t-0"),
    (batch(b"a")[:-1], 1, "the log of t-0 needs a recovery"),
    (batch(b"a")[:-1] + b"?", 1, "the log of t-0 needs a recovery"),
])
def test_a_stop_that_is_wrongly_marked_as_clean_is_found(
    content: bytes, high_watermark: int, found: str
) -> None:
    disk = disk_of()
    options = SimpleNamespace(directories=["/d0"])
    log = SimpleNamespace(offline="it could not be opened", damage=None)
    machine: Any = SimpleNamespace(
        disk=disk, name="m", world=SimpleNamespace(options=options),
        server=SimpleNamespace(replicas=[SimpleNamespace(topic="t", index=0, log=log)]))
    disk.write_atomically(f"/d0/{HIGH_WATERMARKS}", b"0\n1\nt 0 1\n")
    stopped = Stopped(machine)
    disk.open(LOG, create=True).pwrite(content, 0)
    disk.write_atomically(f"/d0/{HIGH_WATERMARKS}", b"0\n1\nt 0 %d\n" % high_watermark)
    if high_watermark:
        stopped.check(machine)
    disk.write_atomically(f"/d0/{CLEAN_MARKER}", b"")
    if not found:
        stopped.check(machine)
        return
    with pytest.raises(Violation, match=found):
        stopped.check(machine)
