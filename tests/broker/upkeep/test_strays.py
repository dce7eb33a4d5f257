"""Directories that belong to no topic are put aside at the start, logged once, and deleted
later."""

from __future__ import annotations

import copy
import errno
import logging
from pathlib import Path

import pytest

from ottla.log.partition.config import LogConfig
from ottla.log.storage.storage import Storage
from ottla.log.storage.strays import expire_strays, put_strays_aside
from ottla.wire.messages import DeleteTopicsRequest
from tests.broker.produce_fetch import batch, fetch, produce, values
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create
from tests.fakes import FakeClock, LeapingClock
from tests.log.batches import batch as stored_batch
from tests.log.faulty_disk import FaultyDisk, PowerCut

WEEK_MS = 7 * 24 * 3600 * 1000


def killed_in_a_deletion() -> FaultyDisk:
    """The disk of a broker that was killed in a deletion: the deletion is in the metadata, but no
    directory is renamed yet."""
    disk = FaultyDisk()
    with RunningBroker(Path("/a"), disk) as broker, WireClient(broker.address) as client:
        for name in ("t", "kept"):
            create(client, name, partitions=2)
            for index in range(2):
                assert produce(client, name, batch(b"old"), partition=index).error_code == 0
        before = {name: inode for name, inode in disk.names.items() if name.startswith("/a/t-")}
        gone = client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 4)
        assert gone.responses[0].error_code == 0
        after = broker.call(copy.deepcopy, disk)
    for name in [name for name in after.names if "-delete" in name]:
        del after.names[name]
    after.names |= copy.deepcopy(before)
    return after


def strays(disk: FaultyDisk) -> list[str]:
    return sorted(name for name in disk.listdir("/a") if name.endswith("-stray"))


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records]


def test_a_kill_in_a_deletion_leaves_nothing_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    disk = killed_in_a_deletion()
    with (
        caplog.at_level(logging.WARNING, "ottla.server"),
        RunningBroker(Path("/a"), disk) as broker,
        WireClient(broker.address) as client,
    ):
        assert len(strays(disk)) == 2
        told = [text for text in messages(caplog) if "belong to no topic" in text]
        assert len(told) == 1 and strays(disk)[0] in told[0] and "2 directories" in told[0]
        create(client, "t", partitions=2)
        assert produce(client, "t", batch(b"new")).error_code == 0
        assert values(fetch(client, "t")) == [b"new"]
        assert values(fetch(client, "kept", partition=1)) == [b"old"]
        killed = broker.call(copy.deepcopy, disk)
    caplog.clear()
    with RunningBroker(Path("/a"), killed) as broker:
        assert not [text for text in messages(caplog) if " to no topic" in text], "said once"
        assert broker.server.housekeeping is not None
        broker.run(broker.server.housekeeping.work.removal.remove_deleted())
        assert len(strays(killed)) == 2
        broker.server.storage.deletions.clock = LeapingClock(8 * 24 * 3600)
        broker.run(broker.server.housekeeping.work.removal.remove_deleted())
        assert strays(killed) == []
        assert {"kept-0", "kept-1", "t-0"} <= set(killed.listdir("/a"))


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_anywhere_while_strays_are_put_aside_or_removed_leaves_no_half(
    power: bool,
) -> None:
    operation, ended = 0, False
    while not ended:
        operation += 1
        disk, clock = FaultyDisk(operation), FakeClock()
        storage = Storage.open(disk, clock, ["/a"])
        for topic in ("gone", "kept"):
            log = storage.get_or_create(topic, 0, topic.encode() * 4, LogConfig(segment_bytes=400))
            for number in range(20):
                log.append_bytes(stored_batch(b"%d" % number), 0)
            log.flush()
        disk.kill()
        disk.operations = 0
        for second in (False, True):
            with disk.stops_at(-1 if second else operation):
                storage = Storage.open(disk, clock, ["/a"])
                storage.get_or_create("kept", 0, b"kept" * 4, LogConfig())
                expire_strays(storage, WEEK_MS)
                put_strays_aside(storage, set())
                clock.advance(WEEK_MS)
                storage.deletions.remove()
                ended = ended if second else not disk.stopped
            if not second and power:
                disk.cut_power()
            else:
                disk.kill()
            clock.advance(1)
        left = [name for name in disk.names if name.startswith("/a/gone-0")]
        assert left == []
        log = Storage.open(disk, clock, ["/a"]).get_or_create("kept", 0, b"kept" * 4, LogConfig())
        assert log.log_end_offset == 20
    assert operation > 10


