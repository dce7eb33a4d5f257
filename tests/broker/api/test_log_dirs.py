"""AlterReplicaLogDirs: a partition moves to the requested directory; the codes are Kafka's."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ottla.broker.settings.config import BrokerConfig
from ottla.broker.upkeep.checkpoint_writer import Checkpoints
from ottla.broker.upkeep.directory_moves import Moving
from ottla.log.partition.config import LogConfig
from ottla.log.storage import move_transfer as log_moving
from ottla.log.storage.storage import Storage
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AlterReplicaLogDirsRequest,
    DeleteTopicsRequest,
    DescribeLogDirsRequest,
)
from tests.broker.produce_fetch import batch, fetch, produce, values
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create
from tests.fakes import FakeClock
from tests.log.batches import NOW_MS, values_of
from tests.log.batches import batch as stored_batch
from tests.log.faulty_disk import FaultyDisk
from tests.log.partition.foreign_files import marker

NOT_MOVED = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""The possible answers for the metadata's own partition, which is not moved."""


def wait_for_moves(running: RunningBroker) -> None:
    """Return once no move is under way."""

    async def done() -> None:
        task = running.server.moving.task
        if task is not None:
            await task

    running.run(done())


def move_to(client: WireClient, path: Path, topic: str = "t") -> int:
    made = AlterReplicaLogDirsRequest.Dir
    wanted = made(path=str(path), topics=[made.Topic(name=topic, partitions=[0])])
    answer = client.call(AlterReplicaLogDirsRequest(dirs=[wanted]), 2)
    code: int = answer.results[0].partitions[0].error_code
    return code


async def move_to_the_other(storage: Storage, config: BrokerConfig) -> None:
    """Move t-0 to the other of the two log directories."""
    loop = asyncio.get_running_loop()
    checkpoints = Checkpoints(storage, loop)
    moving = Moving(storage, checkpoints, config, loop)
    (target,) = {*storage.directories} - {storage.homes["t", 0]}
    moving.put(("t", 0), target)
    assert moving.task is not None
    await moving.task
    assert storage.homes["t", 0] is target and not storage.moves
    moving.close()
    checkpoints.close()


def told(client: WireClient) -> list[tuple[str, bool]]:
    """The directories in which DescribeLogDirs lists the topic `t`, and whether as a future log."""
    answer = client.call(DescribeLogDirsRequest(topics=None), 4)
    return [
        (Path(result.log_dir).name, partition.is_future_key)
        for result in answer.results
        for topic in result.topics
        if topic.name == "t"
        for partition in topic.partitions
    ]


def two(tmp_path: Path) -> tuple[Path, Path]:
    """The directory that holds `t-0`, and the other one."""
    first, second = tmp_path / "a", tmp_path / "b"
    return (first, second) if (first / "t-0").is_dir() else (second, first)


def test_a_move_is_no_faster_than_is_set_and_a_new_rate_counts_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = FaultyDisk()
    storage = Storage.open(disk, FakeClock(), ["/a", "/b"])
    topic_log = storage.get_or_create("t", 0, None, LogConfig())
    for _ in range(10):
        topic_log.append_bytes(stored_batch(bytes(100_000)), 0)
    size = topic_log.size_bytes
    config = BrokerConfig({"replica.alter.log.dirs.io.max.bytes.per.second": "0"})
    pauses: list[tuple[int, float]] = []
    rates = [0, 400_000, 300_000, 1 << 62]

    async def pause(seconds: float) -> None:
        pauses.append((storage.moves["t", 0].size_bytes, seconds))
        config.replica_alter_log_dirs_io_max_bytes_per_second = rates[min(len(pauses), 3)]

    async def run() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 5.0)
        await move_to_the_other(storage, config)

    monkeypatch.setattr(log_moving, "SWAP_BYTES", 0)
    monkeypatch.setattr(Moving, "pause", staticmethod(pause))
    asyncio.run(run())
    assert pauses[:3] == [(0, 1.0), (400_000, 1.0), (700_000, 1.0)]
    assert pauses[3][0] == size and pauses[3][1] < 0.001


