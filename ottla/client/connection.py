"""One blocking connection to one broker.

`call` sends one request in the newest version that both sides support, and reads the response.
Tests and benchmarks can also send any version, any bytes, and further requests before the responses
to earlier requests have arrived.
"""

from __future__ import annotations

import socket
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ottla.client.addresses import Address, show_address
from ottla.client.errors import NotSupported, TimedOut, Unreachable, check
from ottla.client.frames import BadResponse, Frames, Sent, frame_size
from ottla.client.transport import (
    UNPROTECTED,
    Security,
    is_closed,
    open_transport,
    perhaps_another,
)
from ottla.wire.apis import APIS
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.wire.parts import DecodedInParts

CLIENT_ID = "ottla"


class Connection:
    """A socket and the frames on it. Responses come in the order of the requests."""

    def __init__(
        self,
        address: Address,
        *,
        client_id: str | None = CLIENT_ID,
        connect_seconds: float = 5.0,
        request_seconds: float = 30.0,
        security: Security = UNPROTECTED,
        retry_refused: bool = True,
    ) -> None:
        self.address = address
        self.request_seconds = request_seconds
        self.frames = Frames(client_id)
        self.failed = False
        """Whether sending or receiving has failed. The connection is then unusable: a late response
        could be taken for the response to another request."""
        self.unanswered = 0
        self.who = ""
        """Which broker this is, for messages, such as "broker 2, the controller"; "" if unknown."""
        self.asked: int | None = None
        """The API of the last request."""
        self.dry_run = False
        """Whether the last request asked the broker to validate it only."""
        self.security = security
        self.in_use = False
        """Whether the broker has answered a request other than ApiVersions. If it has, this client
        uses the security protocol that the listener expects."""
        self.socket: socket.socket = open_transport(
            address, security, connect_seconds, retry_refused=retry_refused
        )
        self.socket.settimeout(request_seconds)

    def call(self, request: Any, version: int | None = None, *, at_most: int | None = None) -> Any:
        """Send a request and return the response to it.

        `version` None means the newest version that both sides support, limited by `at_most`.
        Raises NotSupported, TimedOut, or Unreachable if the broker closed the connection.
        """
        return self.answer(self.send(request, version, at_most=at_most))

    def send(self, request: Any, version: int | None = None, *, at_most: int | None = None) -> Sent:
        """Sends a request; pass the result to `answer`."""
        if version is None:
            version = self.version_of(request.API_KEY, at_most)
        frame, sent = self.frames.encode(request, version)
        self.asked, self.dry_run = request.API_KEY, getattr(request, "validate_only", False)
        self.send_bytes(frame)
        self.unanswered += 1
        return sent

    def call_in_parts(self, request: Any, *path: str) -> DecodedInParts:
        """Like `call`, for a long response. To save memory, the array at `path`, such as "topics",
        is decoded one element at a time."""
        found: DecodedInParts = self.answer(self.send(request), in_parts=path)
        return found

    def answer(self, sent: Sent, *, in_parts: tuple[str, ...] = ()) -> Any:
        """Receives the response to a request that `send` has sent. The response must be the next
        frame."""
        frame = self.receive_frame()
        self.unanswered -= 1
        self.in_use = True
        try:
            if in_parts:
                return self.frames.decode_in_parts(sent, frame, in_parts)
            return self.frames.decode(sent, frame)
        except BadResponse:
            self.failed = True
            raise

    @property
    def usable(self) -> bool:
        """Whether another request can be sent. Brokers close idle connections, and close all
        connections when they stop."""
        return not self.failed and not is_closed(self.socket)

    def retire(self) -> None:
        """Closes the connection, unless it may still receive responses to earlier requests."""
        if self.failed or not self.unanswered:
            self.close()

    def version_of(self, key: int, at_most: int | None = None) -> int:
        """The newest version of an API that both sides support. The first call asks the broker for
        its versions."""
        if not self.frames.served:
            self.negotiate()
        return self.frames.version_of(key, at_most)

    def negotiate(self) -> None:
        """Asks which versions the broker supports."""
        for version in self.frames.hello_versions():
            sent = self.send(self.frames.hello(), version)
            frame = self.receive_frame()
            self.unanswered -= 1
            # A broker that does not support the version answers in version 0 (KIP-511). So read the
            # error code first: it is at the same place in all versions.
            if int.from_bytes(frame[4:6], "big") != ErrorCode.UNSUPPORTED_VERSION:
                response = self.frames.decode(sent, frame)
                check(response.error_code, what=show_address(self.address))
                self.frames.learn(response)
                return
        raise NotSupported(f"{show_address(self.address)} does not answer ApiVersions")

    def send_frame(self, frame: bytes) -> None:
        """Sends bytes preceded by their length."""
        self.send_bytes(len(frame).to_bytes(4, "big", signed=True) + frame)

    def send_bytes(self, data: bytes) -> None:
        """Sends bytes unchanged."""
        try:
            self.socket.sendall(data)
        except TimeoutError as late:
            self.failed = True
            raise self._late() from late
        except OSError as broken:
            self.failed = True
            raise Unreachable(self._broken(broken)) from broken

    def receive_frame(self) -> bytearray:
        """The next frame without its length."""
        return self._take(frame_size(self._take(4), show_address(self.address)))

    def _take(self, size: int) -> bytearray:
        data = bytearray(size)
        view, filled = memoryview(data), 0
        while filled < size:
            try:
                got = self.socket.recv_into(view[filled:])
            except TimeoutError as late:
                self.failed = True
                raise self._late() from late
            except OSError as broken:
                self.failed = True
                raise Unreachable(self._broken(broken)) from broken
            if got == 0:
                self.failed = True
                raise Unreachable(self._broken())
            filled += got
        return data

    def _broken(self, error: OSError | None = None) -> str:
        if "CERTIFICATE_REQUIRED" in (getattr(error, "reason", None) or ""):    # alert of TLS 1.3
            return (
                f"{show_address(self.address)}: the broker expects a client certificate: set"
                " ssl.keystore.location to the file that has it"
            )
        hint = "" if self.in_use else perhaps_another(self.security.protocol)
        return f"{show_address(self.address)}: the broker closed the connection{hint}"

    def _late(self) -> TimedOut:
        told = f"{show_address(self.address)}: no answer within {self.request_seconds:.3g} s"
        if not self.frames.served:
            return TimedOut(f"{told}; perhaps the service at this address is not a broker")
        request = f" to {APIS[self.asked].name}" if self.asked is not None else ""
        source = f" from {self.who}" if self.who else ""
        return TimedOut(f"{told}{request}{source}", self.asked, dry_run=self.dry_run)

    def wait_at_most(self, seconds: float) -> None:
        """Limits the time to wait for each of the next answers."""
        self.request_seconds = max(seconds, 0.001)     # 0 would make the socket non-blocking
        self.socket.settimeout(self.request_seconds)

    def is_closed(self) -> bool:
        """Waits for the next byte. Returns whether the broker closed the connection instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        """Closes the connection."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
