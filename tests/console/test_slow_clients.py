"""Clients that are slow, send nothing or read no answer do not keep other clients out."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h11
import pytest
import uvicorn
from uvicorn.server import ServerState

from ottla.console.web_server import (
    CONNECTIONS_MAX,
    REQUEST_SECONDS,
    STALL_SECONDS,
    BoundedProtocol,
    Refusals,
    not_http,
)
from tests.console.consoles import Console
from tests.waiting import until

SLOW = 1000
HEADERS = b"GET /api/v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n"
NO_BODY = (b"POST /api/v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
           b"Content-Length: 100\r\n\r\n{")
IDLE = b"GET /api/v1/session HTTP/1.1\r\nHost: localhost\r\n\r\n"


def slow_connection(port: int, sent: bytes) -> socket.socket:
    """Connect with a small receive buffer, and send these bytes; returns the socket."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(10)
    try:
        made.connect(("127.0.0.1", port))
        made.sendall(sent)
    except ConnectionError:                     # the console has closed it
        pass
    return made


@pytest.mark.parametrize(
    ("sent", "silent"),
    [
        (lambda number: HEADERS[: number % len(HEADERS)], True), (lambda _: NO_BODY, True),
        (lambda _: IDLE, False),
    ],
    ids=["without a whole header", "without a body", "idle after an answer"],
)
def test_a_thousand_slow_connections_keep_nobody_out(
    console: Console, sent: Callable[[int], bytes], silent: bool
) -> None:
    slow = []
    try:
        for number in range(SLOW):
            slow.append(slow_connection(console.port, sent(number)))
        until(lambda: all_served(console), "answers for somebody else", 20, between=0.1)
        if silent:
            assert sum(map(is_closed, slow)) >= SLOW - CONNECTIONS_MAX
    finally:
        for made in slow:
            made.close()
    until(lambda: all_served(console), "answers afterwards", between=0.1)


def all_served(console: Console) -> bool:
    """Whether a page with six connections gets all its answers, two on each connection."""
    page = [console.connection() for _ in range(6)]
    try:
        for connection in [*page, *page]:
            connection.request("GET", "/api/v1/topics")
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                return False
        return True
    except (ConnectionError, TimeoutError):
        return False
    finally:
        for connection in page:
            connection.close()


