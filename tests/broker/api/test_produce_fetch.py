"""What was produced is read back, in every version, at once or after a wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import CreateTopicsRequest, ListOffsetsRequest, MetadataRequest
from ottla.wire.records import Record, build_batch
from tests.broker.produce_fetch import (
    batch,
    fetch,
    fetch_request,
    produce,
    produce_request,
    values,
)
from tests.broker.running import RunningBroker, WireClient


@pytest.fixture
def compacted_topic(client: WireClient) -> str:
    policy = CreateTopicsRequest.Topic.Config(name="cleanup.policy", value="compact")
    topic = CreateTopicsRequest.Topic(
        name="compacted", num_partitions=1, replication_factor=1, configs=[policy]
    )
    client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
    return "compacted"


def topic_id(client: WireClient, topic: str) -> bytes:
    request = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)])
    return bytes(client.call(request, 12).topics[0].topic_id)


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_answers_in_every_version(client: WireClient, topic: str, version: int) -> None:
    name = topic_id(client, topic) if version >= 13 else topic
    for expected in range(3):
        response = client.call(produce_request(name, batch(b"v")), version)
        answer = response.responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, expected)
    assert fetch(client, topic).high_watermark == 3


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_answers_in_every_version(client: WireClient, topic: str, version: int) -> None:
    produce(client, topic, batch(b"a", b"b"))
    produce(client, topic, batch(b"c"))
    request = fetch_request(topic)
    if version >= 13:
        request.topics[0].topic_id = topic_id(client, topic)
        request.topics[0].topic = ""
    answer = client.call(request, version).responses[0].partitions[0]
    assert values(answer) == [b"a", b"b", b"c"]
    assert (answer.high_watermark, answer.last_stable_offset) == (3, 3)


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_every_kind_of_acknowledgement_leaves_the_record(
    client: WireClient, topic: str, acks: int
) -> None:
    client.send(produce_request(topic, batch(b"v"), acks=acks), 9)
    if acks:
        assert client.receive_frame()
    answer = fetch(client, topic, max_wait_ms=5000)
    assert values(answer) == [b"v"]


@pytest.mark.parametrize("version", [7, 8, 9, 12])
def test_a_refusal_names_the_records_to_blame(
    client: WireClient, compacted_topic: str, version: int
) -> None:
    records = [
        Record(offset=n, timestamp=1, key=key, value=b"v")
        for n, key in enumerate([b"a", None, b"b", None])
    ]
    refused = produce(client, compacted_topic, build_batch(records), version)
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == ([1, 3] if version > 7 else [])
    assert all("no key" in error.batch_index_error_message for error in refused.record_errors)
    assert fetch(client, compacted_topic).high_watermark == 0


def test_a_large_reply_comes_from_the_file_whole(client: WireClient, topic: str) -> None:
    sent = [bytes([n]) * 100_000 for n in range(30)]
    for value in sent:
        assert produce(client, topic, batch(value)).error_code == 0
    got: list[bytes | None] = []
    while len(got) < 30:
        got += values(fetch(client, topic, len(got)))
    assert got == sent


def test_a_batch_above_every_limit_is_still_sent_whole(client: WireClient, topic: str) -> None:
    produce(client, topic, batch(b"x" * 50_000))
    answer = fetch(client, topic, max_bytes=10, partition_max_bytes=10)
    assert values(answer) == [b"x" * 50_000]


def test_a_partition_that_does_not_fit_any_more_is_empty_not_cut(
    client: WireClient, topic: str
) -> None:
    for partition in (0, 1):
        produce(client, topic, batch(b"x" * 5_000), partition=partition)
    request = fetch_request(topic, max_bytes=6_000)
    first = request.topics[0].partitions[0]
    request.topics[0].partitions.append(
        type(first)(partition=1, fetch_offset=0, partition_max_bytes=1 << 20)
    )
    answers = client.call(request, 11).responses[0].partitions
    assert [len(values(answer)) for answer in answers] == [1, 0]


def test_a_waiting_fetch_is_woken_by_a_record(
    client: WireClient, topic: str, broker: RunningBroker
) -> None:
    sent = client.send(fetch_request(topic, max_wait_ms=20_000), 11)
    with WireClient(broker.address) as producer:
        produce(producer, topic, batch(b"wake"))
    answer = client.answer(sent).responses[0].partitions[0]
    assert values(answer) == [b"wake"]


def test_a_waiting_fetch_ends_empty_when_its_time_is_up(client: WireClient, topic: str) -> None:
    answer = fetch(client, topic, max_wait_ms=20)
    assert (answer.error_code, values(answer)) == (0, [])


def test_a_fetch_waits_until_min_bytes_are_there(
    client: WireClient, topic: str, broker: RunningBroker
) -> None:
    sent = client.send(fetch_request(topic, max_wait_ms=20_000, min_bytes=5_000), 11)
    with WireClient(broker.address) as producer:
        produce(producer, topic, batch(b"x" * 1_000))
        produce(producer, topic, batch(b"y" * 6_000))
    assert len(values(client.answer(sent).responses[0].partitions[0])) == 2


def test_pipelined_produces_are_answered_in_order(client: WireClient, topic: str) -> None:
    sent = [client.send(produce_request(topic, batch(b"v")), 9) for _ in range(50)]
    answers = [client.answer(each) for each in sent]
    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
    assert offsets == list(range(50))


def test_other_requests_behind_a_promised_produce_keep_their_turn(
    client: WireClient, topic: str
) -> None:
    first = client.send(produce_request(topic, batch(b"v")), 9)
    second = client.send(fetch_request(topic), 11)
    third = client.send(MetadataRequest(topics=[]), 9)
    assert client.answer(first).responses[0].partition_responses[0].error_code == 0
    assert values(client.answer(second).responses[0].partitions[0]) == [b"v"]
    assert client.answer(third).brokers


def test_a_wrong_leader_epoch_is_fenced_or_unknown(client: WireClient, topic: str) -> None:
    request = fetch_request(topic)
    request.topics[0].partitions[0].current_leader_epoch = 99
    answer = client.call(request, 11).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_client_that_is_ahead_of_the_log_is_told_where_it_diverges(
    client: WireClient, topic: str
) -> None:
    produce(client, topic, batch(b"v"))
    request = fetch_request(topic, offset=1)
    request.topics[0].partitions[0].last_fetched_epoch = 0
    assert client.call(request, 12).responses[0].partitions[0].diverging_epoch.end_offset == -1
    request.topics[0].partitions[0].fetch_offset = 5
    answer = client.call(request, 12).responses[0].partitions[0]
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 1)


@pytest.mark.parametrize("version", range(1, 12))
def test_offsets_by_time(client: WireClient, topic: str, version: int) -> None:
    for value in (b"a", b"b", b"c"):
        produce(client, topic, batch(value))

    def look_up(timestamp: int) -> int:
        item = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsRequest.Topic(name=topic, partitions=[item])]
        )
        answer = client.call(request, version).topics[0].partitions[0]
        assert answer.error_code == 0
        return int(answer.offset)

    assert [look_up(-1), look_up(-2), look_up(0), look_up(2)] == [3, 0, 0, -1]


def test_everything_is_there_after_a_restart(data: Path) -> None:
    with RunningBroker(data) as first, WireClient(first.address) as client:
        client.call(MetadataRequest(topics=[MetadataRequest.Topic(name="kept")]), 9)
        assert produce(client, "kept", batch(b"v")).error_code == 0
        identity = client.call(MetadataRequest(topics=None), 12)
    with RunningBroker(data) as second, WireClient(second.address) as client:
        assert values(fetch(client, "kept")) == [b"v"]
        again = client.call(MetadataRequest(topics=None), 12)
    assert again.cluster_id == identity.cluster_id
    assert [topic.topic_id for topic in again.topics] == [t.topic_id for t in identity.topics]
