"""A start completes each move that has a record, however far it had got, and no other moves."""

from __future__ import annotations

import pytest

from ottla.log.files.names import partition_metadata
from ottla.log.storage.log_directory import LogDirectory, StorageRefused
from ottla.log.storage.move_record import (
    MOVE_RECORD,
    MoveRecord,
    decode,
    encode,
    finish_moves,
    forget_copies,
)
from ottla.log.storage.storage import Storage
from tests.fakes import FakeClock
from tests.log.faulty_disk import FaultyDisk

KEY, ID, OTHER = ("events", 0), b"t" * 16, b"u" * 16
COPY = "events-0.0000018f-future"
RECORD = MoveRecord("events", 0, COPY)


@pytest.fixture
def disk() -> FaultyDisk:
    disk = FaultyDisk()
    for path in ("/a", "/b", "/c"):
        disk.makedirs(path)
    return disk


def put(disk: FaultyDisk, path: str, topic_id: bytes | None = ID) -> None:
    disk.makedirs(path)
    disk.write_atomically(f"{path}/{0:020d}.log", path.encode())
    if topic_id is not None:
        disk.write_atomically(f"{path}/partition.metadata", partition_metadata(topic_id))


def opened(disk: FaultyDisk, *paths: str) -> list[LogDirectory]:
    return [LogDirectory(disk, path) for path in paths or ("/a", "/b", "/c")]


def names(disk: FaultyDisk) -> dict[str, list[str]]:
    return {path: disk.subdirectories(path) for path in ("/a", "/b", "/c")}


def test_a_record_is_one_line_behind_its_version() -> None:
    assert encode(RECORD) == b"0\nevents 0 events-0.0000018f-future\n"
    assert decode(encode(RECORD)) == RECORD


@pytest.mark.parametrize("text", [
    b"", b"0\n", b"0\nevents 0 x", b"1\nevents 0 x\n", b"0\nevents x x\n", b"0\nevents 0\n",
    b"0\nevents 0 x y\n", b"0\nevents 0 x\nmore", b"0\nevents 0 x\n\n",
])
def test_a_damaged_record_stops_the_start(disk: FaultyDisk, text: bytes) -> None:
    disk.write_atomically(f"/b/{MOVE_RECORD}", text)
    with pytest.raises(StorageRefused, match=f"/b/{MOVE_RECORD} is damaged"):
        finish_moves(disk, opened(disk))


@pytest.mark.parametrize("done", ["nothing", "the old copy is away", "all"])
def test_a_final_move_is_completed(disk: FaultyDisk, done: str) -> None:
    if done == "nothing":
        put(disk, "/a/events-0")
    put(disk, f"/b/{'events-0' if done == 'all' else COPY}")
    disk.write_atomically(f"/b/{MOVE_RECORD}", encode(RECORD))
    directories = opened(disk)
    a, b, _ = directories
    a.recovery_points[KEY], b.recovery_points[KEY] = 5, 6
    finish_moves(disk, directories)
    away = ["events-0.0000018f-delete"] if done == "nothing" else []
    assert names(disk) == {"/a": away, "/b": ["events-0"], "/c": []}
    assert a.partitions == set() and b.partitions == {KEY}
    assert (a.names, b.names) == (away, ["events-0"])
    assert a.deleted() == [f"/a/{name}" for name in away]
    assert KEY not in a.recovery_points and b.recovery_points == {KEY: 6}
    assert not disk.exists(f"/b/{MOVE_RECORD}")
    disk.cut_power()
    assert names(disk)["/b"] == ["events-0"] and not disk.exists(f"/b/{MOVE_RECORD}")


def test_a_storage_removes_what_a_completed_move_left(disk: FaultyDisk) -> None:
    Storage.open(disk, FakeClock(), ["/a", "/b", "/c"]).close()
    put(disk, "/a/events-0")
    put(disk, f"/b/{COPY}")
    disk.write_atomically(f"/b/{MOVE_RECORD}", encode(RECORD))
    storage = Storage.open(disk, FakeClock(), ["/a", "/b", "/c"])
    assert storage.homes[KEY].path == "/b"
    assert storage.deletions.due() == ["/a/events-0.0000018f-delete"]


