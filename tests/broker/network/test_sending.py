"""Records of any size reach a client as they were written, however little its socket accepts."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from ottla.wire.messages import FetchRequest
from tests.broker.produce_fetch import batch, fetch_request, produce, values
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create

SIZES = (1, 5_000, 8_150, 20_000, 60_000, 130_900, 131_072, 190_000, 400_000)
"""Sizes of records below and above the limits from which a reply sends them in another way."""
PARTITIONS = 3


def all_partitions(offsets: list[int], partition_max_bytes: int) -> FetchRequest:
    """One fetch of every partition."""
    request = fetch_request("t", max_bytes=4 << 20)
    request.topics[0].partitions = [
        FetchRequest.Topic.Partition(
            partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes
        )
        for index, offset in enumerate(offsets)
    ]
    return request


def written(client: WireClient, chance: random.Random) -> list[list[bytes | None]]:
    """Produce a batch for each value; returns the values of each partition."""
    create(client, "t", PARTITIONS)
    sizes = [size for size in SIZES for _ in range(2)]
    partitions: list[list[bytes | None]] = []
    for index in range(PARTITIONS):
        chance.shuffle(sizes)
        partitions.append([bytes([chance.randrange(256)]) * size for size in sizes])
        for value in partitions[-1]:
            assert produce(client, "t", batch(value), partition=index).error_code == 0
    return partitions


@pytest.mark.parametrize("partition_max_bytes", [1, 131_072, 1 << 20])
@pytest.mark.parametrize("send_buffer", [65_536, 102_400])
def test_ranges_of_every_size_arrive_as_they_were_written(
    data: Path, partition_max_bytes: int, send_buffer: int
) -> None:
    settings = {"socket_send_buffer_bytes": send_buffer}
    with RunningBroker(data, **settings) as broker, WireClient(broker.address) as reader:
        expected = written(reader, random.Random(partition_max_bytes))
        found: list[list[bytes | None]] = [[] for _ in expected]
        for _ in range(sum(map(len, expected))):
            request = all_partitions([len(got) for got in found], partition_max_bytes)
            sent = [reader.send(request, 11) for _ in range(2)]
            answers = [reader.answer(each).responses[0].partitions for each in sent]
            for each in answers[0]:
                found[each.partition_index] += values(each)
            assert [values(each) for each in answers[1]] == [values(each) for each in answers[0]]
        assert found == expected


@pytest.mark.parametrize("size", [5_000, 60_000, 200_000])
def test_a_segment_that_lost_its_end_closes_the_connection_and_says_so(
    data: Path, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        create(client, "t", 1)
        assert produce(client, "t", batch(b"a" * size)).error_code == 0
        with (data / "t-0" / "00000000000000000000.log").open("r+b") as segment:
            segment.truncate(size // 2)
        with caplog.at_level(logging.ERROR), WireClient(broker.address) as reader:
            reader.send(fetch_request("t"), 11)
            with pytest.raises(ConnectionError):
                reader.receive_frame()
        assert produce(client, "t", batch(b"others are served")).error_code == 0
    assert "is closed" in caplog.text
    assert "00000000000000000000.log has " in caplog.text
