"""kazoo's connection: an attempt without an answer ends in time, the session timeout is the one
that the server grants, a refusal has a short reason, and certificates are renewed."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kazoo.handlers.threading import SequentialThreadingHandler

from ottla.broker.security.tls.zookeeper import zookeeper_contexts
from ottla.replication.coordination import ConnectionLost, Create, Forbidden
from ottla.replication.zookeeper import Handler, Log, ZooKeeper
from tests.broker.security.authority import Authority
from tests.replication.scripted_zookeeper import (
    CONNECTION_BREAKS,
    CREATE,
    EXISTS,
    MULTI,
    NO_AUTH,
    NO_NODE,
    OK,
    Answer,
    ScriptedZooKeeper,
)

ANSWER_SECONDS = 3.0


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def timeouts(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """The timeouts for which the handler really waited."""
    seen: list[float | None] = []

    def select(self: Any, *lists_and_timeout: Any) -> Any:
        *_, timeout = lists_and_timeout
        seen.append(timeout)
        return real(self, *lists_and_timeout[:3], 0)

    real = SequentialThreadingHandler.select
    monkeypatch.setattr(SequentialThreadingHandler, "select", select)
    return seen


def test_only_a_connections_first_answer_is_awaited_for_less_than_the_session(
    server: socket.socket, timeouts: list[float | None]
) -> None:
    handler = Handler(None, ANSWER_SECONDS)
    client = handler.create_connection(server.getsockname(), "localhost", 9.0)
    accepted, _ = server.accept()
    with client, accepted:
        assert handler.select([], [client], [], 9.0)[1] == [client]
        assert handler.select([client], [], [], 9.0)[0] == []
        accepted.sendall(b"an answer")
        assert handler.select([client], [], [], 9.0)[0] == [client]
        assert handler.select([client], [], [], 9.0)[0] == [client]
    assert timeouts == [9.0, ANSWER_SECONDS, ANSWER_SECONDS, 9.0]


def test_each_new_connection_is_unanswered_again(
    server: socket.socket, timeouts: list[float | None]
) -> None:
    handler = Handler(None, ANSWER_SECONDS)
    for _ in range(2):
        client = handler.create_connection(server.getsockname(), "localhost", 9.0)
        accepted, _ = server.accept()
        with client, accepted:
            accepted.sendall(b"an answer")
            assert handler.select([client], [], [], 1.0)[0] == [client]
            assert handler.select([client], [], [], None)[0] == [client]
    assert timeouts == [1.0, None] * 2


def test_a_start_says_what_it_waits_for(
    server: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ottla.replication.zookeeper.SILENT_SECONDS", 0.0)
    host, port = server.getsockname()

    async def start() -> None:
        client = ZooKeeper(f"{host}:{port}/o", 9_000, 300, asyncio.get_running_loop())
        with pytest.raises(ConnectionLost, match="no server answered within 300 ms"):
            await client.start()

    asyncio.run(start())
    said = [r.getMessage() for r in caplog.records if "keeps trying" in r.getMessage()]
    assert said == [
        f"zookeeper.connect={host}:{port}/o: no server has answered yet; the broker keeps trying"
        " for at most 300 ms (zookeeper.connection.timeout.ms)"
    ]


def test_a_shorter_wait_stays_as_it_is(server: socket.socket, timeouts: list[float | None]) -> None:
    handler = Handler(None, ANSWER_SECONDS)
    with handler.create_connection(server.getsockname(), "localhost", 9.0) as client:
        assert handler.select([client], [], [], 0.5)[0] == []
    assert timeouts == [0.5]


def test_a_connection_for_which_there_is_no_certificate_is_closed(server: socket.socket) -> None:
    def missing() -> ssl.SSLContext:
        raise FileNotFoundError("no file broker.pem")

    handler = Handler(missing, ANSWER_SECONDS)
    with pytest.raises(FileNotFoundError) as raised:        # keeps the socket referenced
        handler.create_connection(server.getsockname(), "zk.example", 9.0)
    accepted, _ = server.accept()
    with accepted:
        accepted.settimeout(30)
        assert accepted.recv(1) == b""
    assert raised.value.args == ("no file broker.pem",)
    assert handler.refused == "; the TLS handshake with zk.example failed: no file broker.pem"


@pytest.mark.parametrize("trusted", [True, False])
def test_a_handshake_that_fails_has_a_short_reason(
    server: socket.socket, tmp_path: Path, trusted: bool
) -> None:
    authority = Authority(tmp_path)
    context = ssl.create_default_context()
    if trusted:
        context.load_verify_locations(authority.file)
    handler = Handler(lambda: context, ANSWER_SECONDS)
    zookeeper = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    zookeeper.load_cert_chain(authority.issue("zookeeper"))

    def answers() -> None:
        plain, _ = server.accept()
        with plain:
            if trusted:
                plain.sendall(b"no TLS is spoken here" * 100)
                plain.recv(1 << 16)
            else:
                with pytest.raises(OSError), zookeeper.wrap_socket(plain, server_side=True) as it:
                    it.recv(1)

    with ThreadPoolExecutor(1) as threads:
        answered = threads.submit(answers)
        with pytest.raises(ssl.SSLError):
            handler.create_connection(server.getsockname(), "localhost", 9.0)
        answered.result()
    reason = handler.refused.removeprefix("; the TLS handshake with localhost failed: ")
    assert reason in (
        ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE") if trusted
        else ("unable to get local issuer certificate",)
    )


def with_session(
    act: Callable[[ZooKeeper], Awaitable[None]],
    answer: Answer = lambda operation, path: OK,
    granted_ms: int = 9000,
    root: str = "",
) -> ScriptedZooKeeper:
    """Run `act` with a session at a server that answers with `answer`; returns the server."""
    server = ScriptedZooKeeper(granted_ms, answer)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        session = ZooKeeper(server.connect + root, 9000, 10_000, loop)
        await session.start()
        try:
            await act(session)
        finally:
            await session.stop()

    try:
        asyncio.run(run())
    finally:
        server.close()
    return server


def test_the_session_timeout_is_the_one_that_the_server_grants() -> None:
    """The server bounds the requested timeout by its tickTime. The timeout decides how long other
    brokers count as alive."""
    async def granted(session: ZooKeeper) -> None:
        assert session.session_timeout_ms == 40_000

    with_session(granted, granted_ms=40_000)


def test_an_attempt_to_connect_takes_a_third_of_a_session() -> None:
    """Two more attempts fit into the session before it ends."""
    async def connected(session: ZooKeeper) -> None:
        assert session.handler.answer_seconds == pytest.approx(ANSWER_SECONDS)

    with_session(connected)


def test_connecting_makes_no_chroot_and_what_is_there_is_not_made_again() -> None:
    async def nothing(session: ZooKeeper) -> None:
        pass

    async def made(session: ZooKeeper) -> None:
        await session.make_root()

    assert with_session(nothing, root="/there/missing").asked == []
    there = with_session(
        made, lambda operation, path: NO_NODE if path == "/there/missing" and operation == EXISTS
        else NO_AUTH if operation == CREATE and path == "/there" else OK,
        root="/there/missing/",
    )
    assert there.asked == [
        (EXISTS, "/there"), (EXISTS, "/there/missing"), (CREATE, "/there/missing")
    ]


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_session_that_nobody_grants_is_given_up_when_it_is_due_or_not_wanted(
    server: socket.socket, cancelled: bool
) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        connect = f"127.0.0.1:{server.getsockname()[1]}"
        session = ZooKeeper(connect, 300, 60_000 if cancelled else 50, loop)
        starting = asyncio.ensure_future(session.start())
        accepted, _ = await loop.run_in_executor(None, server.accept)
        with accepted:
            if cancelled:
                starting.cancel()
            with pytest.raises(asyncio.CancelledError if cancelled else ConnectionLost):
                async with asyncio.timeout(30):
                    await starting
        assert not [each for each in threading.enumerate() if "zk_loop" in each.name]

    asyncio.run(run())


def test_what_acls_forbid_is_said_and_is_no_lost_connection() -> None:
    """A lost connection would leave the outcome of a write open, and a controller would resign."""
    async def forbidden(session: ZooKeeper) -> None:
        for asked in (
            session.make_root(), session.get("/x"), session.exists("/x"), session.children("/x"),
            session.multi([Create("/x")]), session.sync(),
        ):
            with pytest.raises(Forbidden, match=r"refuses access .*below /root"):
                await asked

    server = with_session(forbidden, lambda operation, path: NO_AUTH, root="/root")
    assert (MULTI, "") in server.asked


def test_a_connection_that_breaks_while_the_chroot_is_made_has_a_name() -> None:
    async def broken(session: ZooKeeper) -> None:
        with pytest.raises(ConnectionLost):
            await session.make_root()

    with_session(broken, lambda operation, path: CONNECTION_BREAKS, root="/root")


class Reader:
    def read_on(self) -> None:
        """There may be more."""


def test_a_watch_that_is_set_again_and_again_is_kept_once() -> None:
    """For each forwarded request that changes nothing, the broker reads the log to its end, and
    sets a watch for the next entry. In a quiet cluster, this entry may come much later."""
    reader, kept = Reader(), set[Any]()         # kazoo keeps watches in a set, too

    async def watched(session: ZooKeeper) -> None:
        exists = session.client.exists_async

        def noted(path: str, watch: Any) -> Any:
            kept.add(watch)
            return exists(path, watch)

        session.client.exists_async = noted
        for _ in range(3):
            assert await session.exists("/next", reader.read_on) is None

    with_session(watched, lambda operation, path: NO_NODE if operation == EXISTS else OK)
    assert len(kept) == 1


def test_each_connection_has_the_certificate_that_is_in_the_file_then(
    server: socket.socket, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise all brokers that run for longer than their certificates are valid would be cut off
    by the next restart of ZooKeeper."""
    authority = Authority(tmp_path)
    key = authority.issue("broker")
    contexts = zookeeper_contexts({
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.type": "PEM", "zookeeper.ssl.keystore.location": str(key),
        "zookeeper.ssl.truststore.type": "PEM",
        "zookeeper.ssl.truststore.location": str(authority.file),
    })
    handler = Handler(contexts, ANSWER_SECONDS)
    zookeeper = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    zookeeper.load_cert_chain(authority.issue("zookeeper"))
    zookeeper.load_verify_locations(authority.file)
    zookeeper.verify_mode = ssl.CERT_REQUIRED

    def presented() -> bytes | None:
        plain, _ = server.accept()
        with zookeeper.wrap_socket(plain, server_side=True) as accepted:
            return accepted.getpeercert(True)

    with ThreadPoolExecutor(1) as threads:
        def connect() -> bytes | None:
            seen = threads.submit(presented)
            with handler.create_connection(server.getsockname(), "localhost", 9.0):
                return seen.result()

        first = connect()
        assert first is not None and connect() == first
        authority.issue("broker")
        renewed = connect()
        assert renewed not in (first, None)
        key.write_text("what is written to it just now")
        assert connect() == renewed
    assert "zookeeper.ssl.keystore.location: " in caplog.text


def test_an_attempt_to_connect_that_fails_again_and_again_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("ottla.replication.zookeeper.time.monotonic", lambda: now)
    log = Log(logging.getLogger("ottla.kazoo"))
    caplog.set_level(logging.INFO)
    for _ in range(3):
        for _ in range(10):
            log.info("Connecting to %s", "zk:2181")
            log.warning("Connection dropped: %s", "refused")
            log.warning("Transition to CONNECTING")
        now += 61
    log.exception("Unhandled exception in connection loop")
    assert [each.getMessage() for each in caplog.records] == [
        *["ZooKeeper: Connection dropped: refused"] * 3, "Unhandled exception in connection loop"
    ]
