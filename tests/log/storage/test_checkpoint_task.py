"""The files of a checkpoint are written in an order in which a crash between two of them does no
harm."""

from __future__ import annotations

from errno import EIO, ENOSPC

import pytest

from ottla.log.files import aborted_sizes, checkpoints, topic_ids
from ottla.log.partition.config import LogConfig
from ottla.log.storage import checkpoint_task
from ottla.log.storage.checkpoint_task import (
    ENTRIES_PER_STEP,
    CheckpointTask,
    checkpoint_steps,
    file_steps,
    log_start_steps,
    note_aborted,
)
from ottla.log.storage.storage import Storage
from ottla.wire.errors import StorageFailed
from tests.fakes import FakeClock
from tests.log.batches import batch
from tests.log.faulty_disk import FaultyDisk

ID = b"t" * 16
STARTS, POINTS, IDS = checkpoints.LOG_STARTS, checkpoints.RECOVERY_POINTS, topic_ids.TOPIC_IDS


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


def opened(disk: FaultyDisk, partitions: int) -> Storage:
    storage = Storage.open(disk, FakeClock(), ["/a", "/b"])
    for index in range(partitions):
        log = storage.get_or_create("t", index, ID, LogConfig())
        if index % 3 != 2:
            log.append_bytes(batch(b"x"), 0)
            log.flush()
    return storage


def gathered(storage: Storage, *marks: tuple[tuple[str, int], int]) -> tuple[CheckpointTask, int]:
    """A checkpoint, and the number of steps in which it was gathered."""
    task = CheckpointTask(storage.disk)
    return task, len(list(checkpoint_steps(storage, task, marks)))


def written(task: CheckpointTask, path: str) -> dict[str, bytes]:
    return {name: data for home, name, data in task.files if home.path == path}


def test_the_topics_of_the_entries_come_last(disk: FaultyDisk) -> None:
    storage = opened(disk, 6)
    task, _ = gathered(storage, (("t", 0), 1), (("unknown", 0), 1))
    assert [name for home, name, _ in task.files if home.path == "/a"] == [
        POINTS, STARTS, checkpoints.HIGH_WATERMARKS, IDS]
    assert [name for home, name, _ in task.files if home.path == "/b"] == [POINTS, STARTS, IDS]
    for path in ("/a", "/b"):
        assert checkpoints.decode_offsets(written(task, path)[POINTS]) == {
            key: 1 for key, home in storage.homes.items() if home.path == path and key[1] % 3 != 2
        }
    assert topic_ids.decode(written(task, "/a")[IDS]) == {"t": ID}
    noted = [(home.path, ids) for home, ids in task.topic_ids]
    assert noted == [("/a", {"t": ID}), ("/b", {"t": ID})]


def test_topics_that_are_written_already_are_not_written_again(disk: FaultyDisk) -> None:
    storage = opened(disk, 2)
    storage.checkpoint([])
    task, _ = gathered(storage)
    assert IDS not in written(task, "/a") and task.topic_ids == []


def test_a_file_that_is_there_is_written_even_without_entries(disk: FaultyDisk) -> None:
    storage = opened(disk, 1)
    names = (checkpoints.CLEANED, checkpoints.HIGH_WATERMARKS, aborted_sizes.ABORTED_SIZES)
    task, _ = gathered(storage)
    assert not written(task, "/b").keys() & {*names}
    for name in names:
        disk.write_atomically(f"/b/{name}", b"0\n0\n")
    task, _ = gathered(storage)
    assert next(name for home, name, _ in task.files if home.path == "/b") == names[2]
    assert {name: written(task, "/b")[name] for name in names} == dict.fromkeys(names, b"0\n0\n")


def test_a_topic_that_was_made_anew_meanwhile_waits_for_the_next_checkpoint(
    disk: FaultyDisk,
) -> None:
    storage = opened(disk, 2)
    for directory in storage.directories:
        directory.topic_ids["t"] = b"u" * 16
    task, _ = gathered(storage)
    assert checkpoints.decode_offsets(written(task, "/a")[POINTS]) == {}