def test_a_directory_that_is_no_partition_is_left_alone(tmp_path: Path) -> None:
    with RunningBroker(tmp_path) as broker, WireClient(broker.address) as client:
        create(client, "t", partitions=4)
    (tmp_path / "backup-2024").mkdir()
    (tmp_path / "backup-2024" / "report.txt").write_text("mine")
    (tmp_path / "empty-7").mkdir()
    with RunningBroker(tmp_path):
        assert (tmp_path / "backup-2024" / "report.txt").read_text() == "mine"
        assert not (tmp_path / "empty-7").exists()


def test_strays_of_kafka_are_removed_by_their_age_and_minus_one_keeps_all() -> None:
    disk, clock = FaultyDisk(), FakeClock()
    disk.makedirs("/a/t-0.6d54f0a1b2c34d5e8f90a1b2c3d4e5f6-stray")   # Kafka uses a random id
    storage = Storage.open(disk, clock, ["/a"])
    expire_strays(storage, -1)
    assert storage.deletions.directories == []
    expire_strays(storage, WEEK_MS)
    due_ms = WEEK_MS - clock.now_ms() + clock.monotonic_ms()  # the directory was modified in 1970
    stray = "/a/t-0.6d54f0a1b2c34d5e8f90a1b2c3d4e5f6-stray"
    assert storage.deletions.directories == [(due_ms, stray)]


def test_a_removal_that_was_cut_short_is_not_taken_for_a_new_topics_log() -> None:
    disk = FaultyDisk()
    storage = Storage.open(disk, FakeClock(), ["/a"])
    log = storage.get_or_create("t", 0, bytes(range(16)), LogConfig(segment_bytes=400))
    for number in range(20):
        log.append_bytes(stored_batch(b"%d" % number), 0)
    disk.failing, disk.errors = "/a/t-0", {"name": errno.ENOSPC}
    storage.delete("t", 0)
    disk.errors = {}
    with disk.stops_at(disk.operations + 6), pytest.raises(PowerCut):
        storage.deletions.remove()
    disk.kill()
    left = disk.listdir("/a/t-0")
    assert "partition.metadata" in left and len(left) > 1
    log = Storage.open(disk, FakeClock(), ["/a"]).get_or_create("t", 0, bytes(16), LogConfig())
    assert log.log_end_offset == 0


def test_strays_are_not_kept_longer_where_the_wall_clock_was_set_back() -> None:
    disk, clock = FaultyDisk(), FakeClock()
    storage = Storage.open(disk, clock, ["/a"])
    storage.get_or_create("t", 0, bytes(16), LogConfig()).append_bytes(stored_batch(b"x"), 0)
    disk.kill()
    storage = Storage.open(disk, clock, ["/a"])
    expire_strays(storage, WEEK_MS)
    [stray] = put_strays_aside(storage, set())
    clock.set_wall_clock(-WEEK_MS)
    for restarted in (False, True):
        if restarted:
            disk.kill()
            storage = Storage.open(disk, clock, ["/a"])
            expire_strays(storage, WEEK_MS)
        due_ms = clock.monotonic_ms() + WEEK_MS
        assert storage.deletions.directories == [(due_ms, stray)]


def test_a_copy_of_a_compacted_log_is_put_aside_like_any_other() -> None:
    disk = FaultyDisk()
    storage = Storage.open(disk, FakeClock(), ["/a"])
    log = storage.get_or_create("t", 0, bytes(16), LogConfig())
    later = bytearray(stored_batch(b"x"))
    later[:8] = (5).to_bytes(8, "big")
    log.append_run_bytes(bytes(later), 0)
    assert log.copied_gaps
    disk.kill()
    assert len(put_strays_aside(Storage.open(disk, FakeClock(), ["/a"]), ())) == 1


@pytest.mark.parametrize("left", [(), ("/a/events-0",), ("/b/events-0",)])
def test_a_name_that_two_deleted_topics_left_in_two_directories_is_free_again(
    left: tuple[str, ...],
) -> None:
    """When the next topic of this name is created, neither directory is in its way. The start puts
    a directory aside unless it also holds other files. In that case, the directory is put aside
    when that topic is created."""
    disk = FaultyDisk()
    for path, topic_id in (("/a", bytes(range(16))), ("/b", bytes(range(1, 17)))):
        storage = Storage.open(disk, FakeClock(), [path], cluster_id="c")
        log = storage.get_or_create("events", 0, topic_id, LogConfig())
        log.append_bytes(stored_batch(b"x"), 0)
        storage.close()
    for path in left:
        disk.open(f"{path}/note", create=True)
    storage = Storage.open(disk, FakeClock(), ["/a", "/b"])
    assert len(put_strays_aside(storage, ())) == 2 - len(left)
    log = storage.get_or_create("events", 0, bytes(range(2, 18)), LogConfig())
    assert log.append_bytes(stored_batch(b"y"), 0) == 0
    aside = [name for path in ("/a", "/b") for name in disk.listdir(path) if "-stray" in name]
    assert len(aside) == 2
