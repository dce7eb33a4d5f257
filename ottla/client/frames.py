"""Encodes requests to frames and decodes responses, in versions that both sides support. No IO.

A frame is a length of four bytes, a header and a body. `Frames` numbers the requests of one
connection and stores the broker's ApiVersions. Its callers send and receive the bytes: `connection`
with a blocking socket, other modules with an event loop.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from ottla import __version__
from ottla.client.errors import ClientError, NotSupported
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.headers import RequestHeader, response_header_size
from ottla.wire.messages import ApiVersionsRequest
from ottla.wire.parts import DecodedInParts

SOFTWARE_NAME = "ottla"
FRAME_SIZE_MAX = 256 << 20
"""The longest response that is read, in bytes; a longer response indicates a damaged stream."""
TLS_ALERT = b"\x15\x03"
"""The first bytes of a TLS record that contains an alert."""


class BadResponse(ClientError):
    """Bytes that are not a response to the request."""


class Sent(NamedTuple):
    """The fields of a sent request that are needed to parse its response."""

    key: int
    version: int
    correlation_id: int


class Frames:
    """Encodes and decodes the frames of one connection."""

    def __init__(self, client_id: str | None) -> None:
        self.client_id = client_id
        self.correlation_id = 0
        self.served: dict[int, tuple[int, int]] = {}
        """The broker's lowest and highest version of each API; empty before the broker has sent
        them."""

    def encode(self, request: Any, version: int) -> tuple[bytes, Sent]:
        """The whole frame of a request, including its length."""
        self.correlation_id = (self.correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(request.API_KEY, version, self.correlation_id, self.client_id)
        body = header.encode() + request.encode(version)
        return struct.pack(">i", len(body)) + body, Sent(
            request.API_KEY, version, self.correlation_id
        )

    def decode(self, sent: Sent, frame: bytes | bytearray) -> Any:
        """Decodes the response to `sent` from a frame without its length. Raises BadResponse."""
        return APIS[sent.key].response.decode(self._body(sent, frame), sent.version)

    def decode_in_parts(
        self, sent: Sent, frame: bytes | bytearray, path: tuple[str, ...]
    ) -> DecodedInParts:
        """Like `decode`, for a long response: decodes the array at `path` element by element."""
        return DecodedInParts(
            APIS[sent.key].response, self._body(sent, frame), sent.version, *path)

    def _body(self, sent: Sent, frame: bytes | bytearray) -> memoryview:
        (correlation_id,) = struct.unpack_from(">i", frame)
        if correlation_id != sent.correlation_id:
            raise BadResponse(
                f"the response has correlation id {correlation_id}, but the request had"
                f" {sent.correlation_id}"
            )
        return memoryview(frame)[response_header_size(sent.key, sent.version, frame):]

    def version_of(self, key: int, at_most: int | None = None) -> int:
        """The newest version of an API that the broker and this package both support.

        Raises NotSupported if there is none.
        """
        api = APIS[key]
        low, high = self.served.get(key, (0, -1))
        newest = min(high, api.versions[-1] if at_most is None else at_most)
        if newest < max(low, api.versions[0]):
            raise NotSupported(f"the broker does not support {api.name}")
        return newest

    def learn(self, response: Any) -> None:
        """Stores an ApiVersions response."""
        self.served = {
            item.api_key: (item.min_version, item.max_version) for item in response.api_keys
        }

    @staticmethod
    def hello() -> Any:
        """The first request of a connection, which asks for the broker's versions."""
        return ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=__version__
        )

    @staticmethod
    def hello_versions() -> list[int]:
        """Versions of ApiVersions to try: the newest, then 0, which every broker supports."""
        return [APIS[ApiKey.API_VERSIONS].versions[-1], 0]


def http_server_at(where: str) -> str:
    """The message about an address at which an HTTP server listens."""
    return (
        f"{where}: this is an HTTP server, such as a broker's metrics or the console, not a "
        "listener for Kafka clients: give an address of the broker's `listeners`, which its "
        "first log lines name (by default port 9092)")


def frame_size(data: bytes | bytearray | memoryview, where: str) -> int:
    """Decodes the length that precedes a frame; raises BadResponse if it is impossible. `where` is
    the server's address, for the message."""
    (size,) = struct.unpack(">i", data)
    if bytes(data) == b"HTTP":
        raise BadResponse(http_server_at(where))
    if bytes(data[:2]) == TLS_ALERT:    # Apache Kafka sends an alert, too
        raise BadResponse(
            f"{where}: this port expects TLS: set security.protocol=SSL, or SASL_SSL with a login")
    if not 4 <= size <= FRAME_SIZE_MAX:
        raise BadResponse(
            f"{where}: the server does not speak Kafka's protocol in plaintext: its response "
            f"begins with {bytes(data)!r}"
        )
    return int(size)
