"""Connections whose requests the broker holds, or whose clients do not read: none hangs, spins or
leaks."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import ApiVersionsRequest, DeleteTopicsRequest
from tests.broker.fetch_sessions import session_fetch, told
from tests.broker.produce_fetch import batch, fetch, fetch_request, produce, values
from tests.broker.running import RunningBroker, WireClient, pass_time
from tests.broker.topics import create
from tests.waiting import until


def stuck(broker: RunningBroker) -> bool:
    """Whether a client does not read its replies, so that the broker cannot send the rest."""
    return any(each.writing for each in broker.server.listeners[0].connections)


def ended(broker: RunningBroker) -> bool:
    """Whether a client has closed its sending side."""
    return any(each.ended for each in broker.server.listeners[0].connections)


def connections(broker: RunningBroker) -> int:
    return len(broker.server.listeners[0].connections)


def test_garbage_behind_a_waiting_fetch_closes_the_connection_at_once(
    client: WireClient, topic: str
) -> None:
    client.send(fetch_request(topic, max_wait_ms=60_000), 11)
    client.send_bytes(b"\xff" * 200_000)
    client.socket.settimeout(5)
    assert client.is_closed()


def test_a_connection_is_not_idle_while_it_waits_for_us(data: Path) -> None:
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        create(client, "t")
        sent = client.send(fetch_request("t", max_wait_ms=900_000), 11)
        until(lambda: held(broker), "the fetch is held")
        pass_time(broker, 901)
        assert client.answer(sent).responses[0].partitions[0].error_code == 0
        pass_time(broker, 6)
        assert client.call(ApiVersionsRequest(), 0).error_code == 0


def held(broker: RunningBroker) -> bool:
    """Whether the broker holds a request, such as a fetch that waits for records."""
    return bool(broker.call(lambda: any(c.held() for c in broker.server.listeners[0].connections)))


def test_a_client_that_never_reads_is_closed_when_it_is_idle(data: Path) -> None:
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        create(client, "t")
        produce(client, "t", batch(b"x" * 900_000))
        for _ in range(40):
            client.send(fetch_request("t"), 11)
        until(lambda: broker.call(stuck, broker), "the connection is stuck")
        pass_time(broker, 601)
        pass_time(broker, 6)
        assert broker.call(connections, broker) == 0


def test_replies_are_sent_on_when_reading_stops_meanwhile(data: Path) -> None:
    """Reading stops, for example, while a worker thread prepares the batch of a request that has
    waited for its coordinator."""
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        create(client, "t")
        produce(client, "t", batch(b"x" * 900_000))
        sent = [client.send(fetch_request("t"), 11) for _ in range(20)]
        until(lambda: broker.call(stuck, broker), "the connection is stuck")
        [connection] = broker.server.listeners[0].connections
        broker.call(connection.pause)
        answers = [client.answer(each).responses[0].partitions[0] for each in sent]
        assert {len(values(each)) for each in answers} == {1}


def test_a_session_follows_a_topic_that_comes_after_it(broker: RunningBroker, topic: str) -> None:
    later = topic + "-later"
    with WireClient(broker.address) as client, WireClient(broker.address) as admin:
        client.socket.settimeout(5)
        first = session_fetch(client, later, 0, 0, {0: 0})
        create(admin, later)
        produce(admin, later, batch(b"a"))
        assert told(session_fetch(client, later, first.session_id, 1, {})) == {0: [b"a"]}
        assert told(session_fetch(client, later, first.session_id, 2, {0: 1})) == {}
        produce(admin, later, batch(b"b"))
        assert told(session_fetch(client, later, first.session_id, 3, {})) == {0: [b"b"]}


def test_a_session_follows_a_topic_that_is_made_anew(broker: RunningBroker, topic: str) -> None:
    with WireClient(broker.address) as client, WireClient(broker.address) as admin:
        first = session_fetch(client, topic, 0, 0, {0: 0})
        session_fetch(client, topic, first.session_id, 1, {})
        for epoch in (2, 5):
            admin.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 4)
            create(admin, topic)
            session_fetch(client, topic, first.session_id, epoch, {})
            session_fetch(client, topic, first.session_id, epoch + 1, {})
            produce(admin, topic, batch(b"new"))
            answer = session_fetch(client, topic, first.session_id, epoch + 2, {})
            assert told(answer) == {0: [b"new"]}


def test_a_waiting_fetch_ends_when_its_topic_is_deleted(broker: RunningBroker, topic: str) -> None:
    with WireClient(broker.address) as client, WireClient(broker.address) as admin:
        sent = client.send(fetch_request(topic, max_wait_ms=60_000), 11)
        admin.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 4)
        answer = client.answer(sent).responses[0].partitions[0]
        assert answer.error_code == 3


def test_nothing_watches_a_partition_after_its_clients_are_gone(data: Path) -> None:
    with RunningBroker(data) as broker:
        with WireClient(broker.address) as client:
            create(client, "t")
            client.send(fetch_request("t", max_wait_ms=60_000), 11)
            until(lambda: held(broker), "the fetch is held")
        # The client may have closed its sending side only, so its fetch is answered at the end of
        # the wait.
        until(lambda: broker.call(ended, broker), "the broker knows that it sends nothing more")
        pass_time(broker, 61)
        until(lambda: not broker.call(connections, broker), "the connections are closed")
        with WireClient(broker.address) as client:
            assert produce(client, "t", batch(b"v")).error_code == 0
            assert values(fetch(client, "t")) == [b"v"]


def test_min_bytes_above_max_bytes_waits_for_no_more_than_max_bytes(
    client: WireClient, topic: str
) -> None:
    for _ in range(3):
        produce(client, topic, batch(b"x" * 1_000))
    client.socket.settimeout(5)
    answer = fetch(client, topic, max_wait_ms=60_000, min_bytes=1 << 30, max_bytes=2_000)
    assert len(values(answer)) == 1


def test_a_fetch_at_the_end_of_a_segment_does_not_wait(
    client: WireClient, topic: str, broker: RunningBroker
) -> None:
    produce(client, topic, batch(b"old"))
    partition: Any = broker.server.replicas.partition(topic, 0)
    broker.call(partition.log.roll)
    produce(client, topic, batch(b"new" * 1_000))
    client.socket.settimeout(5)
    answer = fetch(client, topic, max_wait_ms=60_000, min_bytes=3_000)
    assert values(answer) == [b"old"]


@pytest.mark.parametrize("size", range(1, 9))
def test_a_frame_too_short_for_a_header_closes_the_connection(
    client: WireClient, size: int
) -> None:
    client.send_bytes(struct.pack(">i", size) + bytes(size))
    assert client.is_closed()


def test_a_fetch_of_no_bytes_gives_one_batch(client: WireClient, topic: str) -> None:
    produce(client, topic, batch(b"a"))
    produce(client, topic, batch(b"b"))
    answer = fetch(client, topic, min_bytes=0, max_bytes=0, partition_max_bytes=0)
    assert values(answer) == [b"a"]


@pytest.mark.parametrize("size", [-1, -(2**31)])
def test_a_fetch_of_less_than_no_bytes_is_refused(
    client: WireClient, topic: str, size: int
) -> None:
    produce(client, topic, batch(b"a"))
    for sizes in ({"max_bytes": size}, {"partition_max_bytes": size}):
        answer = fetch(client, topic, max_wait_ms=size, min_bytes=size, **sizes)
        assert (answer.error_code, answer.records) == (ErrorCode.UNKNOWN_SERVER_ERROR, b"")
