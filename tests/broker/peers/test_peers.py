"""Connections between brokers: replies in order, deadlines, ends in the middle, wrong addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.network.poller import BrokerLoop
from ottla.broker.network.transport import Transport
from ottla.broker.peers.network import TcpNetwork
from ottla.broker.peers.peer_connection import PeerConnection
from ottla.broker.peers.peers import FORWARD, Peers, PeerUnavailable
from ottla.broker.peers.secured_network import NotLoggedIn
from ottla.replication.metadata import BrokerImage, Endpoint, MetadataImage
from ottla.wire.apis import APIS
from ottla.wire.headers import RequestHeader, encode_response_header
from ottla.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterRequest,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
)
from tests.broker.running import RunningBroker
from tests.fakes import LeapingClock

THERE = 3
LISTENER = "PLAINTEXT"


@pytest.fixture
def loop() -> Iterator[BrokerLoop]:
    loop = BrokerLoop()
    asyncio.set_event_loop(loop)
    try:
        yield loop
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        asyncio.set_event_loop(None)
        loop.close()


def image_of(port: int, cluster_id: str = "", node_id: int = THERE) -> MetadataImage:
    address = (Endpoint(LISTENER, "127.0.0.1", port),)
    return MetadataImage(
        cluster_id=cluster_id, brokers={node_id: BrokerImage(node_id, 1, address)}
    )


def peers_to(loop: BrokerLoop, image: MetadataImage) -> Peers:
    return Peers(1, lambda: image, LISTENER, TcpNetwork(), loop)


Serve = Callable[["Other", RequestHeader, bytes], Awaitable[None]]


class Other:
    """A scripted broker: it answers ApiVersions, and leaves everything else to `serve`."""

    def __init__(self, serve: Serve) -> None:
        self.serve, self.greetings = serve, 0
        self.greeted_again = asyncio.Event()

    async def start(self) -> int:
        self.server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        port: int = self.server.sockets[0].getsockname()[1]
        return port

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                data = await reader.readexactly(size)
                header, at = RequestHeader.decode(data)
                if header.api_key == ApiVersionsRequest.API_KEY:
                    self.greetings += 1
                    if self.greetings > 1:
                        self.greeted_again.set()
                    self.answer(header, ApiVersionsResponse())
                else:
                    await self.serve(self, header, data[at:])
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def answer(self, header: RequestHeader, response: Any) -> None:
        key, version = header.api_key, header.version
        frame = encode_response_header(key, version, header.correlation_id)
        frame += response.encode(version)
        self.writer.write(len(frame).to_bytes(4, "big") + frame)


async def answer_metadata(other: Other, header: RequestHeader, body: bytes) -> None:
    asked = APIS[header.api_key].request.decode(body, header.version)
    topics = [MetadataResponse.Topic(name=topic.name) for topic in asked.topics]
    other.answer(header, MetadataResponse(topics=topics, cluster_id="c"))


def asking(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequest.Topic(name=name)])


def test_a_real_broker_answers_and_is_known_by_its_node_and_cluster(
    tmp_path: Path, loop: BrokerLoop
) -> None:
    with RunningBroker(tmp_path, node_id=THERE) as broker:
        cluster_id = broker.server.metadata_log.image.cluster_id

        async def ask(node_id: int, cluster: str) -> Any:
            peers = peers_to(loop, image_of(broker.port, cluster, node_id))
            try:
                return await peers.ask(node_id, DescribeClusterRequest(), 1)
            finally:
                peers.close()

        answer = loop.run_until_complete(ask(THERE, cluster_id))
        assert answer.cluster_id == cluster_id and answer.controller_id == THERE
        for node_id, cluster in ((THERE, "another"), (THERE + 1, cluster_id)):
            with pytest.raises(PeerUnavailable, match=", or belongs to another cluster") as refused:
                loop.run_until_complete(ask(node_id, cluster))
            assert not refused.value.sent


def test_replies_come_to_those_who_asked_over_one_connection_a_lane(loop: BrokerLoop) -> None:
    other = Other(answer_metadata)

    async def ask() -> None:
        peers = peers_to(loop, image_of(await other.start()))
        names = [f"{at}" * (1 + 500 * (at % 3)) for at in range(300)]
        answers = await asyncio.gather(*(peers.ask(THERE, asking(name), 12) for name in names))
        assert [answer.topics[0].name for answer in answers] == names
        assert other.greetings == 1
        await peers.ask(THERE, asking("x"), 12, lane=FORWARD)
        assert other.greetings == 2
        peers.close()
        with pytest.raises(PeerUnavailable):
            await peers.ask(THERE, asking("x"), 12)

    loop.run_until_complete(ask())


def test_nobody_listens_and_the_request_was_certainly_not_served(loop: BrokerLoop) -> None:
    async def ask() -> None:
        other = Other(answer_metadata)
        port = await other.start()
        other.server.close()
        peers = peers_to(loop, image_of(port))
        with pytest.raises(PeerUnavailable) as refused:
            await peers.ask(THERE, asking("x"), 12)
        assert not refused.value.sent
        assert isinstance(refused.value.__cause__, ConnectionRefusedError)
        with pytest.raises(PeerUnavailable, match="no address"):
            await peers.ask(THERE + 1, asking("x"), 12)
        peers.close()

    loop.run_until_complete(ask())


def test_a_connection_that_ends_leaves_its_requests_unknown_and_the_next_one_connects_anew(
    loop: BrokerLoop,
) -> None:
    async def end(other: Other, header: RequestHeader, body: bytes) -> None:
        other.serve = answer_metadata
        other.writer.close()

    async def ask() -> None:
        other = Other(end)
        peers = peers_to(loop, image_of(await other.start()))
        with pytest.raises(PeerUnavailable) as broken:
            await peers.ask(THERE, asking("x"), 12)
        assert broken.value.sent
        answer = await peers.ask(THERE, asking("y"), 12)
        assert answer.topics[0].name == "y" and other.greetings == 2
        peers.close()

    loop.run_until_complete(ask())


def test_a_silent_broker_is_given_up_at_the_deadline_and_connected_anew(loop: BrokerLoop) -> None:
    async def say_nothing(other: Other, header: RequestHeader, body: bytes) -> None:
        other.serve = answer_metadata

    async def ask() -> None:
        other = Other(say_nothing)
        peers = peers_to(loop, image_of(await other.start()))
        with pytest.raises(PeerUnavailable, match="did not answer") as silent:
            await peers.ask(THERE, asking("x"), 12, timeout_seconds=0.05)
        assert silent.value.sent
        assert (await peers.ask(THERE, asking("y"), 12)).topics[0].name == "y"
        peers.close()

    loop.run_until_complete(ask())


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400", b"\x7f\xff\xff\xff", b"\0\0\0\x0a" + b"\xff" * 10,
        b"\0\0\0\x0a" + b"\0" * 10,
    ],
)
def test_bytes_that_are_no_reply_end_the_connection(loop: BrokerLoop, garbage: bytes) -> None:
    async def talk_nonsense(other: Other, header: RequestHeader, body: bytes) -> None:
        other.serve = answer_metadata
        other.writer.write(garbage)

    async def ask() -> None:
        other = Other(talk_nonsense)
        peers = peers_to(loop, image_of(await other.start()))
        with pytest.raises(PeerUnavailable):
            await peers.ask(THERE, asking("x"), 12)
        assert (await peers.ask(THERE, asking("y"), 12)).topics[0].name == "y"
        peers.close()

    loop.run_until_complete(ask())


def test_a_broker_that_takes_nothing_bounds_what_waits_for_it(loop: BrokerLoop) -> None:
    async def read_no_more(other: Other, header: RequestHeader, body: bytes) -> None:
        await asyncio.Event().wait()

    async def ask() -> None:
        other = Other(read_no_more)
        peers = peers_to(loop, image_of(await other.start()))
        large = asking("n" * 30_000)
        asked = [asyncio.ensure_future(peers.ask(THERE, large, 12)) for _ in range(1100)]
        done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        while len(waiting) > 1000:
            refused, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            done |= refused
        assert all(not task.exception().sent for task in done)  # type: ignore[union-attr]
        peers.close()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(each, PeerUnavailable) and each.sent for each in results)

    loop.run_until_complete(ask())


def test_whoever_ends_and_refuses_two_connections_is_reported(loop: BrokerLoop) -> None:
    async def ask() -> None:
        other = Other(answer_metadata)
        peers = peers_to(loop, image_of(await other.start()))
        ended = loop.create_future()
        peers.on_refused = ended.set_result
        peers.keep([1, THERE])
        await peers.ask(THERE, asking("x"), 12)
        other.writer.close()                        # alive: it accepts the next connection
        await other.greeted_again.wait()
        assert not ended.done()
        other.server.close()
        other.writer.close()
        assert await ended == THERE
        peers.close()

    loop.run_until_complete(ask())


class Ending(TcpNetwork):
    """Connections to a process that ends: its socket accepts one more, which is then reset."""

    resets = 0

    async def connect(self, host: str, port: int, listener: str) -> Transport:
        if self.resets:
            self.resets -= 1
            raise ConnectionResetError("connection reset by peer")
        return await super().connect(host, port, listener)


def test_a_reset_while_the_process_ends_does_not_hide_that_it_has_ended(loop: BrokerLoop) -> None:
    async def ask() -> None:
        other = Other(answer_metadata)
        network = Ending()
        image = image_of(await other.start())
        peers = Peers(1, lambda: image, LISTENER, network, loop)
        ended = loop.create_future()
        peers.on_refused = ended.set_result
        peers.keep([1, THERE])
        await peers.ask(THERE, asking("x"), 12)
        network.resets = 1
        other.server.close()
        other.writer.close()
        assert await ended == THERE
        assert not network.resets
        peers.close()

    loop.run_until_complete(ask())


class Distrusted(TcpNetwork):
    """Connections whose login the other broker refuses; `at` has the times of the attempts."""

    def __init__(self, loop: BrokerLoop) -> None:
        self.loop = loop
        self.at: list[float] = []

    async def connect(self, host: str, port: int, listener: str) -> Transport:
        self.at.append(self.loop.time())
        raise NotLoggedIn("it refuses the login")


def test_a_broker_that_refuses_the_login_is_not_hammered() -> None:
    """However many requests wait, a lane retries after 0.1, 0.2, 0.4, 0.8 s, then every second."""
    clock = LeapingClock()
    loop = BrokerLoop(clock)

    async def ask() -> None:
        network = Distrusted(loop)
        peers = Peers(1, lambda: image_of(1), LISTENER, network, loop)
        peers.keep([1, THERE])

        async def insist() -> None:
            while True:
                with suppress(PeerUnavailable):
                    await peers.ask(THERE, asking("x"), 12)

        insisting = [loop.create_task(insist()) for _ in range(20)]
        began = loop.time()
        while loop.time() < began + 60:
            clock.passed_seconds += 0.01
            turn = loop.create_future()
            loop.call_soon(turn.set_result, None)
            await turn
        for each in insisting:
            each.cancel()
        peers.close()
        gaps = [later - at for at, later in pairwise(network.at)]
        due = [0.1, 0.2, 0.4, 0.8, *[1.0] * (len(gaps) - 4)]
        assert all(gap >= wanted - 0.001 for gap, wanted in zip(gaps, due, strict=True))
        assert 30 <= len(network.at) <= 63

    try:
        loop.run_until_complete(ask())
    finally:
        loop.close()


def test_a_handed_over_connection_carries_on_where_it_was(loop: BrokerLoop) -> None:
    async def ask() -> None:
        other = Other(answer_metadata)
        peers = peers_to(loop, image_of(await other.start()))
        transport = await peers.open_transport(THERE)
        connection = PeerConnection(loop, transport, "again", "the same", None)
        assert (await connection.ask(asking("z"), 12)).topics[0].name == "z"
        assert other.greetings == 1
        waiting = connection.ask(ListOffsetsRequest(), 5)
        with pytest.raises(PeerUnavailable):
            connection.hand_over()
        connection.close(ConnectionError("enough"))
        with pytest.raises(PeerUnavailable, match="enough"):
            await waiting
        peers.close()

    loop.run_until_complete(ask())