def test_with_a_rate_of_0_even_a_small_partition_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage.open(FaultyDisk(), FakeClock(), ["/a", "/b"])
    storage.get_or_create("t", 0, None, LogConfig()).append_bytes(stored_batch(b"v"), 0)
    home = storage.homes["t", 0]
    config = BrokerConfig({"replica.alter.log.dirs.io.max.bytes.per.second": "0"})
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        assert storage.homes["t", 0] is home
        pauses.append(seconds)
        if len(pauses) == 3:
            config.replica_alter_log_dirs_io_max_bytes_per_second = 1

    monkeypatch.setattr(Moving, "pause", staticmethod(pause))
    asyncio.run(move_to_the_other(storage, config))
    assert pauses == [1.0] * 3


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_a_log_that_is_cut_while_it_moves_arrives_as_it_is_then(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower's log is truncated where it diverges from its new leader's log. The move must not
    keep the old records that it has already copied."""
    disk = FaultyDisk()
    storage = Storage.open(disk, FakeClock(), ["/a", "/b"])
    topic_log = storage.get_or_create("t", 0, None, LogConfig(segment_bytes=700))
    for number in range(4):
        topic_log.append_bytes(stored_batch(b"old %d " % number + bytes(200)), 0)
    config = BrokerConfig({"replica.alter.log.dirs.io.max.bytes.per.second": "2000"})

    async def pause(seconds: float) -> None:
        if topic_log.latest_epoch == 0:
            topic_log.truncate_to(kept)
            for number in range(kept, 6):
                topic_log.append_bytes(stored_batch(b"new %d " % number + bytes(200)), 1)


    monkeypatch.setattr(log_moving, "SWAP_BYTES", 0)
    monkeypatch.setattr(Moving, "pause", staticmethod(pause))
    expected = [b"old"] * kept + [b"new"] * (6 - kept)
    asyncio.run(move_to_the_other(storage, config))
    assert [value[:3] for value in values_of(topic_log)] == expected
    storage.close()
    topic_log = Storage.open(disk, FakeClock(), ["/a", "/b"]).get_or_create(
        "t", 0, None, LogConfig(segment_bytes=700))
    assert [value[:3] for value in values_of(topic_log)] == expected


@pytest.mark.parametrize("aborts", [False, True])
def test_a_partition_is_moved_off_a_full_disk(aborts: bool) -> None:
    """The move makes room on the disk. With `aborts`, a transaction was aborted, and the disk had
    no room to add it to the transaction index. Then the partition is not moved."""
    disk, config = FaultyDisk(), LogConfig(segment_bytes=5000, index_interval_bytes=300)
    storage = Storage.open(disk, FakeClock(), ["/a", "/b"])
    topic_log = storage.get_or_create("t", 0, None, config)
    home = storage.homes["t", 0]

    def put(number: int, transactional: bool = False) -> None:
        topic_log.append_bytes(stored_batch(
            b"%d " % number + bytes(200), producer_id=7, epoch=0, sequence=number,
            transactional=transactional, timestamps=[NOW_MS + number],
        ), 0)

    for number in range(30):
        put(number, transactional=aborts and number == 29)
    topic_log.flush()
    disk.errors, disk.failing = {"write": errno.ENOSPC}, topic_log.segments[-1].path(".txnindex")
    if aborts:
        topic_log.append_bytes(marker(7, False), 0)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        checkpoints = Checkpoints(storage, loop)
        moving = Moving(storage, checkpoints, BrokerConfig({}), loop)
        (target,) = {*storage.directories} - {home}
        moving.put(("t", 0), target)
        assert moving.task is not None
        await moving.task
        moving.close()
        checkpoints.close()

    disk.failing = home.path
    asyncio.run(run())
    assert [each.offline for each in storage.directories] == [None, None]
    assert (storage.homes["t", 0] is home) == aborts
    disk.errors = {}
    for number in range(30, 40):
        put(number)
    topic_log.flush()
    storage.checkpoint()
    expected = values_of(topic_log)
    for _ in range(2):
        assert values_of(topic_log) == expected and len(expected) >= 40
        assert len(topic_log.aborted_transactions(0, 41)) == aborts
        found = topic_log.offset_for_timestamp(NOW_MS + 29)
        assert found is not None and found[0] == 29
        put(39)
        assert topic_log.duplicate
        disk.cut_power()
        storage = Storage.open(disk, FakeClock(), ["/a", "/b"])
        topic_log = storage.get_or_create("t", 0, None, config)


def test_nothing_is_lost_or_doubled_while_a_partition_moves_to_and_fro(tmp_path: Path) -> None:
    dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    sent = 0
    with RunningBroker(tmp_path, log_dirs=dirs, log_segment_bytes=1 << 20) as running:
        with WireClient(running.address) as client:
            create(client, "t")
            for acks in (-1, 1, -1, 1):
                other = tmp_path
                for number in range(150):
                    answer = produce(client, "t", batch(b"%d " % sent * 3000), acks=acks)
                    assert (answer.error_code, answer.base_offset) == (0, sent)
                    sent += 1
                    if number == 40:
                        _, other = two(tmp_path)
                        assert move_to(client, other) == ErrorCode.NONE
                wait_for_moves(running)
                assert told(client) == [(other.name, False)]
            last_home = other
    with RunningBroker(tmp_path, log_dirs=dirs) as running:
        with WireClient(running.address) as client:
            assert told(client) == [(last_home.name, False)]
            assert two(tmp_path)[0] == last_home
            found: list[bytes | None] = []
            while len(found) < sent:
                found += values(fetch(client, "t", len(found)))
            assert found == [b"%d " % number * 3000 for number in range(sent)]
            assert produce(client, "t", batch(b"x")).base_offset == sent


def test_a_move_is_told_called_off_and_given_up(tmp_path: Path) -> None:
    dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    blocked = threading.Event()
    with RunningBroker(tmp_path, log_dirs=dirs) as running:
        with WireClient(running.address) as client:
            create(client, "t")
            produce(client, "t", batch(b"x"))
            home, other = two(tmp_path)
            moving = running.server.moving
            moving.thread = ThreadPoolExecutor(1)

            def hold() -> None:
                blocked.clear()
                moving.thread.submit(blocked.wait, 20)

            hold()
            assert move_to(client, other) == move_to(client, other) == ErrorCode.NONE
            assert sorted(told(client)) == sorted([(home.name, False), (other.name, True)])
            assert move_to(client, home) == ErrorCode.NONE
            assert told(client) == [(home.name, False)]
            blocked.set()
            wait_for_moves(running)
            assert two(tmp_path)[0] == home
            hold()
            assert move_to(client, other) == ErrorCode.NONE
            client.call(DeleteTopicsRequest(topics=[], topic_names=["t"], timeout_ms=9000), 5)
            blocked.set()
            wait_for_moves(running)
            create(client, "t")
            produce(client, "t", batch(b"new"))
            home, other = two(tmp_path)
            hold()
            assert move_to(client, other) == ErrorCode.NONE
            threading.Timer(0.05, blocked.set).start()
    with RunningBroker(tmp_path, log_dirs=dirs) as running:
        copies = {str(each) for each in tmp_path.glob("*/*-future")}
        assert copies <= {path for _, path in running.server.storage.deletions.directories}
        with WireClient(running.address) as client:
            assert told(client) == [(home.name, False)]
            assert values(fetch(client, "t")) == [b"new"]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_partition_is_put_where_it_serves(tmp_path: Path, version: int) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    with RunningBroker(tmp_path, log_dirs=f"{first},{second}") as running:
        with WireClient(running.address) as client:
            create(client, "t")
            assert produce(client, "t", batch(b"x")).error_code == 0
            made = AlterReplicaLogDirsRequest.Dir

            def put(path: Path | str, topic: str = "t", index: int = 0) -> int:
                wanted = made(path=str(path), topics=[made.Topic(name=topic, partitions=[index])])
                answer = client.call(AlterReplicaLogDirsRequest(dirs=[wanted]), version)
                [told] = answer.results
                assert (told.topic_name, told.partitions[0].partition_index) == (topic, index)
                code: int = told.partitions[0].error_code
                return code

            [home] = [each for each in (first, second) if (each / "t-0").is_dir()]
            [other] = {first, second} - {home}
            assert put(home) == ErrorCode.NONE
            assert (home / "t-0").is_dir() and not (other / "t-0").exists()
            assert put(other) == ErrorCode.NONE
            wait_for_moves(running)
            assert (other / "t-0").is_dir() and not (home / "t-0").exists()
            assert produce(client, "t", batch(b"y")).base_offset == 1
            assert put(home, topic="__cluster_metadata") in NOT_MOVED
            assert put(home, index=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert put(home, topic="nobody") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for path in ("/nowhere", "a", "", f"{home}/"):
                assert put(path) == ErrorCode.LOG_DIR_NOT_FOUND
            assert put("/nowhere", topic="nobody") == ErrorCode.LOG_DIR_NOT_FOUND


def test_a_move_may_be_asked_for_while_another_one_is_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next move, of another partition or of the same one back to its former directory, begins
    only once the renames of the first move are durable."""
    disk = FaultyDisk()
    storage = Storage.open(disk, FakeClock(), ["/a", "/b"])
    for index in (0, 1):
        log = storage.get_or_create("t", index, None, LogConfig())
        log.append_bytes(stored_batch(b"%d" % index), 0)
    source = storage.homes["t", 0]
    (target,) = {*storage.directories} - {source}
    other = target if storage.homes["t", 1] is source else source
    answers: list[ErrorCode] = []
    finish = log_moving.Move.finish

    async def run() -> None:
        loop = asyncio.get_running_loop()
        checkpoints = Checkpoints(storage, loop)
        config = BrokerConfig({})
        moving = Moving(storage, checkpoints, config, loop)

        def asked(move: log_moving.Move) -> Callable[[], None]:
            if not answers:
                answers.append(moving.put(("t", 1), other))
                answers.append(moving.put(("t", 0), target))
                answers.append(moving.put(("t", 0), source))
            return finish(move)

        monkeypatch.setattr(log_moving.Move, "finish", asked)
        moving.put(("t", 0), target)
        assert moving.task is not None
        await moving.task
        assert not storage.moves and moving.refused is None
        moving.close()
        checkpoints.close()

    asyncio.run(run())
    assert answers == [ErrorCode.NONE] * 3
    assert storage.homes["t", 0] is source and storage.homes["t", 1] is other
    assert not any(".ottla-move" in disk.listdir(path) for path in ("/a", "/b"))
