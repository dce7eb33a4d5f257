"""Which log directories a stop marks as clean; the next start believes their checkpoints."""

from __future__ import annotations

import shutil
from errno import EIO, EMFILE
from pathlib import Path

import pytest

from ottla.log.files import closed_logs
from ottla.log.files.disk import Disk
from ottla.log.files.flush import LOGS_ONE_BY_ONE_MAX
from ottla.log.partition.config import LogConfig
from ottla.log.partition.damage import Damage
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.storage.clean_stop import flush_everything
from ottla.log.storage.log_directory import CLEAN_MARKER
from ottla.log.storage.storage import Hooks, Storage
from ottla.wire.errors import StorageFailed
from tests.fakes import FakeClock
from tests.log.batches import batch, values_of
from tests.log.faulty_disk import FaultyDisk

IDS = {"t": b"t" * 16, "u": b"u" * 16}


class Stopping:
    """A storage of two directories; t-0 is in the first one, u-0 in the second one."""

    def __init__(self) -> None:
        self.disk = FaultyDisk()
        self.failed: list[tuple[str, str]] = []
        self.start()
        for name in IDS:
            self.log(name).append_bytes(batch(b"of %b" % name.encode()), 0)
        self.storage.checkpoint([((name, 0), 1) for name in IDS])

    def start(self) -> None:
        hooks = Hooks(on_failure=lambda path, reason: self.failed.append((path, reason)))
        self.storage = Storage.open(self.disk, FakeClock(), ["/a", "/b"], hooks=hooks)

    def log(self, name: str) -> PartitionLog:
        return self.storage.get_or_create(name, 0, IDS[name], LogConfig())

    def marked(self) -> set[str]:
        return {each for each in ("/a", "/b") if self.disk.exists(f"{each}/{CLEAN_MARKER}")}


@pytest.fixture
def stopping() -> Stopping:
    return Stopping()


def test_all_directories_of_a_good_stop_are_marked_with_the_state_of_their_logs(
    stopping: Stopping,
) -> None:
    disk = stopping.disk
    logs = dict(stopping.storage.logs)
    stopping.storage.close([(("t", 0), 1)])
    assert stopping.marked() == {"/a", "/b"} and stopping.failed == []
    for path, key in (("/a", ("t", 0)), ("/b", ("u", 0))):
        closed = closed_logs.read(disk, f"{path}/{closed_logs.CLOSED_LOGS}")
        assert closed.keys() == {key} and closed[key].log_end_offset == 1
    assert not stopping.storage.logs
    assert all("has stopped" in str(log.offline) for log in logs.values())
    disk.cut_power()
    stopping.start()
    assert all(each.clean for each in stopping.storage.directories)


def test_a_log_that_nobody_asked_for_keeps_its_state(stopping: Stopping) -> None:
    stopping.storage.close()
    stopping.start()
    stopping.log("t").append_bytes(batch(b"x"), 0)
    stopping.storage.close()
    path = f"/b/{closed_logs.CLOSED_LOGS}"
    assert closed_logs.read(stopping.disk, path)["u", 0].log_end_offset == 1
    stopping.start()
    assert values_of(stopping.log("u")) == [b"of u"]


def test_a_directory_whose_log_cannot_be_closed_is_not_marked(stopping: Stopping) -> None:
    stopping.log("t").append_bytes(batch(b"more"), 0)
    stopping.disk.errors, stopping.disk.failing = {"sync": EIO}, "/a/t-0"
    stopping.storage.close()
    assert stopping.marked() == {"/b"}
    [(path, reason)] = stopping.failed
    assert path == "/a" and "sync" in reason


def test_a_log_that_failed_before_the_stop_is_not_told_again(stopping: Stopping) -> None:
    stopping.storage.fail(stopping.storage.directories[0], "a disk died")
    stopping.failed.clear()
    stopping.storage.close()
    assert stopping.marked() == {"/b"} and stopping.failed == []


def test_a_log_whose_files_something_removed_leaves_the_others_marked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failed: list[str] = []
    hooks = Hooks(on_failure=lambda path, reason: failed.append(reason))
    storage = Storage.open(Disk(), FakeClock(), [str(tmp_path)], hooks=hooks)
    for name in "tu":
        log = storage.get_or_create(name, 0, IDS[name], LogConfig())
        log.append_bytes(batch(name.encode()), 0)
    shutil.rmtree(tmp_path / "t-0")
    storage.close()
    assert (tmp_path / CLEAN_MARKER).exists() and failed == []
    assert f"{tmp_path}/t-0 disappeared while the broker ran; it had offsets 0 to 0" in caplog.text
    storage = Storage.open(Disk(), FakeClock(), [str(tmp_path)])
    assert values_of(storage.get_or_create("u", 0, IDS["u"], LogConfig())) == [b"u"]


@pytest.mark.parametrize("opened_later", [False, True])
@pytest.mark.parametrize("refused", [f"{0:020d}.log", "partition.metadata"])
def test_a_directory_with_a_log_that_could_not_be_recovered_is_not_marked(
    stopping: Stopping, refused: str, opened_later: bool
) -> None:
    stopping.disk.kill()
    stopping.start()
    stopping.log("u")
    inode = stopping.disk.inode(f"/a/t-0/{refused}")
    stopping.disk.unreadable.add(inode)
    with pytest.raises(StorageFailed, match="t-0 could not be opened"):
        stopping.log("t")
    stopping.disk.unreadable.discard(inode)
    if opened_later:
        stopping.log("t")
    stopping.storage.close()
    assert stopping.marked() == ({"/a", "/b"} if opened_later else {"/b"})


