"""Every start begins new leader epochs, so that clients detect what a power cut removed (KIP-320).

A standalone Apache Kafka 4.3.1 raises the epochs by two at each start, clean or not. The expected
error codes are Kafka's.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from ottla.log.storage.reserve import RESERVE
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
)
from tests.broker.produce_fetch import batch, fetch, fetch_request, produce, values
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create
from tests.log.faulty_disk import FaultyDisk


def epoch(client: WireClient, topic: str) -> int:
    asked = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)])
    (found,) = {each.leader_epoch for each in client.call(asked, 9).topics[0].partitions}
    made = DescribeTopicPartitionsRequest
    asked_too = made(topics=[made.Topic(name=topic)], response_partition_limit=9)
    for described in client.call(asked_too, 0).topics[0].partitions:
        assert described.leader_epoch == found
    return int(found)


def fetched(client: WireClient, offset: int, current_epoch: int) -> Any:
    request = fetch_request("t", offset)
    request.topics[0].partitions[0].current_leader_epoch = current_epoch
    return client.call(request, 11).responses[0].partitions[0]


def end_of(client: WireClient, current: int, asked: int) -> tuple[int, int, int]:
    """The error, epoch and end offset that OffsetForLeaderEpoch returns."""
    made = OffsetForLeaderEpochRequest
    one = made.Topic.Partition(partition=0, current_leader_epoch=current, leader_epoch=asked)
    request = made(replica_id=-1, topics=[made.Topic(topic="t", partitions=[one])])
    found = client.call(request, 3).topics[0].partitions[0]
    return found.error_code, found.leader_epoch, found.end_offset


def test_a_client_that_read_what_a_power_cut_took_gets_the_right_end() -> None:
    disk = FaultyDisk()
    with RunningBroker(Path("/a"), disk) as broker, WireClient(broker.address) as client:
        create(client, "t", partitions=1)
        for number in range(5):
            assert produce(client, "t", batch(b"%d" % number)).error_code == 0
        promised = broker.call(copy.deepcopy, disk)
        for number in range(5, 9):
            assert produce(client, "t", batch(b"%d" % number), acks=1).error_code == 0
        assert (epoch(client, "t"), len(values(fetch(client, "t")))) == (0, 9)
    promised.cut_power()
    with RunningBroker(Path("/a"), promised) as broker, WireClient(broker.address) as client:
        assert epoch(client, "t") == 1
        # New records take the offsets of those that the power cut removed.
        for _ in range(6):
            assert produce(client, "t", batch(b"new")).error_code == 0
        assert fetched(client, 9, 0).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert fetched(client, 9, 2).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert end_of(client, 0, 0)[0] == ErrorCode.FENCED_LEADER_EPOCH
        assert end_of(client, 1, 0) == (0, 0, 5), "what comes behind is not what was read"
        assert end_of(client, 1, 1) == (0, 1, 11)
        assert end_of(client, -1, 99) == (0, -1, -1)


def test_a_clean_stop_begins_new_epochs_too_and_a_new_topic_begins_at_zero(tmp_path: Path) -> None:
    for start in range(3):
        with RunningBroker(tmp_path) as broker, WireClient(broker.address) as client:
            create(client, f"t{start}", partitions=2)
            for made in range(start + 1):
                assert epoch(client, f"t{made}") == start - made
                assert produce(client, f"t{made}", batch(b"v"), partition=1).error_code == 0
    with RunningBroker(tmp_path) as broker, WireClient(broker.address) as client:
        records = fetch(client, "t0", partition=1).records
        epochs = [int.from_bytes(records[at + 12 : at + 16], "big") for at in (0, 69, 138)]
        assert epochs == [0, 1, 2]


def test_a_crash_before_anything_is_written_in_an_epoch_keeps_the_older_ones(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk()
    with RunningBroker(Path("/a"), disk) as broker, WireClient(broker.address) as client:
        create(client, "t", partitions=1)
        assert produce(client, "t", batch(bytes(5000))).error_code == 0
    for start in range(1, 4):
        with RunningBroker(Path("/a"), disk) as broker, WireClient(broker.address) as client:
            assert end_of(client, start, 0) == (0, 0, 1)
            assert end_of(client, start, start) == (0, start, 1)
            killed = broker.call(copy.deepcopy, disk)
        disk = killed
    with RunningBroker(Path("/a"), disk) as broker, WireClient(broker.address) as client:
        assert produce(client, "t", batch(b"v")).error_code == 0
        assert (end_of(client, 4, 3), end_of(client, 4, 4)) == ((0, 0, 1), (0, 4, 2))


@pytest.mark.parametrize("reserve", [False, True])
def test_a_full_disk_keeps_nobody_from_the_records_at_the_start(reserve: bool) -> None:
    disk = FaultyDisk()
    with RunningBroker(Path("/a"), disk) as broker, WireClient(broker.address) as client:
        create(client, "t", partitions=1)
        assert produce(client, "t", batch(b"v")).error_code == 0
        port = broker.port
    room, disk.free = disk.free, 0
    if not reserve:
        disk.inode(f"/a/{RESERVE}").content.clear()
    listener = f"PLAINTEXT://127.0.0.1:{port}"
    with RunningBroker(Path("/a"), disk, listeners=listener) as broker:
        with WireClient(broker.address) as client:
            assert values(fetch(client, "t")) == [b"v"]
            assert epoch(client, "t") == reserve, "a new epoch is noted where there is room for it"
        disk.free = room
