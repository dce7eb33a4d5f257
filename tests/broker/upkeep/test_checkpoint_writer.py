"""Checkpoints of a running broker: they contain what clients were told, and no older state."""

from __future__ import annotations

import asyncio
import copy
import errno
import threading
from pathlib import Path

import pytest

from ottla.broker.upkeep.checkpoint_writer import Checkpoints, high_watermarks
from ottla.log.files import checkpoints
from ottla.log.partition.config import LogConfig
from ottla.log.storage.log_directory import LogDirectory
from ottla.log.storage.storage import Hooks, Storage
from ottla.replication.metadata import MetadataImage, PartitionState, TopicCreated
from ottla.replication.replicas import Replicas
from ottla.wire.errors import ErrorCode, StorageFailed
from tests.broker.produce_fetch import batch, produce
from tests.broker.running import NODE_ID, RunningBroker, WireClient
from tests.broker.topics import create, delete_below, earliest
from tests.fakes import FakeClock
from tests.log.batches import batch as stored_batch
from tests.log.faulty_disk import FaultyDisk
from tests.waiting import turn

KEYS = [("t", index) for index in range(4)]


def storage_on(disk: FaultyDisk) -> Storage:
    storage = Storage.open(disk, FakeClock(), ["/a", "/b"])
    for topic, index in KEYS:
        log = storage.get_or_create(topic, index, None, LogConfig())
        for at in range(5):
            log.append_bytes(stored_batch(b"%d" % at), 0)
        log.flush()
    return storage


def starts_on_the_medium(disk: FaultyDisk) -> dict[tuple[str, int], int]:
    """The log starts that are durably on the disk. In the worst case, a power cut leaves only
    these."""
    found: dict[tuple[str, int], int] = {}
    for directory in "ab":
        inode = disk.durable_names.get(f"/{directory}/{checkpoints.LOG_STARTS}")
        if inode is not None:
            found |= checkpoints.decode_offsets(bytes(inode.durable))
    return found


def test_deleted_records_do_not_come_back_after_a_power_cut() -> None:
    disk = FaultyDisk()
    with RunningBroker(Path("/a"), disk) as broker, WireClient(broker.address) as client:
        create(client, "t")
        for value in (b"a", b"b", b"c"):
            produce(client, "t", batch(value), acks=-1)
        assert delete_below(client, "t", 2).low_watermark == 2
        medium = broker.call(copy.deepcopy, disk)
    for seed in range(10):
        after = copy.deepcopy(medium)
        after.random.seed(seed)
        after.cut_power()
        storage = Storage.open(after, FakeClock(), ["/a"], node_id=NODE_ID)
        log = storage.get_or_create("t", 0, None, LogConfig())
        assert (log.log_start_offset, log.log_end_offset) == (2, 3)