def test_a_copy_without_a_record_is_removed(disk: FaultyDisk) -> None:
    put(disk, "/a/events-0")
    put(disk, f"/b/{COPY}")
    directories = opened(disk)
    finish_moves(disk, directories)
    assert names(disk) == {"/a": ["events-0"], "/b": [COPY], "/c": []}
    assert directories[1].deleted() == [f"/b/{COPY}"]


def test_a_record_stays_while_the_old_copy_may_be_in_a_missing_directory(disk: FaultyDisk) -> None:
    put(disk, f"/b/{COPY}")
    disk.write_atomically(f"/b/{MOVE_RECORD}", encode(RECORD))
    missing = LogDirectory.unusable(disk, "/a", OSError("it is not mounted"))
    finish_moves(disk, [missing, *opened(disk, "/b", "/c")])
    assert names(disk)["/b"] == ["events-0"] and disk.exists(f"/b/{MOVE_RECORD}")


def test_a_topic_that_was_deleted_since_is_left_alone(disk: FaultyDisk) -> None:
    put(disk, "/a/events-0", OTHER)
    disk.write_atomically(f"/b/{MOVE_RECORD}", encode(RECORD))
    finish_moves(disk, opened(disk))
    assert names(disk)["/a"] == ["events-0"] and not disk.exists(f"/b/{MOVE_RECORD}")


@pytest.mark.parametrize(("topic_id", "away"), [(ID, True), (None, True), (OTHER, False)])
def test_a_directory_of_another_topic_is_not_the_old_copy(
    disk: FaultyDisk, topic_id: bytes | None, away: bool
) -> None:
    put(disk, "/a/events-0", topic_id)
    put(disk, f"/b/{COPY}")
    disk.write_atomically(f"/b/{MOVE_RECORD}", encode(RECORD))
    finish_moves(disk, opened(disk))
    assert names(disk)["/a"] == (["events-0.0000018f-delete"] if away else ["events-0"])


def test_entries_of_copies_that_are_elsewhere_are_forgotten(disk: FaultyDisk) -> None:
    put(disk, "/a/events-0")
    put(disk, "/b/other-0")
    a, b, c = directories = opened(disk)
    for each in directories:
        each.recovery_points.update({KEY: 1, ("other", 0): 2, ("none", 0): 3})
        each.log_starts.update({KEY: 1})
    for each in directories:
        forget_copies(each, directories)
    assert a.recovery_points.keys() == {KEY, ("none", 0)} and a.log_starts.keys() == {KEY}
    assert b.recovery_points.keys() == {("other", 0), ("none", 0)} and not b.log_starts
    assert c.recovery_points.keys() == {("none", 0)} and not c.log_starts


def test_each_step_of_a_completed_move_is_durable_before_the_next(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(disk, "/a/events-0")
    put(disk, f"/b/{COPY}")
    disk.write_atomically(f"/b/{MOVE_RECORD}", encode(RECORD))
    directories = opened(disk)
    seen: list[str] = []
    rename, unlink, sync = disk.rename, disk.unlink, disk.sync_directory
    monkeypatch.setattr(disk, "rename", lambda old, to: (seen.append(f"to {to}"), rename(old, to)))
    monkeypatch.setattr(disk, "unlink", lambda path: (seen.append(f"no {path}"), unlink(path)))
    monkeypatch.setattr(disk, "sync_directory", lambda path: (seen.append(path), sync(path)))
    finish_moves(disk, directories)
    assert seen == [
        "to /a/events-0.0000018f-delete", "/a", "to /b/events-0", "/b",
        f"no /b/{MOVE_RECORD}", "/b",
    ]
