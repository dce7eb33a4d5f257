"""ListOffsets is answered in every version."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.log.partition import loading, time_search
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import ListOffsetsRequest, ListOffsetsResponse
from ottla.wire.records import Record, build_batch
from tests.broker.held_workers import slow_flush
from tests.broker.produce_fetch import batch, produce, produce_request
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create
from tests.log.faulty_disk import FaultyDisk
from tests.waiting import until

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
PARTITION = ListOffsetsRequest.Topic.Partition


def ask(
    client: WireClient, topic: str, timestamp: int, version: int
) -> ListOffsetsResponse.Topic.Partition:
    asked = PARTITION(partition_index=0, timestamp=timestamp)
    wanted = ListOffsetsRequest.Topic(name=topic, partitions=[asked])
    response = client.call(ListOffsetsRequest(replica_id=-1, topics=[wanted]), version)
    return response.topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
def test_the_ends_of_a_partition_are_told_in_every_version(
    client: WireClient, topic: str, version: int
) -> None:
    produce(client, topic, batch(b"a", b"b", b"c"))
    latest, earliest = ask(client, topic, LATEST, version), ask(client, topic, EARLIEST, version)
    assert (latest.error_code, latest.offset) == (0, 3)
    assert (earliest.error_code, earliest.offset) == (0, 0)
    # The field came with version 4. Older clients could not read it, so they must not get it.
    assert latest.leader_epoch == (0 if version >= 4 else -1)


def test_version_0_answers_with_a_list(client: WireClient, topic: str) -> None:
    produce(client, topic, batch(b"a", b"b", b"c"))
    assert list(ask(client, topic, LATEST, 0).old_style_offsets) == [3]
    assert list(ask(client, topic, EARLIEST, 0).old_style_offsets) == [0]


def test_the_newest_record_is_the_newest_that_may_be_read() -> None:
    """The last batch waits for its flush. Until then, the newest record is in an earlier batch."""
    newer = build_batch([Record(timestamp=9, value=b"c")])
    with RunningBroker(Path("/a"), FaultyDisk()) as broker, WireClient(broker.address) as client:
        create(client, "t")
        assert produce(client, "t", batch(b"a", b"b")).error_code == 0    # timestamp 1
        with slow_flush(broker), WireClient(broker.address) as other:
            other.send(produce_request("t", newer), 9)
            log = broker.server.replicas.by_name["t"][0].log
            until(lambda: broker.call(lambda: log.log_end_offset) >= 3, "three records are there")
            found = ask(client, "t", MAX_TIMESTAMP, 7)
            assert (found.error_code, found.offset, found.timestamp) == (0, 0, 1)
        found = until(
            lambda: (now := ask(client, "t", MAX_TIMESTAMP, 7)).timestamp != 1 and now,
            "the newer record is found",
        )
        assert (found.offset, found.timestamp) == (2, 9)


@pytest.mark.parametrize("timestamp", [50_000, -3], ids=["by time", "newest"])
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_look_up_by_time_decompresses_large_batches_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: int, timestamp: int
) -> None:
    """124 KB of gzip once delayed every other client for seconds."""
    threads: list[str] = []
    decompress = time_search.decompress         # type: ignore[attr-defined]

    def noted(*arguments: object) -> bytes:
        threads.append(threading.current_thread().name)
        plain: bytes = decompress(*arguments)
        return plain

    monkeypatch.setattr(time_search, "decompress", noted)
    with RunningBroker(tmp_path) as running, WireClient(running.address) as client:
        create(client, "t")
        chance = random.Random(1)
        values = [chance.randbytes(2) for _ in range(60_000)]
        records = [Record(offset=at, timestamp=at, value=v) for at, v in enumerate(values)]
        stored = build_batch(records, codec=codec)
        assert produce(client, "t", stored).error_code == 0
        made = ListOffsetsRequest.Topic
        wanted = made.Partition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[made(name="t", partitions=[wanted])]
        )
        found = client.call(request, 7).topics[0].partitions[0]
        assert (found.error_code, found.offset) == (0, 50_000 if timestamp > 0 else 59_999)
    assert threads and all(name.startswith("ottla-worker") for name in threads)


def ask_all(
    client: WireClient, version: int, *asked: ListOffsetsRequest.Topic.Partition
) -> list[tuple[int, int, int]]:
    """Index, error code and offset of each answer."""
    topics = [ListOffsetsRequest.Topic(name="t", partitions=list(asked))]
    response = client.call(ListOffsetsRequest(replica_id=-1, topics=topics), version)
    return [(each.partition_index, each.error_code, each.offset)
            for each in response.topics[0].partitions]


@pytest.mark.parametrize("version", [3, 11])
@pytest.mark.parametrize(("timestamp", "found"), [(LATEST, 3), (EARLIEST, 0)])
def test_a_wrong_partition_of_a_topic_leaves_the_others_alone(
    tmp_path: Path, version: int, timestamp: int, found: int
) -> None:
    with RunningBroker(tmp_path) as running, WireClient(running.address) as client:
        create(client, "t", 30)
        for index in range(30):
            assert produce(client, "t", batch(b"a", b"b", b"c"), partition=index).error_code == 0
        asked = [PARTITION(partition_index=index, timestamp=timestamp) for index in range(30)]
        asked[2] = PARTITION(partition_index=1, timestamp=timestamp)
        asked[3] = PARTITION(partition_index=30, timestamp=timestamp)
        asked[4] = PARTITION(partition_index=-1, timestamp=timestamp)
        wanted = {index: (0, found) for index in range(30) if index not in (2, 3, 4)}
        wanted |= {
            1: (int(ErrorCode.INVALID_REQUEST), -1),
            30: (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), -1),
            -1: (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), -1),
        }
        if version >= 4:
            asked[5] = PARTITION(partition_index=5, timestamp=timestamp, current_leader_epoch=9)
            wanted[5] = (int(ErrorCode.UNKNOWN_LEADER_EPOCH), -1)
        answers = ask_all(client, version, *asked)
        assert len(answers) == len(wanted)
        assert {index: (code, offset) for index, code, offset in answers} == wanted


def test_versions_without_leader_epochs_open_no_log_that_is_at_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A console asks for the first offsets of all logs, perhaps of 100,000 unused ones after a
    restart."""
    with RunningBroker(tmp_path) as running, WireClient(running.address) as client:
        create(client, "t")
        assert produce(client, "t", batch(b"a", b"b", b"c")).error_code == 0
    opened: list[str] = []
    load = loading.load

    def noted(*arguments: Any) -> Any:
        opened.append(arguments[2])
        return load(*arguments)

    with RunningBroker(tmp_path) as running, WireClient(running.address) as client:
        monkeypatch.setattr(loading, "load", noted)
        for version in (1, 2, 3):
            assert ask(client, "t", EARLIEST, version).offset == 0
            assert ask(client, "t", LATEST, version).offset == 3
        assert ask(client, "t", LATEST, 11).offset == 3
        assert not opened
        assert (answer := ask(client, "t", EARLIEST, 4)).offset == answer.leader_epoch == 0
        assert opened
