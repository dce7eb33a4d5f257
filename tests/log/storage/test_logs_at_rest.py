"""After a clean stop no log is opened before it is needed, and that changes nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.log.compaction.choice import cleanable
from ottla.log.files.closed_logs import CLOSED_LOGS, ClosedLog, decode, encode
from ottla.log.files.disk import Disk, File
from ottla.log.partition.config import LogConfig
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.partition.retention import apply_retention
from ottla.log.storage.storage import Storage
from ottla.wire.errors import StorageFailed
from ottla.wire.records import Record, build_batch
from tests.fakes import FakeClock
from tests.log.batches import NOW_MS, batch, values_of
from tests.log.compaction.table import COMPACT
from tests.log.faulty_disk import FaultyDisk

TOPIC_ID = bytes(range(16))
CONFIG = LogConfig()


class WatchedDisk(Disk):
    """A disk that records the partitions whose files were accessed."""

    def __init__(self) -> None:
        self.looked_at: set[str] = set()

    def listdir(self, path: str) -> list[str]:
        self.looked_at.add(path.rpartition("/")[2])
        return super().listdir(path)

    def read_bytes(self, path: str) -> bytes:
        partition = path.split("/")[-2]  # only this part: pytest's directories may end in -0 too
        if partition.endswith("-0"):
            self.looked_at.add(partition)
        return super().read_bytes(path)


class CountedDisk(Disk):
    """A disk that records its use of files below a partition's directory."""

    def __init__(self) -> None:
        self.uses: list[str] = []

    def _use(self, what: str, path: str) -> None:
        if "/events-0" in path:
            self.uses.append(f"{what} {path.rpartition('/')[2]}")

    def open(self, path: str, create: bool = False) -> File:
        self._use("open", path)
        return super().open(path, create)

    def listdir(self, path: str) -> list[str]:
        self._use("list", path)
        return super().listdir(path)

    def exists(self, path: str) -> bool:
        self._use("exists", path)
        return super().exists(path)

    def size(self, path: str) -> int:
        self._use("size", path)
        return super().size(path)

    def read_bytes(self, path: str) -> bytes:
        self._use("read", path)
        return super().read_bytes(path)


def start(directory: Path, disk: Disk | None = None) -> Storage:
    return Storage.open(disk or Disk(), FakeClock(), [str(directory)])


def opened(storage: Storage, topic: str = "events", topic_id: bytes = TOPIC_ID) -> PartitionLog:
    return storage.get_or_create(topic, 0, topic_id, CONFIG)


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[Path]:
    """A log directory after a clean stop: `events-0` has three records, in leader epochs 2 and
    5."""
    storage = start(tmp_path)
    log = opened(storage)
    log.append_bytes(batch(b"a", b"b"), 2)
    log.append_bytes(batch(b"c"), 5)
    storage.close()
    yield tmp_path


def test_a_start_looks_at_no_log_that_was_closed_cleanly(stopped: Path) -> None:
    disk = WatchedDisk()
    storage = start(stopped, disk)
    log = opened(storage)
    known = (log.log_start_offset, log.log_end_offset, log.recovery_point, log.latest_epoch)
    assert known == (0, 3, 3, 5)
    assert log.stable_offset(3) == log.last_stable_offset == 3
    assert log.end_offset_for_epoch(5) == (5, 3)
    assert log.leader_epoch_for_offset(3) == 5
    assert log.size_bytes > 0
    assert log.slice(3, 100).size == 0
    log.remove_expired_producers()
    log.assign_epoch_start(7)
    storage.close()
    assert not disk.looked_at
    storage = start(stopped, disk)
    assert opened(storage).latest_epoch == 7
    assert not disk.looked_at


def test_a_small_log_is_read_once(stopped: Path) -> None:
    """One read is enough. More reads would add up for a consumer of 10,000 such logs."""
    disk = CountedDisk()
    storage = start(stopped, disk)
    log = opened(storage)
    assert log.epochs.entries == [(2, 0), (5, 2)]
    data = "00000000000000000000.log"
    assert disk.uses == ["list events-0", f"size {data}", f"open {data}"]
    storage.close()


def test_the_first_use_reads_it(stopped: Path) -> None:
    storage = start(stopped)
    log = opened(storage)
    log.assign_epoch_start(6)
    assert values_of(log) == [b"a", b"b", b"c"]
    assert log.epochs.entries == [(2, 0), (5, 2), (6, 3)]
    storage.close()
    storage = start(stopped)
    assert opened(storage).offset_for_timestamp(NOW_MS) == (0, NOW_MS, 2)
    storage.close()
    log = opened(start(stopped))
    assert log.append_bytes(batch(b"d"), 6) == 3
    assert log.end_offset_for_epoch(2) == (2, 2)


