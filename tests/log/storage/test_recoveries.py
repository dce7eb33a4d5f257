"""After a crash, logs are recovered in threads before anyone asks for them. A log that cannot be
opened is offline."""

from __future__ import annotations

from errno import EIO

import pytest

from ottla.log.partition.config import LogConfig
from ottla.log.storage.move_transfer import Move
from ottla.log.storage.recovery_task import LogRecovery
from ottla.log.storage.storage import Storage
from ottla.wire.errors import StorageFailed
from tests.fakes import FakeClock
from tests.log.batches import batch, values_of
from tests.log.faulty_disk import FaultyDisk

ID, OTHER = b"t" * 16, b"u" * 16
CONFIG = LogConfig()
WANTED = [(("t", number), ID, CONFIG) for number in range(4)]


@pytest.fixture
def disk() -> FaultyDisk:
    """Two partitions in each of two directories, after a kill."""
    disk = FaultyDisk()
    storage = opened(disk)
    for number in range(4):
        log = storage.get_or_create("t", number, ID, CONFIG)
        log.append_bytes(batch(b"%d" % number), 0)
        log.flush()
    storage.checkpoint([(("t", number), 1) for number in range(4)])
    disk.kill()
    return disk


def opened(disk: FaultyDisk, *directories: str, limit: int = 300) -> Storage:
    paths = directories or ("/a", "/b")
    return Storage.open(disk, FakeClock(), paths, open_segments_max=limit)


def log_of(storage: Storage, number: int, topic_id: bytes = ID) -> list[bytes | None]:
    return values_of(storage.get_or_create("t", number, topic_id, CONFIG))


def keys(recoveries: list[list[LogRecovery]]) -> list[set[int]]:
    """The numbers of the partitions that are recovered, as one set for each directory."""
    parts = sorted(recoveries, key=lambda part: part[0].home.path)
    return [{each.key[1] for each in part} for part in parts]


def recovered(storage: Storage, topic_id: bytes = ID) -> list[LogRecovery]:
    wanted = [(key, topic_id, config) for key, _, config in WANTED]
    done = [each for part in storage.recoveries(wanted) for each in part]
    for each in done:
        each.run()
        storage.end_recovery(each)
    return done


def test_each_directory_recovers_its_own_logs(disk: FaultyDisk) -> None:
    storage = opened(disk)
    found = storage.recoveries([*WANTED, (("none", 0), ID, CONFIG)])
    assert keys(found) == [{0, 2}, {1, 3}]
    assert [{each.home.path for each in part} for part in found] == [{"/a"}, {"/b"}]


def test_a_log_that_was_recovered_is_not_opened_again(disk: FaultyDisk) -> None:
    storage = opened(disk, limit=1)
    logs = {each.key: each.log for each in recovered(storage)}
    for key, log in logs.items():
        assert storage.get_or_create(*key, ID, CONFIG) is log and values_of(log) == [b"%d" % key[1]]
    assert storage.recovered == {} and len(storage.open_files) == 1, "they share the limit"


def test_after_a_clean_stop_nothing_is_recovered(disk: FaultyDisk) -> None:
    opened(disk).close()
    storage = opened(disk)
    assert storage.recoveries(WANTED) == []
    storage.fail(storage.directories[0], "a disk died")
    assert storage.recoveries(WANTED) == []


def test_only_a_directory_that_works_and_was_not_stopped_cleanly_is_recovered(
    disk: FaultyDisk
) -> None:
    opened(disk).close()
    disk.unlink("/b/.kafka_cleanshutdown")
    storage = opened(disk)
    assert keys(storage.recoveries(WANTED)) == [{1, 3}]
    disk.kill()
    storage = opened(disk)
    storage.fail(storage.directories[1], "a disk died")
    assert keys(storage.recoveries(WANTED)) == [{0, 2}]


def test_a_log_that_is_open_already_is_not_recovered(disk: FaultyDisk) -> None:
    storage = opened(disk)
    log_of(storage, 2)
    assert keys(storage.recoveries(WANTED)) == [{0}, {1, 3}]


