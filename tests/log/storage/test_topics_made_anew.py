"""A topic is deleted and created again under its name: no state of the old one is applied
to the new one, whenever the process or the machine stops."""

from __future__ import annotations

import pytest

from ottla.log.files.disk import Disk
from ottla.log.partition.config import LogConfig
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.storage.checkpoint_task import log_start_steps
from ottla.log.storage.move_transfer import Move
from ottla.log.storage.storage import Storage
from tests.fakes import FakeClock
from tests.log.batches import batch, values_of
from tests.log.faulty_disk import FaultyDisk, PowerCut

KEY = "events", 0
OLD, NEW = bytes(range(16)), bytes(range(1, 17))
SMALL = LogConfig(segment_bytes=400)


def open_storage(disk: Disk, *directories: str) -> Storage:
    return Storage.open(disk, FakeClock(), directories or ["/a"])


def written(storage: Storage, topic_id: bytes, values: range, start: int = 0) -> PartitionLog:
    """The topic's log, after these values were flushed to it; the log then begins at `start`."""
    log = storage.get_or_create(*KEY, topic_id, SMALL)
    for number in values:
        log.append_bytes(batch(b"%d" % number), 0)
    log.flush()
    log.delete_before(start)
    return log


def texts(values: range) -> list[bytes]:
    return [b"%d" % number for number in values]


@pytest.mark.parametrize("end", ["kill", "cut_power"])
def test_the_old_topics_checkpoints_are_not_applied_to_the_new_one(end: str) -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    written(storage, OLD, range(20), start=8).note_cleaned(12)
    storage.checkpoint([(KEY, 20)])
    storage.delete(*KEY)
    log = written(storage, NEW, range(100, 105))
    log.append_bytes(batch(b"torn"), 0)
    segment = log.segments[-1].path(".log")
    getattr(disk, end)()
    if end == "kill":
        disk.inode(segment).content.pop()
    log = open_storage(disk).get_or_create(*KEY, NEW, SMALL)
    assert values_of(log)[:5] == texts(range(100, 105))
    assert (log.log_start_offset, log.first_dirty_offset, log.damage) == (0, 0, None)
    assert log.append_bytes(batch(b"more"), 0) >= 5


def test_a_log_start_that_was_answered_is_kept_for_a_topic_that_is_a_second_old() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    written(storage, OLD, range(20), start=8)
    storage.checkpoint()
    storage.delete(*KEY)
    written(storage, NEW, range(5), start=3)
    task = storage.begin_checkpoint()
    task.files.clear()
    for _ in log_start_steps(storage, task, {"/a"}):
        pass
    task.run()
    disk.kill()
    log = open_storage(disk).get_or_create(*KEY, NEW, SMALL)
    assert (log.log_start_offset, values_of(log)) == (3, texts(range(3, 5)))


def test_a_crash_anywhere_in_a_checkpoint_shows_no_topic_what_is_anothers() -> None:
    operation, ended = 0, False
    while not ended:
        operation += 1
        disk = FaultyDisk(operation)
        storage = open_storage(disk)
        written(storage, OLD, range(20), start=8).note_cleaned(12)
        storage.checkpoint()
        storage.delete(*KEY)
        log = written(storage, NEW, range(5))
        disk.operations = 0
        with disk.stops_at(operation):
            storage.checkpoint()
            log.delete_before(2)
            storage.checkpoint()
            ended = True
        disk.cut_power()
        log = open_storage(disk).get_or_create(*KEY, NEW, SMALL)
        assert log.log_start_offset in ((2,) if ended else (0, 2))
        assert (log.log_end_offset, log.first_dirty_offset, log.damage) == (5, 0, None)
    assert operation > 10


@pytest.mark.parametrize("topic_id", [OLD, NEW], ids=["of the same topic", "of an older topic"])
def test_a_high_watermark_in_another_directory_is_not_that_of_the_log(topic_id: bytes) -> None:
    """The other directory has failed, so its copy was not deleted. That copy's high watermark may
    be above the committed records of this log."""
    disk = FaultyDisk()
    storage = open_storage(disk, "/a", "/b")
    storage.started = True
    log = written(storage, OLD, range(20))
    former = storage.homes[KEY]
    storage.checkpoint([(KEY, 20)])
    log.fail("the disk is gone")
    storage.delete(*KEY)
    written(storage, topic_id, range(9))
    assert storage.homes[KEY] is not former
    disk.kill()
    assert disk.read_bytes(f"{former.path}/replication-offset-checkpoint") == b"0\n1\nevents 0 20\n"
    paths = [former.path, *{"/a", "/b"} - {former.path}]
    for order in (paths, paths[::-1]):
        assert open_storage(disk, *order).placement.high_watermarks.get(KEY, 0) == 0
        disk.kill()