@pytest.mark.parametrize("count", [1, ENTRIES_PER_STEP, ENTRIES_PER_STEP + 1])
def test_others_are_served_between_two_steps(disk: FaultyDisk, count: int) -> None:
    storage = opened(disk, 1)
    marks = [(("t", 0), number) for number in range(count)]
    _, steps = gathered(storage, *marks)
    _, without = gathered(storage)
    assert steps - without == -(-count // ENTRIES_PER_STEP)


def test_an_offline_directory_has_no_checkpoint(disk: FaultyDisk) -> None:
    storage = opened(disk, 2)
    storage.fail(storage.directories[0], "the disk is gone")
    task, _ = gathered(storage)
    assert {home.path for home, _, _ in task.files} == {"/b"}


def test_a_directory_that_fails_leaves_the_others_their_files(disk: FaultyDisk) -> None:
    task, _ = gathered(opened(disk, 2))
    disk.errors, disk.failing = {"write": EIO}, f"/a/{POINTS}"
    task.run()
    assert [(home.path, error.errno) for home, error in task.failures] == [("/a", EIO)]
    assert not disk.exists(f"/a/{STARTS}") and disk.exists(f"/b/{STARTS}")


def test_log_starts_are_written_alone_for_topics_that_are_known(disk: FaultyDisk) -> None:
    storage = opened(disk, 4)
    task = CheckpointTask(disk)
    list(log_start_steps(storage, task, ["/a"]))
    assert [*written(task, "/a")] == [POINTS, STARTS, IDS], "the topics are not known yet"
    storage.checkpoint([])
    log = storage.logs["t", 0]
    log.append_bytes(batch(b"y"), 0)
    log.flush()
    log.delete_before(1)
    task = CheckpointTask(disk)
    list(log_start_steps(storage, task, [storage.homes["t", 0].path]))
    [(home, name, data)] = task.files
    assert (home, name) == (storage.homes["t", 0], STARTS)
    assert checkpoints.decode_offsets(data)["t", 0] == 1


def test_sizes_of_indexes_are_replaced_dropped_or_left() -> None:
    known = {("t", 0): {0: 34}}
    note_aborted(known, ("t", 0), None)
    note_aborted(known, ("u", 0), {})
    assert known == {("t", 0): {0: 34}}
    note_aborted(known, ("t", 0), {5: 68})
    assert known == {("t", 0): {5: 68}}
    note_aborted(known, ("t", 0), {})
    assert known == {}


@pytest.mark.parametrize(("code", "full", "offline"), [
    (ENOSPC, True, False), (EIO, False, True),
])
def test_a_checkpoint_that_fails_makes_its_directory_full_or_offline(
    disk: FaultyDisk, code: int, full: bool, offline: bool
) -> None:
    storage = opened(disk, 2)
    disk.errors, disk.failing = {"write": code}, "/a/"
    with pytest.raises(StorageFailed, match="the checkpoint of /a could not be written") as failed:
        storage.checkpoint([])
    assert isinstance(failed.value.__cause__, OSError) and failed.value.__cause__.errno == code
    a, b = storage.directories
    assert (a.space.full, a.offline is not None) == (full, offline)
    assert not b.space.full and b.offline is None
    assert a.written_ids != a.topic_ids, "the next checkpoint writes the topics again"
    assert b.written_ids == b.topic_ids == {"t": ID}


def test_a_step_handles_as_many_logs_or_lines_as_it_may(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_task, "ENTRIES_PER_STEP", 3)
    storage = opened(disk, 7)
    task = CheckpointTask(disk)
    steps = len(list(file_steps(task, storage.directories[0], "x", iter("abcdefg"))))
    assert steps == 2, "after the third line and the sixth"
    assert task.files == [(storage.directories[0], "x", b"a\nb\nc\nd\ne\nf\ng\n")]
    lines = {name: data.count(b"\n") for name, data in written(gathered(storage)[0], "/a").items()}
    assert (lines[POINTS], lines[STARTS]) == (5, 5)
    storage.fail(storage.directories[1], "the disk is gone")
    _, steps = gathered(storage)
    assert steps == 3 + 1 + 1, "seven logs, and two files of five lines"
    storage.checkpoint([])
    assert len(list(log_start_steps(storage, CheckpointTask(disk), ["/a"]))) == 3 + 1


def test_topics_are_written_before_and_after_entries_that_had_none(disk: FaultyDisk) -> None:
    storage = opened(disk, 1)
    storage.directories[0].written_ids = None
    task, _ = gathered(storage)
    names = [name for home, name, _ in task.files if home.path == "/a"]
    assert names == [IDS, POINTS, STARTS, IDS]


def test_log_starts_are_written_for_each_directory_that_is_asked_for(disk: FaultyDisk) -> None:
    storage = opened(disk, 4)
    task = CheckpointTask(disk)
    list(log_start_steps(storage, task, ["/b"]))
    assert {home.path for home, _, _ in task.files} == {"/b"}
    task = CheckpointTask(disk)
    list(log_start_steps(storage, task, ["/a", "/b"]))
    assert [*written(task, "/a")] == [*written(task, "/b")] == [POINTS, STARTS, IDS]
    storage.checkpoint([])
    for each in storage.directories:
        each.log_starts.clear()
    storage.directories[0].topic_ids["v"] = storage.directories[0].written_ids["v"] = b"v" * 16
    storage.get_or_create("v", 0, b"w" * 16, LogConfig()).append_bytes(batch(b"x"), 0)
    for each in storage.directories:
        each.topic_ids.pop("v", None)
        each.written_ids = dict(each.topic_ids)
    task = CheckpointTask(disk)
    list(log_start_steps(storage, task, ["/a", "/b"]))
    found = {path: checkpoints.decode_offsets(written(task, path)[STARTS]) for path in ("/a", "/b")}
    homes = {key: home.path for key, home in storage.homes.items()}
    assert found == {path: {
        ("t", at): 0 for at in (0, 1, 3) if homes["t", at] == path} for path in ("/a", "/b")
    }, "its own logs that have files, of topics that are known"