def test_a_partition_in_two_directories_is_left_to_the_one_who_asks_for_it(
    disk: FaultyDisk
) -> None:
    disk.makedirs("/b/t-0")
    storage = opened(disk)
    assert ("t", 0) in storage.rivals
    assert keys(storage.recoveries(WANTED)) == [{2}, {1, 3}]
    assert log_of(storage, 0) == [b"0"]


def test_another_topics_directory_is_not_recovered_but_put_aside(disk: FaultyDisk) -> None:
    storage = opened(disk)
    assert [(each.log, each.error) for each in recovered(storage, OTHER)] == [(None, None)] * 4
    assert storage.recovered == {}
    assert storage.directories[0].recovery_points == {}, "the checkpoints are the old topic's"
    assert log_of(storage, 0, OTHER) == []
    assert [name[-6:] for name in disk.subdirectories("/a") if name[:3] == "t-0"] == ["-stray"]


def test_the_error_of_a_recovery_is_raised_once_where_its_log_is_asked_for(
    disk: FaultyDisk
) -> None:
    storage = opened(disk)
    disk.unreadable.add(disk.inode("/a/t-0/partition.metadata"))
    failed = [each for each in recovered(storage) if each.log is None]
    assert [each.key for each in failed] == [("t", 0)]
    disk.unreadable.clear()
    with pytest.raises(StorageFailed, match=r"t-0 could not be opened.*bad sector"):
        storage.get_or_create("t", 0, ID, CONFIG)
    assert log_of(storage, 0) == [b"0"], "the next attempt reads again"


def test_a_log_that_cannot_be_opened_is_empty_and_offline_in_its_place(disk: FaultyDisk) -> None:
    storage = opened(disk)
    for key, directory in ((("t", 1), "/b/t-1"), (("none", 0), "/a/none-0")):
        log = storage.unavailable_log(key, ID, CONFIG, "a sector is bad")
        assert (log.directory, log.topic_id, log.config) == (directory, ID, CONFIG)
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
        assert log.offline == f"{directory} is offline: a sector is bad"
        with pytest.raises(StorageFailed, match="a sector is bad"):
            log.append_bytes(batch(b"x"), 0)
    assert storage.logs == {} and [each.offline for each in storage.directories] == [None, None]


def test_a_log_that_cannot_be_read_begins_anew_once_its_segments_are_aside(
    disk: FaultyDisk
) -> None:
    storage = opened(disk)
    [aside] = storage.put_unreadable_aside(("t", 0))
    assert aside.startswith("/a/t-0/") and disk.exists(aside)
    log = storage.get_or_create("t", 0, ID, CONFIG)
    assert (log.log_end_offset, log.damage) == (0, None), "its checkpoints are forgotten"
    assert log_of(storage, 2) == [b"2"]
    disk.errors, disk.failing = {"name": EIO}, "/b/t-1"
    with pytest.raises(StorageFailed, match="t-1 could not be renamed"):
        storage.put_unreadable_aside(("t", 1))
    assert ("t", 1) in storage.directories[1].recovery_points


def test_a_topic_that_loses_a_partition_keeps_the_others_checkpoints(disk: FaultyDisk) -> None:
    for stays in (True, False):
        storage = opened(disk)
        for number in range(4):
            log_of(storage, number)
        storage.delete("t", 0, topic_stays=stays)
        home = storage.directories[0]
        assert home.topic_ids == ({"t": ID} if stays else {})
        assert home.recovery_points == {("t", 2): 1}
        disk.kill()
        disk.rename(f"/a/{storage.deletions.directories[0][1].rpartition('/')[2]}", "/a/t-0")


def test_a_deletion_makes_its_rename_known_and_ends_a_move(disk: FaultyDisk) -> None:
    storage = opened(disk)
    log_of(storage, 0)
    move = storage.moves["t", 0] = Move(storage, ("t", 0), storage.directories[1])
    storage.delete("t", 0)
    assert storage.deletions.take_unsynced() == ["/a"]
    assert move.given_up and storage.moves == {} and ("t", 0) not in storage.homes


