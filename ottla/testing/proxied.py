"""One client's connection through the proxy: whole frames, in order, with the requested faults."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ottla.testing.error_answers import READS_WITH_MORE, NoErrorToGive, error_answer, mark
from ottla.testing.faults import ANSWER, DELAY, DROP, Rule
from ottla.testing.frames import REQUEST, RESPONSE
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import ErrorCode, MalformedMessage
from ottla.wire.headers import RequestHeader, encode_response_header, response_header_size

if TYPE_CHECKING:
    from ottla.testing.frames import FrameWriter

LENGTH_SIZE = 4
FRAME_SIZE_MAX = 256 << 20
PENDING_MAX = 1000
CHUNK_SIZE = 1 << 18


@dataclass(slots=True)
class Pending:
    """A request whose answer has not been sent yet."""

    header: RequestHeader
    rule: Rule | None = None
    answer: bytes | None = None
    """The proxy's own answer, if the broker did not get the request."""


class Proxy(Protocol):
    """The part of the proxy (`proxy_process`) that a connection uses."""

    recorder: FrameWriter | None

    def rule_for(self, api_key: int, client_id: str | None) -> Rule | None:
        """The first rule that applies to this request."""

    def passed_ms(self) -> float:
        """Milliseconds since the proxy was started."""


class Proxied:
    """Forwards a client's requests to the broker, and the answers to the client, in order."""

    def __init__(
        self,
        proxy: Proxy,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.proxy, self.number = proxy, number
        self.from_client, self.to_client = reader, writer
        self.pending: deque[Pending] = deque()
        self.room = asyncio.Semaphore(PENDING_MAX)
        self.ended = asyncio.Event()
        self.to_broker: asyncio.StreamWriter | None = None

    async def run(self, host: str, port: int) -> None:
        """Forwards frames both ways until one side closes the connection, or `end` is called."""
        try:
            from_broker, self.to_broker = await asyncio.open_connection(host, port)
        except OSError:
            self.to_client.transport.abort()
            return
        tasks = [
            asyncio.create_task(self._requests(self.to_broker)),
            asyncio.create_task(self._answers(from_broker)),
            asyncio.create_task(self.ended.wait()),
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for done in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(done, Exception) and not isinstance(done, OSError | EOFError):
                _log(f"connection {self.number}: {done!r}")
        for writer in (self.to_client, self.to_broker):
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def end(self) -> None:
        """Closes both connections immediately; unsent bytes are discarded."""
        self.ended.set()
        self.to_client.transport.abort()

    async def _requests(self, to_broker: asyncio.StreamWriter) -> None:
        while True:
            length = await self.from_client.readexactly(LENGTH_SIZE)
            size = int.from_bytes(length, "big", signed=True)
            if not 8 <= size <= FRAME_SIZE_MAX:
                # not Kafka's protocol: the broker reports the error
                await self._pump(length, to_broker)
                return
            frame = await self.from_client.readexactly(size)
            try:
                header, at = RequestHeader.decode(frame)
            except MalformedMessage:
                await self._pump(length + frame, to_broker)
                return
            self._record(REQUEST, header, frame)
            rule = self.proxy.rule_for(header.api_key, header.client_id)
            if rule is not None and not rule.after:
                if rule.kind == DROP:
                    self.end()
                    return
                if rule.kind == DELAY:
                    await asyncio.sleep(rule.seconds)
                    rule = None
            await self.room.acquire()
            pending = Pending(header, rule)
            if rule is not None and _is_own_answer(rule, header):
                pending.answer = self._own_answer(header, frame[at:], rule)
                if pending.answer is None:
                    return
                self.pending.append(pending)
                await self._send_own_answers()
                continue
            if not _is_silent(header, frame[at:]):
                self.pending.append(pending)
            to_broker.write(length + frame)
            await to_broker.drain()

    def _own_answer(self, header: RequestHeader, body: bytes, rule: Rule) -> bytes | None:
        """The proxy's refusal of the request; None if it closed the connection instead."""
        if _is_silent(header, body):
            self.end()                  # like Kafka after a failed acks=0 request
            return None
        try:
            request = APIS[header.api_key].request.decode(body, header.version)
            answer = error_answer(header.api_key, header.version, request, ErrorCode(rule.code))
        except (MalformedMessage, NoErrorToGive, KeyError) as error:
            _log(f"cannot make an error answer, so the connection is closed: {error}")
            self.end()
            return None
        return _framed(header, answer.encode(header.version))

    async def _answers(self, from_broker: asyncio.StreamReader) -> None:
        while True:
            length = await from_broker.readexactly(LENGTH_SIZE)
            frame = await from_broker.readexactly(int.from_bytes(length, "big"))
            if not self.pending:        # an answer to a frame that was not parsed here
                self.to_client.write(length + frame)
                await self._pump_back(from_broker)
                return
            pending = self.pending[0]   # until its answer is sent, no later answer may be
            rule = pending.rule
            if rule is not None and rule.kind == DROP:
                self.end()
                return
            if rule is not None and rule.kind == DELAY:
                await asyncio.sleep(rule.seconds)
            sent = length + frame
            if rule is not None and rule.kind == ANSWER:
                sent = _changed(pending.header, frame, rule)
            self._record(RESPONSE, pending.header, sent[LENGTH_SIZE:])
            self.to_client.write(sent)
            self.pending.popleft()
            self.room.release()
            await self._send_own_answers()

    async def _send_own_answers(self) -> None:
        """Sends the proxy's own answers, up to the next request that the broker has to answer."""
        while self.pending and self.pending[0].answer is not None:
            pending = self.pending.popleft()
            self.room.release()
            assert pending.answer is not None
            self._record(RESPONSE, pending.header, pending.answer[LENGTH_SIZE:])
            self.to_client.write(pending.answer)
        await self.to_client.drain()

    async def _pump(self, begun: bytes, to_broker: asyncio.StreamWriter) -> None:
        to_broker.write(begun)
        while data := await self.from_client.read(CHUNK_SIZE):
            to_broker.write(data)
            await to_broker.drain()
        to_broker.write_eof()
        await self.ended.wait()         # the broker's answer may still be in transit

    async def _pump_back(self, from_broker: asyncio.StreamReader) -> None:
        while data := await from_broker.read(CHUNK_SIZE):
            self.to_client.write(data)
            await self.to_client.drain()

    def _record(self, direction: bytes, header: RequestHeader, frame: bytes) -> None:
        if self.proxy.recorder is not None:
            self.proxy.recorder.write(
                direction, header.api_key, header.version, self.number,
                header.correlation_id, self.proxy.passed_ms(), frame,
            )


def _is_own_answer(rule: Rule, header: RequestHeader) -> bool:
    """Whether the proxy answers a request itself, so that the request never reaches the broker."""
    return rule.kind == ANSWER and not rule.after and header.api_key not in READS_WITH_MORE


def _is_silent(header: RequestHeader, body: bytes) -> bool:
    """Whether a request gets no answer: Produce with acks=0."""
    if header.api_key != ApiKey.PRODUCE:
        return False
    at = 0
    if header.version >= 9:             # a compact transactional id: its length + 1, as a varint
        size = shift = 0
        while True:
            size |= (body[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if not body[at - 1] & 0x80:
                break
        at += max(size - 1, 0)
    elif header.version >= 3:
        at = 2 + max(int.from_bytes(body[:2], "big", signed=True), 0)
    return body[at : at + 2] == b"\0\0"


def _changed(header: RequestHeader, frame: bytes, rule: Rule) -> bytes:
    """The broker's answer, with every error code replaced by the code of the rule."""
    api, version = APIS[header.api_key], header.version
    at = response_header_size(header.api_key, version, frame)
    answer = api.response.decode(frame[at:], version)
    if not mark(answer, version, ErrorCode(rule.code)):
        _log("the answer is sent unchanged:"
             f" answers of {api.name} version {version} have no error field")
    return _framed(header, answer.encode(version))


def _framed(header: RequestHeader, body: bytes) -> bytes:
    data = encode_response_header(header.api_key, header.version, header.correlation_id) + body
    return len(data).to_bytes(4, "big") + data


def _log(text: str) -> None:
    print(f"proxy: {text}", file=sys.stderr, flush=True)
