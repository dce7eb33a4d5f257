"""After a start, logs are read when they are needed. If a log cannot be read from the disk, a
transactional Produce refuses this partition, and writes the other partitions of the request."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest

from ottla.groups.records import Producer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import ProduceRequest
from ottla.wire.records import Record, build_batch
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create
from tests.broker.transactions import OK, end, find, init, write
from tests.log.faulty_disk import FaultyDisk
from tests.waiting import until

KEY, PARTITIONS = "x", 2


def produce(client: WireClient, producer: Producer) -> list[ErrorCode]:
    """Send one transactional request for all partitions; returns the error code of each."""
    made = ProduceRequest.TopicData
    records = build_batch(
        [Record(timestamp=int(time.time() * 1000), value=b"v")], producer_id=producer.producer_id,
        producer_epoch=producer.epoch, base_sequence=0, transactional=True,
    )
    data = [made.PartitionData(index=each, records=records) for each in range(PARTITIONS)]
    answer = client.call(ProduceRequest(
        transactional_id=KEY, acks=-1, timeout_ms=10_000,
        topic_data=[made(name="t", partition_data=data)],
    ), 12)
    return [ErrorCode(each.error_code) for each in answer.responses[0].partition_responses]


@pytest.mark.parametrize("failure", [errno.EIO, errno.EMFILE])
def test_a_partition_whose_log_cannot_be_read_fails_no_other_one(failure: int) -> None:
    disk = FaultyDisk()
    with RunningBroker(Path("/a"), disk) as broker, WireClient(broker.address) as client:
        create(client, "t", PARTITIONS)
        find(client, KEY)
        producer = until(
            lambda: isinstance(now := init(client, KEY), Producer) and now, "a producer")
        for index in range(PARTITIONS):
            written = write(client, KEY, producer, "t", b"v", partition=index, version=12)
            assert written is OK
        assert isinstance(end(client, KEY, producer, True, 5), Producer)
    with RunningBroker(Path("/a"), disk) as broker, WireClient(broker.address) as client:
        producer = until(
            lambda: isinstance(now := init(client, KEY), Producer) and now, "a producer")
        disk.failing, disk.errors = "/a/t-0/", {"read": failure}
        assert produce(client, producer) == [ErrorCode.KAFKA_STORAGE_ERROR, OK]
        disk.errors = {}
        assert isinstance(end(client, KEY, producer, True, 5), Producer)