def is_closed(connection: socket.socket) -> bool:
    """Whether the console has closed a connection on which it has answered nothing."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_an_endless_request_is_cut_off(console: Console) -> None:
    with socket.create_connection(("localhost", console.port), 20) as raw:
        raw.sendall(b"GET /" + b"a" * 200_000)
        assert raw.recv(100)[:12] in (b"HTTP/1.1 400", b"")
    assert console.ask("/topics", "POST", b"[" * 9_000_000).status == 413


def test_clients_that_do_not_speak_http_are_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    refusals = Refusals(lambda: now)
    for second in (0, 1, 59, 61, 130):
        now = float(second)
        refusals.note(f"refused at {second}")
    assert caplog.messages == [
        "refused at 0",
        "refused at 61; refused since the previous warning: 2 other connections",
        "refused at 130",
    ]
    hello = (30).to_bytes(4) + (18).to_bytes(2) + b"\0\3"
    assert not_http(hello, ("10.0.0.7", 4711)).startswith(
        "a Kafka client at 10.0.0.7 sent ApiVersions to the console's port")
    assert "used TLS on the console's port" in not_http(b"\x16\x03\x01\x02\0\x01", None)
    assert "invalid HTTP request, which begins with b'\\x00\\x01'" in not_http(b"\0\1", None)


def test_a_kafka_client_does_not_fill_the_log(console: Console) -> None:
    before = Path(console.log.name).read_text()
    for _ in range(5):
        with socket.create_connection(("localhost", console.port), 20) as raw:
            raw.sendall((30).to_bytes(4) + (18).to_bytes(2) + b"\0\3" + b"x" * 26)
            assert raw.recv(100)[:12] == b"HTTP/1.1 400"
    logged = Path(console.log.name).read_text().removeprefix(before)
    assert "uvicorn" not in logged and logged.count("refused") <= 1, logged
    assert "ottla.console: a client at 127.0.0.1" in (before + logged) or "a Kafka client" in logged


class Timer:
    """A call that is due at some time."""

    def __init__(self, at: float, call: Callable[..., None], given: tuple[Any, ...]) -> None:
        self.at, self.call, self.given = at, call, given
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeLoop:
    """A loop whose time is set by the test."""

    def __init__(self) -> None:
        self.now, self.timers = 0.0, list[Timer]()

    def call_later(self, seconds: float, call: Callable[..., None], *given: Any) -> Timer:
        made = Timer(self.now + seconds, call, given)
        self.timers.append(made)
        return made

    def create_task(self, work: Any, **_: Any) -> FakeLoop:
        work.close()                            # the test answers in place of the application
        return self

    def add_done_callback(self, _: Any) -> None:
        """Do nothing. (The loop itself takes the place of a task.)"""

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [one for one in self.timers if one.at <= self.now and not one.cancelled]
        self.timers = [one for one in self.timers if one.at > self.now and not one.cancelled]
        for one in due:
            one.call(*one.given)


class FakeTransport:
    """The transport of a connection. `left` is the number of bytes that the client has not read
    yet."""

    def __init__(self) -> None:
        self.left, self.aborted = 0, False

    def get_extra_info(self, _: str) -> None:
        """There is no information about the connection."""

    def get_write_buffer_size(self) -> int:
        return self.left

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted

    def pause_reading(self) -> None:
        """Do nothing: only the test sends data."""

    resume_reading = close = pause_reading


def connected(
    state: ServerState | None = None
) -> tuple[BoundedProtocol, FakeTransport, FakeLoop]:
    """A new connection, its transport and its loop."""
    loop, transport = FakeLoop(), FakeTransport()
    config = uvicorn.Config(
        "unused:application", interface="asgi3", lifespan="off", log_config=None)
    config.loaded, config.loaded_app = True, lambda scope, receive, send: None
    config.ws_protocol_class = None
    state = state or ServerState()
    made = BoundedProtocol(config, state, {}, loop)  # type: ignore[arg-type]
    made.connection_made(transport)
    return made, transport, loop


def answer(connection: BoundedProtocol) -> None:
    """Answer the request that has arrived."""
    connection.conn.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
    connection.conn.send(h11.EndOfMessage())
    connection.on_response_complete()


@pytest.mark.parametrize("part", [b"", HEADERS[:30], NO_BODY])
def test_a_request_that_does_not_arrive_in_time_ends_its_connection(part: bytes) -> None:
    connection, transport, loop = connected()
    if part:
        connection.data_received(part)
    loop.advance(REQUEST_SECONDS - 1)
    if part:
        connection.data_received(b" ")          # a byte now and then does not help
    assert not transport.aborted
    loop.advance(2)
    assert transport.aborted
    connection.connection_lost(None)


def test_each_request_of_a_connection_has_its_own_time() -> None:
    connection, transport, loop = connected()
    loop.advance(REQUEST_SECONDS - 1)
    connection.data_received(HEADERS)
    loop.advance(2 * REQUEST_SECONDS)           # however long its answer takes
    answer(connection)
    loop.advance(1)
    connection.data_received(HEADERS[:30])
    loop.advance(REQUEST_SECONDS - 1)
    assert not transport.aborted
    loop.advance(2)
    assert transport.aborted
    connection.connection_lost(None)


def test_an_answer_may_be_taken_slowly_but_not_left() -> None:
    connection, transport, loop = connected()
    connection.data_received(HEADERS)
    transport.left = 1_000_000
    connection.pause_writing()
    for _ in range(20):
        transport.left -= 10_000
        loop.advance(STALL_SECONDS)
        assert not transport.aborted
    connection.resume_writing()
    loop.advance(STALL_SECONDS)
    connection.pause_writing()
    loop.advance(STALL_SECONDS)
    assert transport.aborted
    connection.connection_lost(None)


def test_those_who_leave_their_answers_go_first_when_there_are_too_many() -> None:
    state = ServerState()
    there = [connected(state) for _ in range(CONNECTIONS_MAX)]
    for connection, transport, _ in there[10:20]:
        connection.data_received(HEADERS)
        transport.left = 1_000_000
        connection.pause_writing()
    there += [connected(state) for _ in range(12)]
    gone = [place for place, (_, transport, _) in enumerate(there) if transport.aborted]
    assert gone == [0, 1, *range(10, 20)], "then those who have asked nothing for longest"
    for connection, _, _ in there:
        connection.connection_lost(None)