def test_a_new_topic_without_files_begins_at_zero_and_one_that_lost_them_does_not() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk, "/a", "/b")
    written(storage, OLD, range(20), start=8)
    storage.checkpoint()
    storage.delete(*KEY)
    disk.kill()
    storage = open_storage(disk, "/a", "/b")
    assert storage.get_or_create(*KEY, NEW, SMALL).log_start_offset == 0
    # Another topic, whose files the power cut removes after its log start was answered.
    log = storage.get_or_create("lost", 0, OLD, SMALL)
    log.append_bytes(batch(b"a", b"b"), 0)
    log.delete_before(2)
    home = storage.homes["lost", 0].path
    storage.checkpoint()
    for name in [name for name in disk.names if name.startswith(f"{home}/lost-0")]:
        del disk.names[name]
    log = open_storage(disk, "/a", "/b").get_or_create("lost", 0, OLD, SMALL)
    assert (log.directory, log.log_start_offset) == (f"{home}/lost-0", 2)


def test_a_checkpoint_of_kafka_or_an_earlier_version_still_counts() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    written(storage, OLD, range(20), start=8)
    storage.checkpoint()
    disk.unlink("/a/.ottla-topic-ids")
    log = open_storage(disk).get_or_create(*KEY, OLD, SMALL)
    assert (log.log_start_offset, log.recovery_point) == (8, 20)
    # The topic of the entries is recorded now, before anything else is written.
    assert disk.exists("/a/.ottla-topic-ids")


def test_the_cleaner_checkpoint_forgets_the_last_topic_that_was_in_it() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    written(storage, OLD, range(20)).note_cleaned(12)
    storage.checkpoint()
    assert disk.read_bytes("/a/cleaner-offset-checkpoint") == b"0\n1\nevents 0 12\n"
    storage.delete(*KEY)
    storage.checkpoint()
    assert disk.read_bytes("/a/cleaner-offset-checkpoint") == b"0\n0\n"


def test_partitions_of_two_topics_of_one_name_in_two_directories_are_told_apart() -> None:
    """The old topic's directory reappears after the power cut; the new topic's is elsewhere."""
    disk = FaultyDisk()
    storage = open_storage(disk, "/a", "/b")
    written(storage, OLD, range(20), start=8)
    storage.checkpoint()
    old = storage.homes[KEY].path
    storage.delete(*KEY)
    storage.get_or_create("other", 0, NEW, SMALL)       # `old` has more partitions now
    assert storage.homes["other", 0].path == old
    log = written(storage, NEW, range(5))
    assert not log.directory.startswith(old)
    (gone,) = [name for name in disk.listdir(old) if name.endswith("-delete")]
    disk.rename(f"{old}/{gone}", f"{old}/events-0")     # as if the rename was lost
    for ask in (NEW, OLD):
        again = FaultyDisk()
        again.names = dict(disk.names)
        log = open_storage(again, "/a", "/b").get_or_create(*KEY, ask, SMALL)
        assert values_of(log) == texts(range(5) if ask == NEW else range(8, 20))
        strays = [n for path in ("/a", "/b") for n in again.listdir(path) if n.endswith("-stray")]
        assert len(strays) == 1


def test_a_torn_topic_id_is_no_proof_that_a_directory_is_the_topics() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    storage.checkpoint()
    storage.get_or_create(*KEY, OLD, SMALL).append_bytes(batch(b"never flushed"), 0)
    del disk.inode("/a/events-0/partition.metadata").content[10:]
    log = open_storage(disk).get_or_create(*KEY, NEW, SMALL)
    assert values_of(log) == []
    # If a checkpoint has the topic, the log was complete once, so it is kept.
    disk = FaultyDisk()
    storage = open_storage(disk)
    written(storage, OLD, range(3))
    storage.checkpoint()
    del disk.inode("/a/events-0/partition.metadata").content[10:]
    assert values_of(open_storage(disk).get_or_create(*KEY, OLD, SMALL)) == texts(range(3))


