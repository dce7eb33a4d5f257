"""Requests with more items than exist are refused before they use many times their size in
memory."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest

from ottla.broker.context import REQUEST_ELEMENTS_MIN
from ottla.wire.headers import RequestHeader
from ottla.wire.messages import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetFetchRequest,
    ProduceRequest,
)
from tests.broker.produce_fetch import batch, fetch_request, produce_request
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create


def fetch_of(topic: str, count: int) -> Any:
    request = fetch_request(topic)
    request.topics[0].partitions = [
        FetchRequest.Topic.Partition(partition=n, fetch_offset=0, partition_max_bytes=1)
        for n in range(count)
    ]
    return request


def produce_of(topic: str, count: int) -> Any:
    request = produce_request(topic, batch(b"x"), acks=1)
    data = ProduceRequest.TopicData.PartitionData
    request.topic_data[0].partition_data += [data(index=-1, records=b"") for _ in range(count - 1)]
    return request


def list_offsets_of(topic: str, count: int) -> Any:
    named = ListOffsetsRequest.Topic
    asked = [named.Partition(partition_index=n, timestamp=-1) for n in range(count)]
    return ListOffsetsRequest(replica_id=-1, topics=[named(name=topic, partitions=asked)])


def offset_fetch_of(topic: str, count: int) -> Any:
    named = OffsetFetchRequest.Topic
    return OffsetFetchRequest(
        group_id="g", topics=[named(name=topic, partition_indexes=list(range(count)))]
    )


REQUESTS = {
    "fetch": (fetch_of, 12), "produce": (produce_of, 9), "list offsets": (list_offsets_of, 6),
    "offset fetch": (offset_fetch_of, 5),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_what_names_far_more_than_there_is_ends_its_connection(
    broker: RunningBroker, topic: str, name: str
) -> None:
    make, version = REQUESTS[name]
    bound = broker.server.broker.request_elements_max
    with WireClient(broker.address) as client:      # with the topic itself, one item too many
        client.send(make(topic, bound), version)
        assert client.is_closed()
    with WireClient(broker.address) as client:
        assert client.call(make(topic, 1000), version)


def test_a_million_partitions_take_no_memory(broker: RunningBroker) -> None:
    one = list_offsets_of("topic", 1).encode(2)
    many = one[:-16] + struct.pack(">i", 1_000_000) + 1_000_000 * one[-12:]
    header = RequestHeader(ListOffsetsRequest.API_KEY, 2, 1, "test").encode()
    with WireClient(broker.address) as client:
        frame = struct.pack(">i", len(header) + len(many)) + header + many
        tracemalloc.start()
        try:
            client.send_bytes(frame)
            assert client.is_closed()
            assert tracemalloc.get_traced_memory()[1] < len(many) / 4
        finally:
            tracemalloc.stop()


def test_the_bound_follows_what_there_is(broker: RunningBroker, client: WireClient) -> None:
    context = broker.server.broker
    before = context.request_elements_max
    assert before >= REQUEST_ELEMENTS_MIN
    create(client, "many", partitions=30)
    assert context.request_elements_max == before + 120
