"""The port for metrics and health: only GET and HEAD, one request per connection.

    /metrics                what Prometheus scrapes
    /healthz                200 while the process answers
    /readyz                 200 while clients are served and can write, 503 otherwise
    /api/v1/…               JSON: the broker's status, lists of connections, groups and so on
                            (module `status`), and answers about one group or topic (`details`)
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

from ottla.broker.http import details, status
from ottla.broker.http.broker_metrics import broker_metrics
from ottla.broker.http.client_metrics import client_metrics
from ottla.broker.http.cluster_metrics import cluster_metrics
from ottla.broker.http.exposition import CONTENT_TYPE
from ottla.broker.http.families import CONFLUENT, confluent_connections, with_confluent_names
from ottla.broker.http.group_metrics import group_metrics
from ottla.broker.http.monitor import Monitor
from ottla.broker.http.partition_metrics import (
    ScrapedPartitions,
    partition_metrics,
    traffic_metrics,
)
from ottla.broker.http.readers import Readers
from ottla.broker.settings.addresses import parse_http_address
from ottla.broker.threads.slices import Slices

log = logging.getLogger("ottla.http")

SETTING = "ottla.http.listener"
HEAD_SIZE_MAX = 8192
HEAD_SECONDS = 10.0
NOT_HTTP = (
    "this is not an HTTP/1.1 request: this port serves metrics and status over HTTP; Kafka clients"
    " connect to an address of the broker's `listeners`\n"
)
SEND_SECONDS = 60.0
CONNECTIONS_MAX = 32
SLICE_SECONDS = 0.00005
"""How long a scrape may block the loop at a time. It is less than for other long work, because a
scrape comes every few seconds. A pause between two slices costs 10 µs."""
JSON: dict[str, Callable[[Monitor], Any]] = {
    "/api/v1/status": status.status,
    "/api/v1/connections": status.connections,
    "/api/v1/clients": status.clients,
    "/api/v1/groups": status.groups,
    "/api/v1/telemetry": status.telemetry,
    "/api/v1/audit": status.audit,
    "/api/v1/transactions": status.transactions,
}


class HttpServer:
    """The listening socket and its few connections."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self.ready = True
        self.open = 0
        self.port = 0
        self.readers: Readers      # set by `start`
        self.server: asyncio.Server | None = None

    async def start(self, address: str) -> None:
        """Listen. Raises OSError."""
        host, port = parse_http_address(address)
        self.readers = Readers(self.monitor.broker.config, host)
        try:
            self.server = await asyncio.start_server(
                self.serve, host or None, port, limit=HEAD_SIZE_MAX, family=_family(host)
            )
        except OSError as error:
            raise cannot_listen(address, error) from error
        self.port = self.server.sockets[0].getsockname()[1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the one request of a connection, and close it."""
        self.open += 1
        try:
            if self.open > CONNECTIONS_MAX:
                await self._answer(writer, 503, "too many connections\n")
                return
            async with asyncio.timeout(HEAD_SECONDS):
                first = await reader.readexactly(1)
                if not first.isalpha():         # a Kafka client: unanswered, it would wait
                    await self._answer(writer, 400, NOT_HTTP)
                    return
                head = first + await reader.readuntil(b"\r\n\r\n")
            async with asyncio.timeout(SEND_SECONDS):
                await self._route(head, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass                        # the client disconnected, or was too slow
        except Exception:
            log.exception("an HTTP request to the address of %s failed", SETTING)
        finally:
            self.open -= 1
            writer.close()

    async def _route(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            await self._answer(writer, 400, NOT_HTTP)
            return
        method, path = words[0], words[1].partition("?")[0]
        answer = partial(self._answer, writer, head_only=method == "HEAD")
        if method not in ("GET", "HEAD"):
            await answer(405, "only GET and HEAD are served\n", allow="GET, HEAD")
        elif (refused := self.readers.refusal(path, host_of(head), *_ends(writer))) is not None:
            text = json.dumps(refused[1], indent=2)
            await answer(refused[0], text + "\n", "application/json")
        elif path == "/metrics":
            await self._metrics(writer, method == "HEAD")
        elif path == "/healthz":
            await answer(200, "ok\n")
        elif path == "/readyz":
            ready, text = self._readiness()
            await answer(200 if ready else 503, text)
        elif path in JSON:
            listed = JSON[path](self.monitor)
            if isinstance(listed, Coroutine):
                listed = await listed
            text = json.dumps(listed, indent=2)
            await answer(200, text + "\n", "application/json")
        elif (asked := details.find(path)) is not None:
            code, document = await details.answer(self.monitor, asked)
            text = json.dumps(document, indent=2)
            await answer(code, text + "\n", "application/json")
        else:
            about = [f"{details.PREFIX}{kind}/NAME/{word}" for kind, word in details.DETAILS]
            known = " ".join(["/metrics", "/healthz", "/readyz", *JSON, *about])
            await answer(404, f"no such page; the pages are {known}\n")

    def _readiness(self) -> tuple[bool, str]:
        """Whether clients are served and can write, with an explanation."""
        storage = self.monitor.broker.replicas.storage
        if not self.ready or not storage.started:
            return False, "not serving\n"
        full = [each.path for each in storage.directories if each.state == "full"]
        writable = any(each.state == "ok" for each in storage.directories)
        lines = [f"full: {path}\n" for path in full]
        return writable, "".join(["ok\n", *lines] if writable else lines)

    async def _answer(
        self, writer: asyncio.StreamWriter, code: int, body: str,
        kind: str = "text/plain; charset=utf-8", allow: str = "", head_only: bool = False,
    ) -> None:
        """Write an answer; the answer to HEAD has the length of the body, but no body."""
        data = body.encode()
        extra = f"Allow: {allow}\r\n" if allow else ""
        head = _head(code, kind, f"Content-Length: {len(data)}\r\n{extra}")
        writer.write(head if head_only else head + data)
        await writer.drain()

    async def _metrics(self, writer: asyncio.StreamWriter, head_only: bool) -> None:
        """Write the metrics in pieces; clients are served between them."""
        writer.write(_head(200, CONTENT_TYPE, ""))
        slices = Slices(SLICE_SECONDS)
        pieces: list[str] = []
        for piece in () if head_only else all_metrics(self.monitor):
            pieces.append(piece)
            if slices.over:
                await _send(writer, pieces)
                await slices.pause()
        await _send(writer, pieces)

    def close(self) -> None:
        """Stop listening; requests in progress are cancelled when the loop ends."""
        self.ready = False
        if self.server is not None:
            self.server.close()
        self.monitor.close()


def cannot_listen(address: str, error: OSError) -> OSError:
    """The error to show to users. Its reason is the system's text for the error number, since
    asyncio's text would repeat the address. Errors of getaddrinfo have negative numbers and keep
    their text."""
    number = error.errno or 0
    reason = os.strerror(number) if number > 0 else error.strerror
    return OSError(
        error.errno, f"{SETTING}: cannot listen on {address}: {reason}; set another address")


def try_address(address: str) -> None:
    """Raise OSError if the HTTP server cannot have this address. The address is only bound for a
    moment; nothing listens there, so clients are still refused."""
    host, port = parse_http_address(address)
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host or None, port, _family(host), socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # As in asyncio, an IPv6 socket leaves the IPv4 port alone, which may be in use.
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(place)
    except OSError as error:
        raise cannot_listen(address, error) from error


def host_of(head: bytes) -> str | None:
    """The Host header of a request; None if it has none. If it has several Host headers, which no
    browser sends, they are joined to a text that is not a valid host."""
    hosts = [
        value.strip().decode("latin-1") for name, _, value in (
            line.partition(b":") for line in head.split(b"\r\n")[1:])
        if name.strip().lower() == b"host"
    ]
    return ", ".join(hosts) if hosts else None


def _ends(writer: asyncio.StreamWriter) -> tuple[str, str]:
    """The client's address and the broker's address of a connection."""
    return writer.get_extra_info("peername")[0], writer.get_extra_info("sockname")[0]


def all_metrics(monitor: Monitor) -> Iterator[str]:
    """The content of /metrics, in pieces."""
    if CONFLUENT not in monitor.broker.config.ottla_metrics_compat:
        yield from _pieces(monitor)
        return
    yield from with_confluent_names(_pieces(monitor))
    yield from confluent_connections(monitor)


def _pieces(monitor: Monitor) -> Iterator[str]:
    scraped = ScrapedPartitions(monitor.broker.replicas)
    yield from scraped.read()
    yield from broker_metrics(monitor, scraped)
    yield from cluster_metrics(monitor, scraped)
    yield from traffic_metrics(scraped)
    yield from group_metrics(monitor)
    yield from partition_metrics(scraped)
    yield from client_metrics(monitor.broker)


async def _send(writer: asyncio.StreamWriter, pieces: list[str]) -> None:
    """Write the gathered pieces, if there are any, and wait while too much is unsent."""
    text = "".join(pieces)
    pieces.clear()
    if text:
        writer.write(text.encode())
        await writer.drain()


def _head(code: int, kind: str, extra: str) -> bytes:
    reason = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found",
              405: "Method Not Allowed", 421: "Misdirected Request", 500: "Internal Server Error",
              503: "Service Unavailable"}[code]
    return (
        f"HTTP/1.1 {code} {reason}\r\nContent-Type: {kind}\r\nConnection: close\r\n{extra}\r\n"
    ).encode()


def _family(host: str) -> int:
    """The address family to listen on: IPv6 if `host` is an IPv6 address, otherwise IPv4. So
    `localhost` is 127.0.0.1 only."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET
