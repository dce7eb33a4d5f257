"""A client over its quota is answered at once, and then not read from for the throttle time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AlterClientQuotasRequest,
    ApiVersionsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    MetadataRequest,
)
from tests.broker.fetch_sessions import session_fetch
from tests.broker.produce_fetch import batch, fetch_request, produce, produce_request, values
from tests.broker.running import CLIENT_ID, RunningBroker, WireClient, pass_time
from tests.broker.topics import create
from tests.waiting import until

QUOTA = 1000.0
LARGE = batch(bytes(20_000))
REFUSED = int(ErrorCode.THROTTLING_QUOTA_EXCEEDED)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path) as running:
        yield running


def set_quota(
    broker: RunningBroker, key: str, value: float | None, client_id: str | None = CLIENT_ID
) -> None:
    made = AlterClientQuotasRequest.Entry
    request = AlterClientQuotasRequest(
        entries=[
            made(
                entity=[made.Entity(entity_type="client-id", entity_name=client_id)],
                ops=[made.Op(key=key, value=value or 0, remove=value is None)],
            )
        ]
    )
    with WireClient(broker.address) as admin:
        assert admin.call(request, 1).entries[0].error_code == 0


def muted(broker: RunningBroker) -> int:
    """How many connections wait for the broker, for example until their throttle time is over."""
    return int(broker.call(lambda: sum(c.held() for c in broker.server.listeners[0].connections)))


def requests(broker: RunningBroker) -> int:
    return int(broker.call(lambda: sum(c.requests for c in broker.server.listeners[0].connections)))


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_a_produce_over_its_quota_names_the_time(
    broker: RunningBroker, version: int, acks: int
) -> None:
    with WireClient(broker.address) as client:
        create(client, "t")
        topic: Any = "t"
        if version >= 13:
            topic = client.call(MetadataRequest(topics=None), 12).topics[0].topic_id
        set_quota(broker, "producer_byte_rate", QUOTA)
        answer = client.call(produce_request(topic, LARGE, acks=acks), version)
        assert answer.responses[0].partition_responses[0].error_code == 0
        # A little over 20,000 bytes, in a window that is treated as ten seconds long.
        assert 10_000 <= answer.throttle_time_ms <= 10_400
        assert muted(broker) == 1


def test_a_throttled_connection_is_not_read_until_its_time_is_over(broker: RunningBroker) -> None:
    with WireClient(broker.address) as client, WireClient(broker.address) as other:
        create(client, "t")
        set_quota(broker, "producer_byte_rate", QUOTA)
        assert produce(client, "t", LARGE).error_code == 0
        before = requests(broker)
        sent = [client.send(ApiVersionsRequest(), 0) for _ in range(3)]
        assert other.call(ApiVersionsRequest(), 0).error_code == 0    # no other client is delayed
        pass_time(broker, 9)
        assert requests(broker) == before + 1
        pass_time(broker, 2)
        assert [client.answer(each).error_code for each in sent] == [0, 0, 0]
        assert muted(broker) == 0


def test_a_produce_without_acknowledgement_is_throttled_too(broker: RunningBroker) -> None:
    with WireClient(broker.address) as client:
        create(client, "t")
        set_quota(broker, "producer_byte_rate", QUOTA)
        client.send(produce_request("t", LARGE, acks=0), 9)
        until(lambda: muted(broker), "the connection is muted")
        later = client.send(fetch_request("t"), 11)
        pass_time(broker, 11)
        assert len(values(client.answer(later).responses[0].partitions[0])) == 1


def test_clients_share_the_quota_of_their_id_and_not_of_a_default(broker: RunningBroker) -> None:
    with WireClient(broker.address) as first, WireClient(broker.address) as second:
        create(first, "t")
        set_quota(broker, "producer_byte_rate", QUOTA, None)
        other = WireClient(broker.address)
        other.frames.client_id = "other"
        assert first.call(produce_request("t", batch(bytes(9_000))), 9).throttle_time_ms == 0
        assert second.call(produce_request("t", batch(bytes(9_000))), 9).throttle_time_ms > 0
        with other:
            assert other.call(produce_request("t", batch(bytes(9_000))), 9).throttle_time_ms == 0


def test_the_client_id_counts_that_the_request_itself_names(broker: RunningBroker) -> None:
    with WireClient(broker.address) as client:
        create(client, "t")
        set_quota(broker, "producer_byte_rate", QUOTA, "test")
        for other in ("tes", "tesT", "test2", "", "\N{LATIN SMALL LETTER E WITH ACUTE}", None):
            client.frames.client_id = other
            assert client.call(produce_request("t", LARGE), 9).throttle_time_ms == 0, other
        client.frames.client_id = "test"
        assert client.call(produce_request("t", LARGE), 9).throttle_time_ms > 0


def test_a_quota_that_goes_throttles_nobody(broker: RunningBroker) -> None:
    with WireClient(broker.address) as client:
        create(client, "t")
        set_quota(broker, "producer_byte_rate", QUOTA)
        set_quota(broker, "producer_byte_rate", None)
        assert client.call(produce_request("t", LARGE), 9).throttle_time_ms == 0
        set_quota(broker, "producer_byte_rate", 10 * QUOTA)
        assert client.call(produce_request("t", LARGE), 9).throttle_time_ms == 0


def test_a_throttled_fetch_takes_no_records_and_is_not_charged(broker: RunningBroker) -> None:
    with WireClient(broker.address) as client:
        create(client, "t")
        for _ in range(3):
            produce(client, "t", batch(bytes(6_000)))
        set_quota(broker, "consumer_byte_rate", QUOTA)
        first = client.call(fetch_request("t", 0, partition_max_bytes=6_100), 11)
        assert len(values(first.responses[0].partitions[0])) == 1 and not first.throttle_time_ms
        throttled = client.call(fetch_request("t", 1, partition_max_bytes=6_100), 11)
        assert throttled.responses == [] and throttled.error_code == 0
        assert 2_000 < throttled.throttle_time_ms < 3_000
        waited = 0.0
        while throttled.throttle_time_ms:
            # The first window is treated as ten seconds long, so a wait may be too short, as in
            # Kafka.
            waited += throttled.throttle_time_ms / 1000
            assert waited < 15
            pass_time(broker, throttled.throttle_time_ms / 1000)
            throttled = client.call(fetch_request("t", 1, partition_max_bytes=6_100), 11)
        assert len(values(throttled.responses[0].partitions[0])) == 1


def test_a_batch_larger_than_a_whole_window_is_read_once_and_throttled_after(
    broker: RunningBroker,
) -> None:
    with WireClient(broker.address) as client:
        create(client, "t")
        produce(client, "t", LARGE)
        set_quota(broker, "consumer_byte_rate", QUOTA)
        answer = client.call(fetch_request("t"), 11)
        assert len(values(answer.responses[0].partitions[0])) == 1
        assert answer.throttle_time_ms > 9_000


def test_a_throttled_fetch_begins_no_session(broker: RunningBroker) -> None:
    with WireClient(broker.address) as client:
        create(client, "t")
        produce(client, "t", LARGE)
        set_quota(broker, "consumer_byte_rate", QUOTA)
        client.call(fetch_request("t"), 11)
        pass_time(broker, 10)
        throttled = session_fetch(client, "t", 0, 0, {0: 0})
        assert throttled.throttle_time_ms > 0
        assert (throttled.session_id, throttled.responses) == (0, [])
        pass_time(broker, 60)
        begun = session_fetch(client, "t", 0, 0, {0: 0})
        assert begun.session_id > 0 and begun.responses


def test_an_incremental_session_goes_on_after_a_throttled_fetch(broker: RunningBroker) -> None:
    with WireClient(broker.address) as client:
        create(client, "t")
        produce(client, "t", batch(bytes(9_000)))
        set_quota(broker, "consumer_byte_rate", QUOTA)
        begun = session_fetch(client, "t", 0, 0, {0: 0})
        assert begun.session_id > 0 and begun.responses
        produce(client, "t", batch(bytes(9_000)))
        throttled = session_fetch(client, "t", begun.session_id, 1, {0: 1})
        assert throttled.session_id == begun.session_id
        assert throttled.throttle_time_ms > 0 and not throttled.responses
        pass_time(broker, 12)
        following = session_fetch(client, "t", begun.session_id, 2, {})
        assert len(values(following.responses[0].partitions[0])) == 1


def test_request_time_is_a_quota_for_every_api(broker: RunningBroker) -> None:
    with WireClient(broker.address) as client:
        create(client, "t")
        set_quota(broker, "request_percentage", 1e-9)
        for request, version in (
            (ApiVersionsRequest(), 2),
            (ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3),
            (MetadataRequest(topics=[]), 9),
            (produce_request("t", batch(b"v"), acks=-1), 9),
            (fetch_request("t"), 11),
            (CreateTopicsRequest(topics=[], timeout_ms=1000), 5),
        ):
            answer = client.call(request, version)
            assert answer.throttle_time_ms == 1000, request     # never longer than a window
            pass_time(broker, 1.1)


def create_partitions(client: WireClient, name: str, partitions: int, version: int) -> Any:
    topic = CreateTopicsRequest.Topic(name=name, num_partitions=partitions, replication_factor=1)
    return client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), version)


def test_mutations_are_refused_once_their_client_owes_some(broker: RunningBroker) -> None:
    set_quota(broker, "controller_mutation_rate", 1)
    with WireClient(broker.address) as client:
        made = create_partitions(client, "a", 20, 6)
        assert (made.topics[0].error_code, made.throttle_time_ms) == (0, 0)
        refused = create_partitions(client, "b", 1, 6)
        assert refused.topics[0].error_code == REFUSED
        assert refused.topics[0].error_message is None
        assert 8_000 < refused.throttle_time_ms <= 9_000
    with WireClient(broker.address) as client:
        more = CreatePartitionsRequest.Topic(name="a", count=21, assignments=None)
        answer = client.call(CreatePartitionsRequest(topics=[more], timeout_ms=1000), 3)
        assert answer.results[0].error_code == REFUSED
    with WireClient(broker.address) as client:
        gone = DeleteTopicsRequest.Topic(name="a")
        answer = client.call(DeleteTopicsRequest(topics=[gone], timeout_ms=1000), 6)
        assert answer.responses[0].error_code == REFUSED


def test_clients_that_do_not_know_the_refusal_are_only_throttled(broker: RunningBroker) -> None:
    set_quota(broker, "controller_mutation_rate", 1)
    with WireClient(broker.address) as client:
        made = create_partitions(client, "a", 20, 5)
        assert made.topics[0].error_code == 0
        assert 8_000 < made.throttle_time_ms <= 9_000
        assert muted(broker) == 1
        pass_time(broker, 10)
        assert create_partitions(client, "b", 1, 5).topics[0].error_code == 0