@pytest.mark.parametrize("committed", [True, False])
def test_a_log_that_was_cut_meanwhile_takes_no_writes_while_a_checkpoint_knows_better(
    stopped: Path, committed: bool
) -> None:
    if committed:
        start(stopped).close([(("events", 0), 3)])
    path = stopped / "events-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[: len(batch(b"a", b"b"))])
    storage = start(stopped)
    log = opened(storage)
    assert log.log_end_offset == 3
    with pytest.raises(StorageFailed, match="the records from offset 2 to 2 are gone"):
        log.append_bytes(batch(b"d"), 5)
    storage.close()
    log = opened(start(stopped))
    if committed:
        with pytest.raises(StorageFailed, match="the records from offset 2 to 2 are gone"):
            log.append_bytes(batch(b"d"), 5)
    else:
        assert log.append_bytes(batch(b"d"), 5) == 2


def test_damage_at_the_end_is_found_by_the_first_use(stopped: Path) -> None:
    path = stopped / "events-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-1])
    log = opened(start(stopped))
    with pytest.raises(StorageFailed, match="damaged"):
        log.append_bytes(batch(b"d"), 5)
    assert values_of(log) == [b"a", b"b"]


def test_a_log_of_another_topic_is_put_aside_without_a_look(stopped: Path) -> None:
    disk = WatchedDisk()
    log = opened(start(stopped, disk), topic_id=bytes(16))
    assert (log.log_end_offset, log.size_bytes) == (0, 0)
    assert not disk.looked_at
    assert [path.name[-6:] for path in stopped.glob("events-0.*")] == ["-stray"]


def test_what_another_program_did_to_a_log_is_looked_at(stopped: Path) -> None:
    checkpoint = stopped / "recovery-point-offset-checkpoint"
    checkpoint.write_text("0\n1\nevents 0 2\n")
    disk = WatchedDisk()
    log = opened(start(stopped, disk))
    assert disk.looked_at == {"events-0"}
    assert log.log_end_offset == 3


def test_after_a_crash_every_log_is_looked_at(stopped: Path) -> None:
    storage = start(stopped)
    opened(storage)
    storage.directories[0].lock.close()
    assert not (stopped / CLOSED_LOGS).exists()
    disk = WatchedDisk()
    assert opened(start(stopped, disk)).log_end_offset == 3
    assert disk.looked_at == {"events-0"}


def test_a_log_at_rest_knows_where_a_transaction_is_open(tmp_path: Path) -> None:
    storage, disk = start(tmp_path), WatchedDisk()
    log = opened(storage)
    log.append_bytes(batch(b"a"), 0)
    log.append_bytes(batch(b"b", producer_id=1, epoch=0, sequence=0, transactional=True), 0)
    storage.close()
    for _ in range(2):
        storage = start(tmp_path, disk)
        log = opened(storage)
        assert log.stable_offset(2) == log.last_stable_offset == 1
        assert log.stable_offset(1) == 1
        storage.close()
    assert not disk.looked_at
    log = opened(start(tmp_path))
    assert log.read_bytes(0, 100)
    assert log.stable_offset(2) == log.last_stable_offset == 1


def test_logs_that_nobody_asked_for_stay_at_rest(stopped: Path) -> None:
    start(stopped).close()
    disk = WatchedDisk()
    storage = start(stopped, disk)
    assert storage.unclaimed() == [("events", 0)]
    assert opened(storage).log_end_offset == 3
    assert not disk.looked_at


def test_a_disk_that_refuses_once_is_asked_again() -> None:
    disk = FaultyDisk()
    storage = Storage.open(disk, FakeClock(), ["/data"])
    opened(storage).append_bytes(batch(b"a"), 0)
    storage.close()
    log = opened(Storage.open(disk, FakeClock(), ["/data"]))
    disk.errors["read"] = 5
    with pytest.raises(StorageFailed, match="could not be opened"):
        log.read_bytes(0, 100)
    del disk.errors["read"]
    assert values_of(log) == [b"a"]


def test_retention_looks_at_a_log_when_something_in_it_is_old_enough(stopped: Path) -> None:
    disk, clock = WatchedDisk(), FakeClock(NOW_MS + 1000)
    storage = Storage.open(disk, clock, [str(stopped)])
    log = opened(storage)
    assert apply_retention(log, 3) == []
    assert not disk.looked_at
    clock.advance(CONFIG.retention_ms)
    assert apply_retention(log, 3)
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)


