"""A flush syncs each file, keeps the error of a failed sync, and writes the newest leader
epochs."""

from __future__ import annotations

from errno import EIO, ENOSPC

import pytest

from ottla.log.files.disk import File
from ottla.log.files.flush import SYNCS_ONE_BY_ONE_MAX, EpochsFile, FlushTask, run_all
from tests.log.faulty_disk import FaultyDisk

EPOCHS = "/d/leader-epoch-checkpoint"


class Synced(FaultyDisk):
    """A disk that remembers which file systems were synced."""

    def __init__(self) -> None:
        super().__init__()
        self.makedirs("/d")
        self.called: list[str] = []

    def sync_file_system(self, path: str) -> None:
        self.called.append(path)
        super().sync_file_system(path)


@pytest.fixture
def disk() -> Synced:
    return Synced()


def task(disk: Synced, files: int = 1, directories: int = 0, epochs: bytes | None = None,
         version: int = 1, by_file_system: bool = False) -> FlushTask:
    opened: list[File] = []
    for number in range(files):
        opened.append(disk.open(f"/d/{number}.log", create=True))
        opened[-1].pwrite(b"data", 0)
    return FlushTask(disk, 7, opened, ["/d"] * directories, EpochsFile(disk, "/d"), version, epochs,
                     by_file_system)


def test_what_a_flush_has_synced_survives_a_power_cut(disk: Synced) -> None:
    made = task(disk, 2, 1, b"epochs")
    assert made.syncs == 2 + 1 + 2
    assert task(disk, 2, 1).syncs == 3
    made.run()
    assert (made.error, made.refused) == (None, None)
    disk.cut_power()
    assert disk.read_bytes("/d/1.log") == b"data" and disk.read_bytes(EPOCHS) == b"epochs"


def test_a_sync_that_fails_is_kept_and_not_tried_again(disk: Synced) -> None:
    made = task(disk, epochs=b"epochs")
    disk.errors = {"sync": EIO}
    made.run()
    assert made.error is not None and made.error.errno == EIO
    assert not disk.exists(EPOCHS)


@pytest.mark.parametrize(("code", "refused"), [(ENOSPC, True), (EIO, False)])
def test_epochs_without_room_are_written_by_a_later_flush(
    disk: Synced, code: int, refused: bool
) -> None:
    made = task(disk, directories=1, epochs=b"epochs")
    disk.errors, disk.failing = {"write": code}, EPOCHS
    made.run()
    assert (made.refused is not None) is refused and (made.error is None) is refused


def test_the_newest_epochs_win_whichever_flush_ends_last(disk: Synced) -> None:
    file = EpochsFile(disk, "/d")
    assert [file.next_version() for _ in range(3)] == [1, 2, 3]
    file.write(2, b"second", durable=False)
    file.write(1, b"first", durable=True)
    assert disk.read_bytes(EPOCHS) == b"second"
    file.write(2, b"second again", durable=True)
    assert disk.read_bytes(EPOCHS) == b"second", "it is durable"
    file.write(3, b"third", durable=True)
    assert disk.read_bytes(EPOCHS) == b"third"
    file.close()
    file.write(4, b"fourth", durable=True)
    assert disk.read_bytes(EPOCHS) == b"third", "the path may be another topic's"


@pytest.mark.parametrize(("files", "by_file_system", "called"), [
    (SYNCS_ONE_BY_ONE_MAX // 2, False, []), (SYNCS_ONE_BY_ONE_MAX // 2 + 1, False, ["/d"]),
    (1, True, ["/d"]),
])
def test_many_syncs_are_one_call(
    disk: Synced, files: int, by_file_system: bool, called: list[str]
) -> None:
    half = SYNCS_ONE_BY_ONE_MAX // 2
    tasks = [task(disk, files), task(disk, half, by_file_system=by_file_system)]
    disk.sync_directory("/d")
    run_all(disk, "/d", tasks)
    assert disk.called == called and [each.error for each in tasks] == [None, None]
    disk.cut_power()
    assert disk.read_bytes(f"/d/{files - 1}.log") == b"data"


def test_one_call_for_all_fails_for_all(disk: Synced) -> None:
    tasks = [task(disk, epochs=b"epochs", by_file_system=True), task(disk)]
    disk.errors = {"sync": EIO}
    run_all(disk, "/d", tasks)
    assert all(each.error is not None and each.error.errno == EIO for each in tasks)
