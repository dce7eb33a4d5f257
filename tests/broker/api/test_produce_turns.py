"""A Produce to many partitions is interrupted to serve other clients; this changes no answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.broker.api.records.produce import TURN_SECONDS
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import MetadataRequest, ProduceRequest
from tests.broker.held_workers import HeldWorkers, held_workers
from tests.broker.produce_fetch import batch, fetch, produce_request, values
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create
from tests.broker.transactions import end, find, init

PARTITIONS = 40
RESTS = 2  # the clock is read after every eight partitions; every second reading ends a turn
VERSION = 9


@pytest.fixture
def held(broker: RunningBroker) -> Iterator[HeldWorkers]:
    """Workers that the test releases. A turn begins at one reading of the clock, and ends at the
    next."""
    handlers = {listener.produce_handler for listener in broker.server.listeners}
    for handler in handlers:
        assert handler.turn_seconds == TURN_SECONDS
        handler.turn_seconds = -1.0
    with held_workers(broker) as workers:
        yield workers
    for handler in handlers:
        handler.turn_seconds = TURN_SECONDS


def to_all(topic: str, acks: int, value: bytes) -> ProduceRequest:
    made = ProduceRequest.TopicData
    return ProduceRequest(
        acks=acks, timeout_ms=20_000,
        topic_data=[
            made(name=topic, partition_data=[
                made.PartitionData(index=index, records=batch(value + b"%d" % index))
                for index in range(PARTITIONS)
            ])
        ],
    )


@pytest.mark.parametrize("acks", [1, -1])
def test_others_are_served_while_a_large_request_rests(
    client: WireClient, broker: RunningBroker, held: HeldWorkers, acks: int
) -> None:
    topic = create(client, f"wide{acks}", PARTITIONS)
    first = client.send(to_all(topic, acks, b"first"), VERSION)
    second = client.send(produce_request(topic, batch(b"second")), VERSION)
    held.wait()
    with WireClient(broker.address) as other:
        answer = other.call(produce_request(topic, batch(b"other"), partition=39), VERSION)
        assert answer.responses[0].partition_responses[0].base_offset == 0
    for _ in range(RESTS):
        held.let_go()
    told = client.answer(first).responses[0].partition_responses
    assert [each.index for each in told] == list(range(PARTITIONS))
    assert {each.error_code for each in told} == {ErrorCode.NONE}
    assert [each.base_offset for each in told] == [0] * 39 + [1]
    assert client.answer(second).responses[0].partition_responses[0].base_offset == 1
    # The second request was sent after the first, so its record is appended after the first's.
    assert values(fetch(client, topic)) == [b"first0", b"second"]


@pytest.mark.parametrize("version", [12, 13])
@pytest.mark.parametrize("acks", [1, -1])
def test_what_is_named_twice_is_served_once_also_after_coordinator_and_thread(
    client: WireClient, held: HeldWorkers, version: int, acks: int
) -> None:
    """The request waits for the coordinator first, and later at the end of each turn. Meanwhile
    another request arrives on the connection."""
    key = f"twice{version}{acks}"
    names = [create(client, f"{key}-{letter}", PARTITIONS) for letter in "ab"]
    find(client, key)
    producer = init(client, key)
    told = client.call(MetadataRequest(topics=[MetadataRequest.Topic(name=n) for n in names]), 12)
    ids = {each.name: each.topic_id for each in told.topics}
    made = ProduceRequest.TopicData

    def part(name: str, indexes: list[int], value: bytes) -> ProduceRequest.TopicData:
        named = {"topic_id": ids[name]} if version >= 13 else {"name": name}
        return made(**named, partition_data=[
            made.PartitionData(index=index, records=batch(
                value + b"%d" % index, producer_id=producer.producer_id,
                producer_epoch=producer.epoch, base_sequence=0, transactional=True))
            for index in indexes
        ])

    first, second = names
    half = PARTITIONS // 2
    request = ProduceRequest(
        transactional_id=key, acks=acks, timeout_ms=20_000,
        topic_data=[
            part(first, [*range(half), 3], b"old"), part(second, [2, 1, 0], b"b"),
            part(first, [], b""), part(first, [0, *range(half, PARTITIONS)], b"new"),
        ],
    )
    sent = client.send(request, version)
    after = client.send(produce_request(first, batch(b"after"), partition=1), 9)
    for _ in range(RESTS):
        held.let_go()
    answer = client.answer(sent).responses
    assert [[each.index for each in topic.partition_responses] for topic in answer] == [
        list(range(PARTITIONS)), [2, 1, 0]]
    assert {each.error_code for topic in answer for each in topic.partition_responses} == {0}
    assert client.answer(after).responses[0].partition_responses[0].base_offset == 1
    assert end(client, key, producer, True) == producer
    for index, value in ((0, b"new0"), (3, b"old3"), (half, b"new%d" % half)):
        assert values(fetch(client, first, partition=index)) == [value]
    assert values(fetch(client, second, partition=2)) == [b"b2"]