def test_a_log_that_cannot_be_opened_after_a_clean_stop_needs_no_recovery_later(
    stopping: Stopping,
) -> None:
    stopping.storage.close()
    stopping.disk.unlink(f"/a/{closed_logs.CLOSED_LOGS}")
    stopping.start()
    stopping.disk.errors = {"open": EMFILE}
    with pytest.raises(StorageFailed, match="t-0 could not be opened"):
        stopping.log("t")
    stopping.disk.errors = {}
    stopping.storage.close()
    assert stopping.marked() == {"/a", "/b"}


def test_a_directory_without_its_last_checkpoint_is_not_marked(stopping: Stopping) -> None:
    stopping.log("t").append_bytes(batch(b"more"), 0)
    stopping.disk.errors, stopping.disk.failing = {"write": EIO}, "/a/recovery-point"
    stopping.storage.close()
    assert stopping.marked() == {"/b"}
    assert "its last checkpoint could not be written" in stopping.failed[0][1]


@pytest.mark.parametrize("name", [CLEAN_MARKER, closed_logs.CLOSED_LOGS])
def test_a_stop_that_cannot_be_marked_is_told(stopping: Stopping, name: str) -> None:
    stopping.disk.errors, stopping.disk.failing = {"write": EIO}, f"/a/{name}"
    stopping.storage.close()
    assert stopping.marked() == {"/b"}
    assert "its marker of a clean stop could not be written" in stopping.failed[0][1]


@pytest.mark.parametrize(("written", "marked"), [(3, {"/a", "/b"}), (2, {"/b"}), (1, {"/b"})])
def test_a_damage_that_no_checkpoint_shows_has_the_next_start_look(
    stopping: Stopping, written: int, marked: set[str]
) -> None:
    """The damaged log ends at offset 2. If a checkpoint has a higher offset, every start notices
    the damage, so the directory may be marked as clean."""
    log, home = stopping.log("t"), stopping.storage.directories[0]
    log.append_bytes(batch(b"more"), 0)
    log.flush()
    home.recovery_points["t", 0] = home.high_watermarks["t", 0] = written
    log.health.note_damage(Damage(f"{log.directory}/{0:020d}.log", 0, "bits have changed", 2))
    stopping.storage.close([(("t", 0), written)])
    assert stopping.marked() == marked


@pytest.mark.parametrize(("count", "calls"), [(1, []), (LOGS_ONE_BY_ONE_MAX + 1, ["/a"])])
def test_many_changed_logs_are_flushed_with_one_call(
    monkeypatch: pytest.MonkeyPatch, count: int, calls: list[str]
) -> None:
    disk = FaultyDisk()
    storage = Storage.open(disk, FakeClock(), ["/a"])
    logs = [storage.get_or_create("t", at, b"t" * 16, LogConfig()) for at in range(count + 3)]
    for log in logs[:count]:
        log.append_bytes(batch(b"x"), 0)
    called: list[str] = []
    sync = disk.sync_file_system

    def synced(path: str) -> None:
        called.append(path)
        sync(path)

    monkeypatch.setattr(disk, "sync_file_system", synced)
    flush_everything(storage)
    assert called == calls
    assert all(log.recovery_point == log.log_end_offset for log in logs)
    disk.cut_power()
    storage = Storage.open(disk, FakeClock(), ["/a"])
    for at in range(count):
        log = storage.get_or_create("t", at, b"t" * 16, LogConfig())
        assert values_of(log) == [b"x"]


def test_logs_that_have_not_changed_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FaultyDisk()
    storage = Storage.open(disk, FakeClock(), ["/a"])
    for at in range(LOGS_ONE_BY_ONE_MAX + 1):
        storage.get_or_create("t", at, b"t" * 16, LogConfig()).append_bytes(batch(b"x"), 0)
    flush_everything(storage)
    storage.logs["t", 3].append_bytes(batch(b"y"), 0)
    called: list[str] = []
    monkeypatch.setattr(disk, "sync_file_system", called.append)
    flush_everything(storage)
    assert called == [] and storage.logs["t", 3].recovery_point == 2


def test_a_stop_flushes_many_logs_with_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FaultyDisk()
    storage = Storage.open(disk, FakeClock(), ["/a"])
    for at in range(LOGS_ONE_BY_ONE_MAX + 1):
        storage.get_or_create("t", at, b"t" * 16, LogConfig()).append_bytes(batch(b"x"), 0)
    called: list[str] = []
    monkeypatch.setattr(disk, "sync_file_system", called.append)
    storage.close()
    assert called == ["/a"] and disk.exists(f"/a/{CLEAN_MARKER}")


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_a_log_that_cannot_be_flushed_leaves_the_others(kind: str) -> None:
    disk = FaultyDisk()
    storage = Storage.open(disk, FakeClock(), ["/a"])
    config = LogConfig(index_interval_bytes=50)
    for at in range(2):
        log = storage.get_or_create("t", at, b"t" * 16, config)
        log.health.watch(None)
        for _ in range(3):
            log.append_bytes(batch(b"x", producer_id=7, epoch=0, sequence=log.log_end_offset), 0)
    disk.errors, disk.failing = {kind: EIO}, "/a/t-0"
    flush_everything(storage)
    points = [log.recovery_point for log in storage.logs.values()]
    assert points == [0, 3]
