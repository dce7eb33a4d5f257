"""Logs that threads recover are the same as logs that are recovered one by one, whatever is wrong
with them."""

from __future__ import annotations

import errno
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.start import found_partitions
from ottla.broker.threads import startup_threads
from ottla.broker.threads.startup_threads import recover
from ottla.log.files.disk import Disk
from ottla.log.partition.config import LogConfig
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.storage.recovery_task import Wanted
from ottla.log.storage.storage import Storage
from ottla.wire.errors import StorageFailed
from tests.broker.running import RunningBroker
from tests.fakes import FakeClock
from tests.log.batches import batch, split, values_of
from tests.log.faulty_disk import FaultyDisk, PowerCut

CONFIG = LogConfig(index_interval_bytes=100)
TOPIC_ID = bytes(range(16))
PARTITIONS = 12
BIG = bytes(70_000)
"""A scan reads a few such batches at a time."""


def open_storage(disk: Disk, *directories: str) -> Storage:
    return Storage.open(disk, FakeClock(), directories)


def wanted() -> Wanted:
    return [(("t", index), TOPIC_ID, CONFIG) for index in range(PARTITIONS)]


def write_logs(disk: Disk, *directories: str) -> None:
    """Write partitions into these directories, and stop without marking a clean stop."""
    storage = open_storage(disk, *directories)
    for key, topic_id, config in wanted():
        log = storage.get_or_create(*key, topic_id, config)
        for at in range(8):
            if at == 5:
                log.roll()
            sent = batch(b"%d" % at * 20, BIG, producer_id=7, epoch=0, sequence=2 * at)
            log.append_bytes(sent, at // 3)
        log.flush()
    storage.checkpoint()
    for directory in storage.directories:
        directory.lock.close()  # type: ignore[union-attr]


def damage(path: Path) -> None:
    """Damage five partitions, each in another way: a torn end, damage above the recovery point,
    damage below it, another topic's id, a gap."""

    def segment(index: int, base: int) -> Path:
        (found,) = path.glob(f"*/t-{index}/{base:020d}.log")
        return found

    for checkpoint in path.glob("*/recovery-point-offset-checkpoint"):
        # The checkpoints say that nothing of these three partitions was flushed.
        text = checkpoint.read_text()
        for index in (0, 1, 4):
            text = text.replace(f"t {index} 16\n", f"t {index} 0\n")
        checkpoint.write_text(text)
    whole = segment(0, 10).read_bytes()
    size = len(split(whole)[0])
    segment(0, 10).write_bytes(whole[:-1])
    segment(1, 10).write_bytes(whole[:100] + b"?" + whole[101:])
    segment(2, 10).write_bytes(whole[: size + 100] + b"?" + whole[size + 101 :])
    other = segment(3, 10).with_name("partition.metadata")
    other.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n")
    segment(4, 0).write_bytes(segment(4, 0).read_bytes()[:-size])


def state(log: PartitionLog) -> tuple[object, ...]:
    return (
        values_of(log), log.log_start_offset, log.log_end_offset, log.recovery_point,
        log.latest_epoch, str(log.damage), str(log.put_aside), log.offline,
        len(log.producers),
        [(each.base_offset, each.end_offset, each.size) for each in log.segments],
    )


def files(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.glob("**/*")
        if file.is_file() and file.name != "meta.properties" and "-stray" not in str(file)
    }


def test_threads_find_what_one_after_the_other_finds(tmp_path: Path) -> None:
    live, written = tmp_path / "live", tmp_path / "written"
    directories = [str(live / name) for name in "ab"]
    write_logs(Disk(), *directories)
    damage(live)
    live.rename(written)
    found = []
    for threads in (0, 1, 3):
        shutil.copytree(written, live)
        storage = open_storage(Disk(), *directories)
        if threads:
            # The log of another topic was opened, too, but is left to get_or_create.
            assert recover(storage, wanted(), threads) == PARTITIONS
            assert len(storage.recovered) == PARTITIONS - 1
        logs = [storage.get_or_create(*key, topic_id, config) for key, topic_id, config in wanted()]
        states = list(map(state, logs))
        for log in logs:
            log.close() if log.offline is None else None
        for directory in storage.directories:
            directory.lock.close()  # type: ignore[union-attr]
        found.append((states, files(live)))
        shutil.rmtree(live)
    assert found[0] == found[1] == found[2]
    ends = [each[2] for each in found[0][0]]
    assert ends == [14, 10, 12, 0, 8, *[16] * 7]
    assert sum("accepts no writes" in str(each[5]) for each in found[0][0]) == 1
    assert sum("were moved to" in str(each[6]) for each in found[0][0]) == 2


def test_a_directory_that_cannot_be_read_holds_up_no_other(tmp_path: Path) -> None:
    disk = FaultyDisk()
    write_logs(disk, "/a", "/b")
    storage = open_storage(disk, "/a", "/b")
    disk.errors, disk.failing = {"read": errno.EIO}, "/b"
    recover(storage, wanted(), 2)
    for key, topic_id, config in wanted():
        if storage.homes[key].path == "/a":
            assert storage.get_or_create(*key, topic_id, config).log_end_offset == 16
        else:
            with pytest.raises(StorageFailed, match=f"t-{key[1]} could not be opened: .*injected"):
                storage.get_or_create(*key, topic_id, config)
    # As without threads, no log is lost: the next call opens it.
    disk.errors = {}
    assert all(storage.get_or_create(*key, *rest).log_end_offset == 16 for key, *rest in wanted())


def test_nothing_is_recovered_after_a_clean_stop_or_with_one_thread(tmp_path: Path) -> None:
    disk = FaultyDisk()
    write_logs(disk, "/a")
    storage = open_storage(disk, "/a")
    assert recover(storage, wanted(), 1) == 0 and not storage.recovered
    storage.close()
    assert recover(open_storage(disk, "/a"), wanted(), 2) == 0


def test_a_fault_of_the_program_ends_the_start(tmp_path: Path) -> None:
    disk = FaultyDisk()
    write_logs(disk, "/a")
    storage = open_storage(disk, "/a")
    disk.stopped = True
    with pytest.raises(PowerCut):
        recover(storage, wanted(), 2)


def test_files_that_recovery_left_open_are_bounded_with_all_others(tmp_path: Path) -> None:
    disk = FaultyDisk()
    write_logs(disk, "/a")
    storage = Storage.open(disk, FakeClock(), ["/a"], open_segments_max=4)
    recover(storage, wanted(), 2)
    assert len(storage.open_files) == 4


def test_a_broker_recovers_with_as_many_threads_as_are_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    def noted(storage: Storage, logs: Wanted, threads: int) -> int:
        told.append(threads)
        return recover(storage, logs, threads)

    monkeypatch.setattr(found_partitions, "recover", noted)
    with RunningBroker(tmp_path):
        pass
    with RunningBroker(tmp_path, num_recovery_threads_per_data_dir=5):
        pass
    assert told == [2, 5]


def test_there_are_no_more_threads_than_logs_however_many_are_allowed(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the largest num.recovery.threads.per.data.dir, a start did not end."""
    workers: list[object] = []

    class Counted(ThreadPoolExecutor):
        def submit(self, *work: Any, **more: Any) -> Any:
            workers.append(work)
            return super().submit(*work, **more)

    monkeypatch.setattr(startup_threads, "ThreadPoolExecutor", Counted)
    disk = FaultyDisk()
    write_logs(disk, "/a")
    assert recover(open_storage(disk, "/a"), wanted(), 1000) == PARTITIONS
    assert len(workers) == PARTITIONS