def test_a_moves_record_does_not_delete_the_log_of_a_topic_made_anew() -> None:
    """The record applies to the topic that was moved. The log of that name in the other directory
    belongs to a newer topic."""
    disk = FaultyDisk()
    storage = open_storage(disk, "/a", "/b")
    written(storage, OLD, range(10))
    move = Move(storage, KEY, storage.directories[1])
    assert storage.homes[KEY].path == "/a"
    storage.moves[KEY] = move
    move.begin()
    move.prepare()
    storage.checkpoint()
    move.swap()                                 # its record is there, `finish` is never called
    storage.delete(*KEY)
    (copy,) = [name for name in disk.listdir("/b") if name.endswith("-delete")]
    storage.get_or_create("other", 0, NEW, SMALL)
    storage.directories[1].partitions.add(("one more", 0))
    storage.directories[1].partitions.add(("two more", 0))
    assert written(storage, NEW, range(5)).directory == "/a/events-0"
    disk.rename(f"/b/{copy}", f"/b/{move.copy_name}")   # the power cut undoes /b's renames
    disk.kill()
    log = open_storage(disk, "/a", "/b").get_or_create(*KEY, NEW, SMALL)
    assert values_of(log) == texts(range(5))


@pytest.mark.parametrize("seed", range(60))
def test_delete_create_and_power_cuts_anywhere_lose_nothing_that_was_flushed(seed: int) -> None:
    disk = FaultyDisk(seed)
    storage = open_storage(disk, "/a", "/b")
    promised, start, topic_id = 0, 0, b""
    try:
        disk.stop_at = 40 + disk.random.randrange(400)
        for life in range(20):
            topic_id, promised, start = bytes([life]) * 16, 0, 0
            log = storage.get_or_create(*KEY, topic_id, SMALL)
            for number in range(disk.random.randrange(12)):
                log.append_bytes(batch(b"%d" % number), 0)
                if disk.random.random() < 0.5:
                    log.flush()
                    promised = number + 1
                if disk.random.random() < 0.1:
                    begin = disk.random.randrange(number + 2)
                    log.delete_before(begin)
                    storage.checkpoint()
                    start = max(start, begin)
                elif disk.random.random() < 0.1:
                    storage.checkpoint()
            storage.delete(*KEY)
    except PowerCut:
        pass
    disk.cut_power()
    log = open_storage(disk, "/a", "/b").get_or_create(*KEY, topic_id, SMALL)
    assert log.damage is None, "what was torn is never taken for damage"
    assert log.log_start_offset >= start
    first = log.log_start_offset
    assert values_of(log)[: max(0, promised - first)] == texts(range(first, promised))


def test_a_topic_made_anew_while_a_checkpoint_is_gathered_gets_nothing_of_the_old_one() -> None:
    for pause in range(8):
        disk = FaultyDisk()
        storage = open_storage(disk)
        written(storage, OLD, range(20), start=8).note_cleaned(12)
        if pause % 2:
            storage.checkpoint()
        task = storage.begin_checkpoint()
        task.files.clear()
        task.topic_ids.clear()
        steps = storage.checkpoint_steps(task, [(KEY, 20)])
        for _ in range(pause // 2):
            next(steps, None)
        storage.delete(*KEY)
        written(storage, NEW, range(5))
        list(steps)
        task.run()
        storage.end_checkpoint(task)
        disk.kill()
        log = open_storage(disk).get_or_create(*KEY, NEW, SMALL)
        assert (log.log_start_offset, log.first_dirty_offset) == (0, 0)
        assert values_of(log) == texts(range(5))


def test_a_directory_without_an_id_and_without_records_is_in_nobodys_way() -> None:
    """Such a directory is left if a disk fails while a partition's directory is made."""
    disk = FaultyDisk()
    written(open_storage(disk, "/a", "/b"), NEW, range(5))
    other = "/b" if disk.exists("/a/events-0") else "/a"
    disk.makedirs(f"{other}/events-0")
    disk.open(f"{other}/events-0/partition.metadata.tmp", create=True)
    disk.kill()
    log = open_storage(disk, "/a", "/b").get_or_create(*KEY, NEW, SMALL)
    assert values_of(log) == texts(range(5))
    assert not disk.exists(f"{other}/events-0")
