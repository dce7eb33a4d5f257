"""If one of several log directories fails, its partitions go offline. Partitions in other
directories are still served."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from ottla.log.storage.log_directory import StorageRefused
from ottla.wire.errors import ErrorCode, StorageFailed
from ottla.wire.messages import (
    DeleteTopicsRequest,
    DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest,
    FindCoordinatorRequest,
)
from tests.broker.produce_fetch import batch, fetch, fetch_request, produce, values
from tests.broker.running import NODE_ID, RunningBroker, WireClient
from tests.broker.topics import create, metadata
from tests.fakes import LeapingClock
from tests.log.faulty_disk import FaultyDisk

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
PARTITIONS = 4


def two_directories(disk: FaultyDisk) -> RunningBroker:
    return RunningBroker(Path("/a"), disk, log_dirs="/a,/b")


def homes(broker: RunningBroker, topic: str) -> dict[str, list[int]]:
    """The partitions of a topic, by the path of their log directory."""
    found: dict[str, list[int]] = {"/a": [], "/b": []}
    for (name, index), directory in broker.server.storage.homes.items():
        if name == topic:
            found[directory.path].append(index)
    return found


def test_partitions_of_a_failed_directory_are_offline_and_the_others_go_on() -> None:
    disk = FaultyDisk()
    with two_directories(disk) as broker, WireClient(broker.address) as client:
        create(client, "t", PARTITIONS)
        where = homes(broker, "t")
        assert len(where["/a"]) == len(where["/b"]) == 2, "the fewest partitions first"
        for index in range(PARTITIONS):
            assert produce(client, "t", batch(b"a%d" % index), partition=index).error_code == 0
        with WireClient(broker.address) as reader:
            gone, alive = where["/b"][0], where["/a"][0]
            waiting = reader.send(fetch_request("t", 1, partition=gone, max_wait_ms=20_000), 11)
            disk.failing, disk.errors = "/b/", {"write": errno.EIO}
            assert produce(client, "t", batch(b"b"), partition=gone).error_code == STORAGE_ERROR
            told = reader.answer(waiting).responses[0].partitions[0]
            assert told.error_code == STORAGE_ERROR, "who waits is told"
        disk.errors.clear()
        # Each partition of the directory stays offline, whether or not it was written.
        for index in where["/b"]:
            for acks in (1, -1):
                answer = produce(client, "t", batch(b"b"), partition=index, acks=acks)
                assert answer.error_code == STORAGE_ERROR
            assert fetch(client, "t", partition=index).error_code == STORAGE_ERROR
        for index in where["/a"]:
            assert produce(client, "t", batch(b"b"), partition=index).error_code == 0
            assert values(fetch(client, "t", partition=index)) == [b"a%d" % index, b"b"]
        partitions = metadata(client, "t")
        assert (partitions[alive].leader_id, partitions[alive].offline_replicas) == (NODE_ID, [])
        assert partitions[gone].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert (partitions[gone].leader_id, partitions[gone].offline_replicas) == (-1, [NODE_ID])
        made = DescribeTopicPartitionsRequest
        asked = made(topics=[made.Topic(name="t")], response_partition_limit=99)
        (paged,) = client.call(asked, 0).topics
        without = [p.partition_index for p in paged.partitions if p.leader_id == -1]
        assert without == sorted(where["/b"])
        described = client.call(DescribeLogDirsRequest(topics=None), 4).results
        assert {d.log_dir: d.error_code for d in described} == {"/a": 0, "/b": STORAGE_ERROR}
        create(client, "new", PARTITIONS)
        assert homes(broker, "new") == {"/a": [0, 1, 2, 3], "/b": []}
        assert not broker.server.failure.done()
    disk.kill()
    with two_directories(disk) as broker, WireClient(broker.address) as client:
        for index in range(PARTITIONS):
            assert values(fetch(client, "t", partition=index))[:1] == [b"a%d" % index]
            assert produce(client, "t", batch(b"c"), partition=index).error_code == 0


async def failure_of(broker: RunningBroker) -> str:
    """Wait until the broker ends; returns the reason. In a cluster, it first waits until the failed
    directory is reported."""
    return await asyncio.wait_for(asyncio.shield(broker.server.failure), 30)


@pytest.mark.parametrize(
    ("directories", "says"),
    [("/a,/b", "the log directory with the metadata has failed: /a: "),
     ("/a", "the last log directory has failed: /a: ")],
)
def test_the_broker_ends_when_nothing_is_left_or_the_metadata_are_gone(
    directories: str, says: str
) -> None:
    disk = FaultyDisk()
    with (
        RunningBroker(Path("/a"), disk, log_dirs=directories) as broker,
        WireClient(broker.address) as client,
    ):
        create(client, "t", PARTITIONS)
        assert broker.server.storage.homes["__ottla_metadata", 0].path == "/a"
        disk.failing, disk.errors = "/a/", {"sync": errno.EIO}
        index = homes(broker, "t")["/a"][0]
        assert produce(client, "t", batch(b"v"), partition=index).error_code == STORAGE_ERROR
        assert says in broker.run(failure_of(broker))
        disk.errors.clear()


def test_a_coordinator_in_a_failed_directory_serves_be_away() -> None:
    disk = FaultyDisk()
    with two_directories(disk) as broker, WireClient(broker.address) as client:
        ask = FindCoordinatorRequest(key_type=0, coordinator_keys=[f"g{n}" for n in range(40)])
        assert {each.error_code for each in client.call(ask, 4).coordinators} == {0}
        create(client, "t", PARTITIONS)
        disk.failing, disk.errors = "/b/", {"write": errno.EIO}
        produce(client, "t", batch(b"v"), partition=homes(broker, "t")["/b"][0])
        disk.errors.clear()
        codes = {each.error_code for each in client.call(ask, 4).coordinators}
        assert codes == {0, ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_a_topic_in_a_failed_directory_can_be_deleted_and_made_again() -> None:
    disk = FaultyDisk()
    with two_directories(disk) as broker, WireClient(broker.address) as client:
        create(client, "t", PARTITIONS)
        gone = homes(broker, "t")["/b"][0]
        disk.failing, disk.errors = "/b/", {"write": errno.EIO}
        assert produce(client, "t", batch(b"old"), partition=gone).error_code == STORAGE_ERROR
        disk.errors.clear()
        deleted = client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 4)
        assert deleted.responses[0].error_code == 0
        create(client, "t", PARTITIONS)
        assert produce(client, "t", batch(b"new"), partition=gone).error_code == 0
        assert metadata(client, "t")[gone].leader_id == NODE_ID


def test_a_directory_that_cannot_be_opened_hides_its_partitions_until_it_can(
    tmp_path: Path,
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    both = f"{a},{b}"
    with RunningBroker(a, log_dirs=both) as broker, WireClient(broker.address) as client:
        create(client, "t", PARTITIONS)
        for index in range(PARTITIONS):
            assert produce(client, "t", batch(b"v%d" % index), partition=index).error_code == 0
        gone = {
            index for (name, index), home in broker.server.storage.homes.items()
            if name == "t" and home.path == str(b)
        }
    b.rename(tmp_path / "away")
    b.write_text("a file is no directory")
    with RunningBroker(a, log_dirs=both) as broker, WireClient(broker.address) as client:
        for index in range(PARTITIONS):
            answer = produce(client, "t", batch(b"w"), partition=index)
            assert answer.error_code == (STORAGE_ERROR if index in gone else 0)
            assert metadata(client, "t")[index].leader_id == (-1 if index in gone else NODE_ID)
        create(client, "new", PARTITIONS)
        assert produce(client, "new", batch(b"x"), partition=3).error_code == 0
        described = client.call(DescribeLogDirsRequest(topics=None), 4).results
        assert {d.log_dir: d.error_code for d in described} == {str(a): 0, str(b): STORAGE_ERROR}
    b.unlink()
    (tmp_path / "away").rename(b)
    with RunningBroker(a, log_dirs=both) as broker, WireClient(broker.address) as client:
        for index in range(PARTITIONS):
            found = values(fetch(client, "t", partition=index))
            assert found == [b"v%d" % index] + [b"w"] * (index not in gone)
            assert produce(client, "t", batch(b"again"), partition=index).error_code == 0


def test_without_the_metadata_or_any_directory_nothing_starts(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    with RunningBroker(a, log_dirs=f"{a},{b}"):
        pass
    a.rename(tmp_path / "away")
    a.write_text("a file is no directory")
    with pytest.raises(StorageFailed, match=r"__ottla_metadata-0 may be in .*could not be"):
        RunningBroker(a, log_dirs=f"{a},{b}")
    with pytest.raises(StorageRefused, match="could not be opened"):
        RunningBroker(a, log_dirs=str(a))


@pytest.mark.parametrize("kind", ["write", "name"])
def test_a_topic_can_be_deleted_and_made_again_on_a_full_disk(kind: str) -> None:
    """Only writes to the topic's files fail, as on a full disk. Deleting the topic must not need
    such writes, for example of index entries."""
    disk = FaultyDisk()
    with RunningBroker(Path("/a"), disk) as broker, WireClient(broker.address) as client:
        create(client, "t", partitions=1)
        for _ in range(20):
            assert produce(client, "t", batch(bytes(1000)), acks=1).error_code == 0
        disk.failing, disk.errors = "/a/t-0", {kind: errno.ENOSPC}
        gone = client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5)
        assert gone.responses[0].error_code == 0
        assert not broker.server.failure.done()
        create(client, "t", partitions=1)
        refused = produce(client, "t", batch(b"new"))
        assert refused.error_code == STORAGE_ERROR
        disk.errors = {}
        assert broker.server.housekeeping is not None
        broker.server.storage.deletions.clock = LeapingClock(3_600)
        remove = broker.server.housekeeping.work.removal.remove_deleted

        async def remove_twice() -> None:
            await asyncio.gather(remove(), remove())        # one by its interval, one to free space

        broker.run(remove_twice())
        broker.run(broker.server.housekeeping.work.reopen_logs())
        assert produce(client, "t", batch(b"new")).error_code == 0
        assert values(fetch(client, "t")) == [b"new"]
        assert [name for name in disk.listdir("/a") if name.startswith("t-0")] == ["t-0"]
