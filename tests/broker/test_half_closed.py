"""Clients that close their sending side and keep reading: their requests are answered."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ottla.wire.messages import ApiVersionsRequest, JoinGroupRequest, MetadataRequest
from tests.broker.groups import find
from tests.broker.produce_fetch import batch, fetch_request, produce, produce_request, values
from tests.broker.running import RunningBroker, WireClient, pass_time
from tests.broker.topics import create
from tests.waiting import until


def half_close(client: WireClient) -> None:
    client.socket.shutdown(socket.SHUT_WR)


def open_connections(broker: RunningBroker) -> list[bool]:
    """For each open connection, whether its client has closed its sending side."""
    return list(broker.call(
        lambda: [each.ended for each in broker.server.listeners[0].connections]))


def waits(broker: RunningBroker) -> bool:
    return any(each.held() for each in broker.server.listeners[0].connections)


def test_a_request_is_answered_and_the_connection_is_closed_then(
    client: WireClient, topic: str
) -> None:
    sent = client.send(MetadataRequest(topics=[MetadataRequest.Topic(name=topic)]), 9)
    half_close(client)
    assert client.answer(sent).topics[0].error_code == 0
    assert client.is_closed()


def test_pipelined_requests_are_all_answered(client: WireClient, topic: str) -> None:
    produced = [
        client.send(produce_request(topic, batch(b"%d" % number)), 9) for number in range(20)
    ]
    asked = [client.send(ApiVersionsRequest(), 0) for _ in range(20)]
    half_close(client)
    answers = [client.answer(sent).responses[0].partition_responses[0] for sent in produced]
    assert [each.base_offset for each in answers] == list(range(20))
    assert all(client.answer(sent).error_code == 0 for sent in asked)
    assert client.is_closed()


def test_half_a_frame_is_nothing_that_was_asked_for(client: WireClient) -> None:
    sent = client.send(ApiVersionsRequest(), 0)
    client.send_bytes(b"\0\0\0\x20\0")
    half_close(client)
    assert client.answer(sent).error_code == 0
    assert client.is_closed()


@pytest.mark.parametrize("ends_by", ["a record", "its wait"])
def test_a_waiting_fetch_is_answered(
    broker: RunningBroker, client: WireClient, topic: str, ends_by: str
) -> None:
    sent = client.send(fetch_request(topic, max_wait_ms=60_000), 11)
    last = client.send(ApiVersionsRequest(), 0)
    half_close(client)
    until(lambda: True in open_connections(broker), "the broker knows of it")
    if ends_by == "a record":
        with WireClient(broker.address) as producer:
            produce(producer, topic, batch(b"v"))
    else:
        pass_time(broker, 61)
    found = values(client.answer(sent).responses[0].partitions[0])
    assert found == ([b"v"] if ends_by == "a record" else [])
    assert client.answer(last).error_code == 0
    assert client.is_closed()


def test_a_reply_that_does_not_fit_into_the_socket_is_sent_whole(
    client: WireClient, topic: str
) -> None:
    for _ in range(8):
        produce(client, topic, batch(b"x" * 900_000))
    request = fetch_request(topic, max_bytes=1 << 24, partition_max_bytes=1 << 24)
    sent = [client.send(request, 11) for _ in range(4)]
    half_close(client)
    for each in sent:
        found = values(client.answer(each).responses[0].partitions[0])
        assert [len(value or b"") for value in found] == [900_000] * 8
    assert client.is_closed()


def test_a_client_that_is_gone_is_let_go_of_when_it_is_idle(data: Path) -> None:
    with RunningBroker(data) as broker:
        with WireClient(broker.address) as client:
            create(client, "t")
            client.send(fetch_request("t", max_wait_ms=2**31 - 1), 11)
        until(lambda: open_connections(broker) == [True], "the fetch of a gone client waits")
        pass_time(broker, 601)
        pass_time(broker, 6)
        assert open_connections(broker) == []


def test_a_join_that_waits_is_answered(broker: RunningBroker, client: WireClient) -> None:
    with WireClient(broker.address) as other:

        def join(member: str) -> JoinGroupRequest:
            return JoinGroupRequest(
                group_id="half-closed", session_timeout_ms=10_000, rebalance_timeout_ms=30_000,
                member_id=member, protocol_type="consumer",
                protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"")],
            )

        until(lambda: find(other, "half-closed", 3).error_code == 0, "the coordinator is known")
        begun = other.send(join(""), 3)
        until(lambda: broker.call(waits, broker), "the group waits for more members")
        pass_time(broker, 4)
        first = other.answer(begun)
        assert first.error_code == 0
        sent = client.send(join(""), 3)
        half_close(client)
        until(lambda: True in open_connections(broker), "the broker knows of it")
        other.call(join(first.member_id), 3)
        assert client.answer(sent).generation_id == 2
        assert client.is_closed()