@pytest.mark.parametrize("cleanup", ["compact", "delete"])
@pytest.mark.parametrize("records", [0, 1])
def test_retention_opens_no_log_in_which_it_deletes_nothing(
    tmp_path: Path, records: int, cleanup: str
) -> None:
    """These are logs without records, and logs with cleanup.policy=compact, however old they
    are."""
    config = CONFIG._replace(cleanup_policy=frozenset({cleanup}))
    storage = start(tmp_path)
    log = storage.get_or_create("events", 0, TOPIC_ID, config)
    for _ in range(records):
        log.append_bytes(batch(b"a"), 0)
    storage.close()
    disk, clock = WatchedDisk(), FakeClock(NOW_MS + 2 * CONFIG.retention_ms)
    log = Storage.open(disk, clock, [str(tmp_path)]).get_or_create("events", 0, TOPIC_ID, config)
    deleted = apply_retention(log, records)
    due = records == 1 and cleanup == "delete"
    assert (bool(deleted), bool(disk.looked_at)) == (due, due)


def test_compaction_looks_at_a_log_at_rest(tmp_path: Path) -> None:
    storage = start(tmp_path)
    log = storage.get_or_create("table", 0, TOPIC_ID, COMPACT)
    records = [Record(timestamp=NOW_MS, key=b"k", value=b"%d" % n * 300) for n in range(4)]
    for record in records:
        log.append_bytes(build_batch([record]), 0)
    log.flush()
    assert len(log.segments) > 2
    before = cleanable(log, 4, NOW_MS)
    assert before is not None and before.due
    storage.close()
    log = start(tmp_path).get_or_create("table", 0, TOPIC_ID, COMPACT)
    after = cleanable(log, 4, NOW_MS)
    assert after is not None and after.due
    assert (after.dirty_bytes, after.end_offset) == (before.dirty_bytes, before.end_offset)


def test_a_deleted_log_at_rest_leaves_nothing(stopped: Path) -> None:
    storage = start(stopped)
    opened(storage)
    storage.delete("events", 0)
    assert not (stopped / "events-0").exists()
    storage.close()
    assert start(stopped).unclaimed() == []


def test_a_small_log_has_few_files_and_grows_all(tmp_path: Path) -> None:
    storage = start(tmp_path)
    log = opened(storage)
    log.append_bytes(batch(b"a"), 3)
    storage.close()
    few = {"00000000000000000000.log", "partition.metadata"}
    assert {path.name for path in (tmp_path / "events-0").iterdir()} == few
    storage = start(tmp_path)
    log = opened(storage)
    for _ in range(3):
        log.append_bytes(batch(bytes(3000)), 4)
    storage.close()
    assert {path.name for path in (tmp_path / "events-0").iterdir()} == few | {
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000004.snapshot",
        "leader-epoch-checkpoint",
    }
    assert opened(start(tmp_path)).epochs.entries == [(3, 0), (4, 1)]


def test_the_file_of_closed_logs_is_read_as_it_was_written() -> None:
    logs = {
        ("events", 0): ClosedLog(TOPIC_ID, 5, 9, 2, 3, 4711, NOW_MS),
        ("events", 1): ClosedLog(TOPIC_ID, 0, 1, 0, 1, 99, -1),
        ("__ottla_metadata", 0): ClosedLog(None, 0, 77, 0, 1, 12, 5),
        ("events", 2): ClosedLog(TOPIC_ID, 0, 9, 0, 1, 99, 5, 68, 7),
    }
    assert decode(encode(logs)) == logs
    older = b"0\n1\nevents 0 - 0 9 0 1 99 5 34\n"
    assert decode(older) == {("events", 0): ClosedLog(None, 0, 9, 0, 1, 99, 5, 34)}
    for damaged in (b"", b"1\n0\n", encode(logs)[:-40], b"0\n2\n", encode(logs) + b"x\n"):
        with pytest.raises((ValueError, IndexError)):
            decode(damaged)


def test_a_stop_that_a_power_cut_ends_is_no_clean_stop() -> None:
    for operation in range(1, 60):
        disk = FaultyDisk(operation)
        disk.makedirs("/data")
        disk.sync_directory("/")
        log = opened(storage := Storage.open(disk, FakeClock(), ["/data"]))
        log.append_bytes(batch(b"flushed"), 0)
        log.flush()
        log.append_bytes(batch(b"a", b"b", b"c"), 0)
        with disk.stops_at(disk.operations + operation):
            storage.close()
        disk.cut_power()
        log = opened(storage := Storage.open(disk, FakeClock(), ["/data"]))
        kept = values_of(log)
        assert log.damage is None and log.offline is None, operation
        assert kept in ([b"flushed"], [b"flushed", b"a", b"b", b"c"]), operation
        log.append_bytes(batch(b"next"), 1)
        assert values_of(log) == [*kept, b"next"]
        storage.close()