def test_a_partition_that_is_deleted_while_its_directory_is_away_is_forgotten(
    disk: FaultyDisk
) -> None:
    storage = opened(disk)
    storage.fail(storage.directories[0], "a disk died")
    storage.delete("t", 0)
    assert ("t", 0) not in storage.homes and ("t", 2) in storage.homes
    assert storage.deletions.directories == [] and disk.exists("/a/t-0")
    storage.directories[1].log_starts["none", 0] = 5
    storage.delete("none", 0)
    assert ("none", 0) not in storage.directories[1].log_starts, "nor are checkpoints left"


def test_space_is_reserved_in_the_directory_that_is_asked_for(disk: FaultyDisk) -> None:
    storage = opened(disk)
    assert storage.reserve is None
    reserve = storage.keep_reserve(storage.directories[1])
    assert storage.reserve is reserve and disk.exists("/b/.ottla-reserve")
    assert not disk.exists("/a/.ottla-reserve")


def test_a_log_in_a_directory_that_failed_is_refused_with_the_reason(disk: FaultyDisk) -> None:
    storage = opened(disk)
    storage.fail(storage.directories[0], "a disk died")
    with pytest.raises(StorageFailed, match="log directory /a is offline: a disk died"):
        storage.get_or_create("t", 0, ID, CONFIG)
    assert storage.logs == {} and log_of(storage, 1) == [b"1"]


def test_a_log_without_files_is_empty_and_of_no_epoch(disk: FaultyDisk) -> None:
    storage = opened(disk)
    fresh = storage.get_or_create("none", 0, ID, CONFIG)
    unavailable = storage.unavailable_log(("none", 1), ID, CONFIG, "a sector is bad")
    for log in (fresh, unavailable):
        assert (log.latest_epoch, log.segment_count, log.size_bytes) == (-1, 0, 0)
        assert log.last_stable_offset == 0


def test_a_partition_that_was_in_two_directories_keeps_nothing_of_the_other_one() -> None:
    disk = FaultyDisk()
    storage = opened(disk)
    log_of(storage, 0)
    storage.logs["t", 0].append_bytes(batch(b"x"), 0)
    storage.close()
    disk.makedirs("/b/t-0")
    storage = opened(disk)
    a, b = storage.directories
    b.recovery_points["t", 0] = b.log_starts["t", 0] = 1
    assert ("t", 0) in a.closed and ("t", 0) in b.partitions
    assert log_of(storage, 0) == [b"x"]
    assert a.closed == b.closed == {}, "the log is open"
    assert b.partitions == set() and b.recovery_points == b.log_starts == {}
    assert a.partitions == {("t", 0)} and storage.rivals == {}


@pytest.mark.parametrize("there", [True, False])
def test_a_log_that_nobody_asked_for_is_deleted(disk: FaultyDisk, there: bool) -> None:
    storage = opened(disk)
    if not there:
        disk.rename("/a/t-0", "/a/elsewhere")
    storage.delete("t", 0, topic_stays=True)
    assert not disk.exists("/a/t-0") and ("t", 0) not in storage.homes
    [(_, target)] = storage.deletions.directories
    assert disk.exists(target) is there and target.endswith("-delete")


def test_a_deleted_logs_files_are_removed_with_its_directory_alone(disk: FaultyDisk) -> None:
    storage = opened(disk)
    log_of(storage, 0)
    storage.deletions.add_files(["/a/t-0/x.deleted", "/a/t-2/x.deleted"], 0)
    storage.delete("t", 0)
    assert storage.deletions.due_files() == ["/a/t-2/x.deleted"]


def test_a_topic_that_is_deleted_is_forgotten_unless_partitions_of_it_stay(
    disk: FaultyDisk
) -> None:
    storage = opened(disk)
    storage.delete("t", 0)
    assert [each.topic_ids for each in storage.directories] == [{}, {}]


def test_a_partition_whose_deletion_fails_is_forgotten(disk: FaultyDisk) -> None:
    storage = opened(disk)
    disk.errors, disk.failing = {"name": EIO}, "/a/t-0"
    with pytest.raises(StorageFailed, match="t-0 could not be renamed for its deletion"):
        storage.delete("t", 0)
    assert ("t", 0) not in storage.homes and ("t", 2) in storage.homes
    assert storage.directories[0].offline is not None
    assert storage.deletions.directories == []
