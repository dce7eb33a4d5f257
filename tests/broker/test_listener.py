"""Which clients may connect, and which connections are closed: limits are kept, and all other
clients are served."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from ottla.broker import listener as listener_module
from ottla.client.frames import Sent
from ottla.wire.headers import RequestHeader
from ottla.wire.messages import MetadataRequest
from tests.broker.running import RunningBroker, WireClient
from tests.waiting import until


def is_served(client: WireClient) -> bool:
    return bool(client.call(MetadataRequest(topics=[]), 9).brokers)


async def sweep(broker: RunningBroker) -> None:
    for listener in broker.server.listeners:
        listener.sweep()


def test_connections_above_the_limit_of_an_address_are_closed(data: Path) -> None:
    with RunningBroker(data, **{"max.connections.per.ip": 2}) as broker:
        with WireClient(broker.address) as first, WireClient(broker.address) as second:
            assert is_served(first) and is_served(second)
            with WireClient(broker.address) as third:
                assert third.is_closed()
            assert is_served(first)
        with WireClient(broker.address) as later:
            assert is_served(later), "room is made when others leave"


def test_an_address_may_have_a_limit_of_its_own(data: Path) -> None:
    settings = {"max.connections.per.ip": 5, "max.connections.per.ip.overrides": "127.0.0.1:1"}
    with RunningBroker(data, **settings) as broker, WireClient(broker.address) as first:
        assert is_served(first)
        with WireClient(broker.address) as second:
            assert second.is_closed()


@pytest.fixture
def accepted(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """The broker's sockets of the connections that are accepted from now on."""
    sockets: list[socket.socket] = []

    class Seen(listener_module.ClientConnection):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            sockets.append(arguments[2].sock)

    monkeypatch.setattr(listener_module, "ClientConnection", Seen)
    return sockets


@pytest.mark.parametrize(("size", "grows"), [(50_000, False), (-1, True)])
def test_sockets_have_the_buffers_that_are_set(
    data: Path, accepted: list[socket.socket], size: int, grows: bool
) -> None:
    settings = {"socket.send.buffer.bytes": size, "socket.receive.buffer.bytes": size}
    with RunningBroker(data, **settings) as broker, WireClient(broker.address) as client:
        assert is_served(client)
        sizes = [
            accepted[0].getsockopt(socket.SOL_SOCKET, option)
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)
        ]
    with socket.create_server(("127.0.0.1", 0)) as plain:
        untouched = [
            plain.getsockopt(socket.SOL_SOCKET, option)
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)
        ]
    if grows:
        assert all(mine >= theirs for mine, theirs in zip(sizes, untouched, strict=True))
    else:
        assert sizes == [100_000, 100_000], "Linux doubles what it is asked for"


def test_half_a_frame_that_stalls_is_given_up_and_an_idle_client_is_not(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WireClient(broker.address) as slow, WireClient(broker.address) as idle:
        assert is_served(slow) and is_served(idle)
        slow.send_bytes(struct.pack(">i", 1000) + b"half of")
        monkeypatch.setattr(listener_module, "FRAME_STALL_SECONDS", -1.0)
        until(lambda: slow_is_seen(broker), "the broker has read a part of the frame")
        broker.run(sweep(broker))
        assert slow.is_closed()
        assert is_served(idle)


def test_a_frame_that_comes_in_small_pieces_wakes_the_broker_for_many_of_them_at_once(
    accepted: list[socket.socket], data: Path
) -> None:
    topics = [MetadataRequest.Topic(name=f"{number:0100}") for number in range(500)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    frame = RequestHeader(request.API_KEY, 9, 1, "slow").encode() + request.encode(9)
    with RunningBroker(data) as broker, WireClient(broker.address) as slow:

        def awaited() -> int:
            return accepted[0].getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)

        slow.send_bytes(struct.pack(">i", len(frame)) + frame[:100])
        until(lambda: slow_is_seen(broker), "the broker has read a part of the frame")
        assert broker.call(awaited) == 32_768
        slow.send_bytes(frame[100:1000])
        (connection,) = broker.server.listeners[0].connections
        before = connection.active_at
        # A smaller piece does not wake the broker. A sweep reads it, so the client does not count
        # as stalled.
        while connection.active_at == before:
            broker.run(sweep(broker))
        slow.send_bytes(frame[1000:])
        assert len(slow.answer(Sent(request.API_KEY, 9, 1)).topics) == 500
        assert broker.call(awaited) == 1
        assert is_served(slow)


def slow_is_seen(broker: RunningBroker) -> bool:
    """Whether the broker has received a part of a frame."""
    return any(
        connection.stalled_since() is not None
        for listener in broker.server.listeners
        for connection in list(listener.connections)
    )


def test_a_silent_client_is_closed_after_its_time(data: Path) -> None:
    settings = {"connections.max.idle.ms": 1, "connection.failed.authentication.delay.ms": 0}
    with RunningBroker(data, **settings) as broker:
        with WireClient(broker.address) as silent:
            assert is_served(silent)
            broker.loop_clock.passed_seconds += 3600
            broker.run(sweep(broker))
            assert silent.is_closed()


def test_with_a_negative_time_no_silent_client_is_closed(data: Path) -> None:
    """As in Kafka. An earlier version then closed every idle connection within five seconds."""
    with RunningBroker(data, **{"connections.max.idle.ms": -1}) as broker:
        with WireClient(broker.address) as silent:
            assert is_served(silent)
            broker.loop_clock.passed_seconds += 3600
            broker.run(sweep(broker))
            assert is_served(silent)