def test_a_disk_that_refuses_the_new_log_start_is_told_and_may_be_asked_again() -> None:
    disk = FaultyDisk()
    with RunningBroker(Path("/a"), disk) as broker, WireClient(broker.address) as client:
        create(client, "t")
        for value in (b"a", b"b", b"c"):
            produce(client, "t", batch(value))
        disk.failing, disk.errors = f"/a/{checkpoints.LOG_STARTS}", {"write": errno.ENOSPC}
        answer = delete_below(client, "t", 2)
        assert (answer.error_code, answer.low_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        disk.errors = {}
        assert delete_below(client, "t", 1).low_watermark == 2
        assert earliest(client, "t") == starts_on_the_medium(disk)["t", 0] == 2


def test_log_starts_that_move_meanwhile_share_one_write() -> None:
    disk = FaultyDisk()
    storage = storage_on(disk)
    storage.checkpoint()                # only the first checkpoint of a topic writes its id
    written: list[str] = []
    gate = threading.Event()
    write = disk.write_atomically

    def counted(path: str, data: bytes) -> None:
        assert gate.wait(10)
        written.append(path)
        write(path, data)

    disk.write_atomically = counted  # type: ignore[method-assign]

    async def run() -> None:
        one = Checkpoints(storage, asyncio.get_running_loop())
        rounds = []
        for offset in range(1, 5):
            for key in KEYS:
                storage.logs[key].delete_before(offset)
                rounds.append(asyncio.ensure_future(one.log_starts({key})))
            # In all later rounds, the write of the first round has not ended yet.
            await turn()
            await turn()
        gone = rounds.pop()
        gone.cancel()
        gate.set()
        assert await asyncio.gather(*rounds) == [set()] * len(rounds)
        one.close()

    asyncio.run(run())
    assert len(written) == 4 and starts_on_the_medium(disk) == dict.fromkeys(KEYS, 4)


def test_an_older_checkpoint_does_not_take_back_a_log_start() -> None:
    disk = FaultyDisk()
    storage = storage_on(disk)

    async def run() -> None:
        one = Checkpoints(storage, asyncio.get_running_loop())
        older = asyncio.ensure_future(one.write())
        await turn()                  # `older` has collected what it will write
        storage.logs["t", 0].delete_before(3)
        assert await one.log_starts({("t", 0)}) == set()
        await older
        one.close()

    asyncio.run(run())
    assert starts_on_the_medium(disk)["t", 0] == 3


def test_a_partition_that_is_gone_or_in_a_failed_directory_is_not_said_to_be_safe() -> None:
    disk = FaultyDisk()
    storage = storage_on(disk)
    failed = storage.homes["t", 1]
    assert storage.homes["t", 0] is not failed

    async def run() -> set[tuple[str, int]]:
        one = Checkpoints(storage, asyncio.get_running_loop())
        disk.failing, disk.errors = f"{failed.path}/", {"write": errno.EIO}
        found = await one.log_starts({("t", 0), ("t", 1), ("gone", 0)})
        one.close()
        return found

    assert asyncio.run(run()) == {("t", 1), ("gone", 0)}
    assert failed.offline is not None and storage.homes["t", 0].offline is None


def test_each_directory_that_fails_in_a_checkpoint_is_isolated_at_once() -> None:
    disk = FaultyDisk()
    told: list[str] = []
    storage = Storage.open(
        disk, FakeClock(), ["/a", "/b", "/c"],
        hooks=Hooks(on_failure=lambda path, reason: told.append(path)),
    )
    task = storage.begin_checkpoint()
    write = disk.write_atomically

    def refused(path: str, data: bytes) -> None:
        if not path.startswith("/b"):
            raise OSError(errno.EIO if path.startswith("/a") else errno.ENOSPC, "injected", path)
        write(path, data)

    disk.write_atomically = refused  # type: ignore[method-assign]
    task.run()
    task.failures.append((storage.directories[1], OSError(errno.EIO, "injected")))
    with pytest.raises(StorageFailed, match=r"checkpoint of /a could .*of /c could .*of /b could "):
        storage.end_checkpoint(task)
    offline: list[LogDirectory] = [each for each in storage.directories if each.offline]
    assert [each.path for each in offline] == told == ["/a", "/b"], "a full disk may get room"


def test_the_high_watermark_of_a_log_that_could_not_be_opened_stays_in_the_checkpoint() -> None:
    disk = FaultyDisk()
    image = MetadataImage.empty("c").apply(
        [TopicCreated("t", b"t" * 16, (PartitionState(0, 0, (0,), (0,)),))])
    storage = Storage.open(disk, FakeClock(), ["/a"])
    storage.get_or_create("t", 0, b"t" * 16, LogConfig()).append_bytes(stored_batch(b"x"), 0)
    storage.checkpoint([(("t", 0), 1)])
    disk.kill()
    storage = Storage.open(disk, FakeClock(), ["/a"])
    replicas = Replicas(0, storage, lambda *_: LogConfig(), True)
    disk.errors = {"open": errno.EMFILE}
    list(replicas.follow(MetadataImage.empty(), image, image.topics))
    assert replicas.put_off == {("t", 0)}
    disk.errors = {}
    storage.checkpoint(high_watermarks(replicas))
    assert Storage.open(disk, FakeClock(), ["/a"]).placement.high_watermarks == {("t", 0): 1}
