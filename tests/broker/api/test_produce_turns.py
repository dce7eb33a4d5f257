"""A produce to many partitions is interrupted for other clients, and its answer is the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.broker.api.records.produce import TURN_SECONDS
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import ProduceRequest
from tests.broker.api.test_compression_type import HeldWorkers
from tests.broker.produce_fetch import batch, fetch, produce_request, values
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create

PARTITIONS = 40
RESTS = 2  # the clock is read after every eight partitions; the second reading ends a turn
VERSION = 9


@pytest.fixture
def held(broker: RunningBroker) -> Iterator[HeldWorkers]:
    """Workers that the test releases; a turn of producing ends at the first reading of the
    clock."""
    producings = {listener.producing for listener in broker.server.listeners}
    for producing in producings:
        assert producing.turn_seconds == TURN_SECONDS
        producing.turn_seconds = -1.0
    workers = HeldWorkers(broker)
    yield workers
    broker.server.broker.workers = workers.workers
    for producing in producings:
        producing.turn_seconds = TURN_SECONDS


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
    # What was sent after it is appended after it.
    assert values(fetch(client, topic)) == [b"first0", b"second"]
