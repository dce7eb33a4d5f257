"""Offsets by time are answered in every version."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from ottla.log.partition import time_search
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
    # The field came with version 4; an older client must not get a field that it cannot read.
    assert latest.leader_epoch == (0 if version >= 4 else -1)


def test_version_0_answers_with_a_list(client: WireClient, topic: str) -> None:
    produce(client, topic, batch(b"a", b"b", b"c"))
    assert list(ask(client, topic, LATEST, 0).old_style_offsets) == [3]
    assert list(ask(client, topic, EARLIEST, 0).old_style_offsets) == [0]


def test_the_newest_record_is_the_newest_that_may_be_read() -> None:
    """The last batch waits for its flush: it must not be visible yet, and the others must be."""
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
