"""Recorded frames: the proxy writes them to a file, and the test process reads the file.

For each frame, the file has a head (HEAD below), then the frame's bytes as they were sent, without
their length prefix.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ottla.testing.names import api_key_of
from ottla.wire.apis import APIS
from ottla.wire.schema_parser import Field
from ottla.wire.structs import Message, Struct
from ottla.wire.wording import counted

# direction, API, version, connection, correlation id, ms since the proxy's start, size in bytes
HEAD = struct.Struct(">cxhhiidi")
REQUEST, RESPONSE = b">", b"<"
RECORDED_BYTES_MAX = 256 << 20
TEXT_WIDTH_MAX = 400
ELEMENTS_SHOWN_MAX = 5


@dataclass(frozen=True)
class Frame:
    """One request or one response."""

    direction: str
    """"request" or "response"."""
    api: str
    version: int
    connection: int
    """Connections are numbered from 1 in the order in which they were made."""
    correlation_id: int
    at_ms: float
    """When the frame passed the proxy, in milliseconds since the proxy was started."""
    client_id: str | None
    """The client that sent the request or gets the answer."""
    data: bytes
    """The bytes of the frame from its header on."""

    @cached_property
    def message(self) -> Message:
        """The decoded request or response. Raises MalformedMessage if it is damaged."""
        from ottla.wire.apis import ApiKey
        from ottla.wire.headers import RequestHeader, response_header_size

        api = next(api for api in APIS.values() if api.name == self.api)
        if self.direction == "request":
            _, size = RequestHeader.decode(self.data)
            return api.request.decode(self.data[size:], self.version)
        size = response_header_size(api.key, self.version, self.data)
        version = self.version
        unknown = int.from_bytes(self.data[4:6], "big") == 35
        if api.key == ApiKey.API_VERSIONS and unknown:
            version = 0                 # KIP-511: an unknown version is answered in version 0
        return api.response.decode(self.data[size:], version)

    def __str__(self) -> str:
        arrow = "→" if self.direction == "request" else "←"
        start = (
            f"{self.at_ms:10.1f} ms  #{self.connection:<3} {self.client_id or '-':<16} {arrow} "
            f"{self.api} v{self.version} ({self.correlation_id}) "
        )
        text = self._text()
        return start + (text if len(text) <= TEXT_WIDTH_MAX else text[:TEXT_WIDTH_MAX] + " …")

    def _text(self) -> str:
        from ottla.tools.json_form import text_of
        from ottla.wire.errors import MalformedMessage

        try:
            return text_of(readable(self.message, self.version))
        except (MalformedMessage, StopIteration) as error:
            return f"{len(self.data)} bytes that do not decode: {error}"


def readable(message: Any, version: int) -> dict[str, Any]:
    """A message as readable JSON: record data summarised, errors named, long arrays shortened."""
    from ottla.tools.json_form import kafka_name
    from ottla.wire.schema_parser import EMPTY

    layout = type(message).LAYOUT
    shown: dict[str, Any] = {}
    for field in layout.fields:
        value = getattr(message, field.name)
        default = field.default
        if field.tag is not None and default is EMPTY:
            default = layout.classes[field.name]()
        if version not in field.versions or (field.tag is not None and value == default):
            continue
        if isinstance(value, list):
            found = [readable_value(each, field, version) for each in value[:ELEMENTS_SHOWN_MAX]]
            if len(value) > len(found):
                found.append(f"{len(value) - len(found)} more")
            shown[kafka_name(field.name)] = found
        else:
            shown[kafka_name(field.name)] = readable_value(value, field, version)
    return shown


def readable_value(value: Any, field: Field, version: int) -> Any:
    """One value that is not an array."""
    from ottla.tools.json_form import element_as_json
    from ottla.wire.errors import ErrorCode

    if value is None:
        return None
    if isinstance(value, Struct):
        return readable(value, version)
    if field.type == "records":
        return describe_records(bytes(value))
    if field.name.endswith("error_code") and value in ErrorCode._value2member_map_:
        return ErrorCode(value).name
    return element_as_json(value, field.type, version)


def describe_records(data: bytes) -> str:
    """The number of records, with their offsets and size."""
    from ottla.wire.batch import batches
    from ottla.wire.errors import ProtocolError

    if not data:
        return "none"
    try:
        found = list(batches(data))
    except ProtocolError:               # a format before KIP-98, or damaged batches
        return f"{len(data)} bytes"
    if not found:
        return f"{len(data)} bytes, less than a batch"
    return (
        f"{counted(sum(batch.record_count for batch in found), 'record')},"
        f" offsets {found[0].base_offset}-{found[-1].last_offset}, {len(data)} bytes"
    )


class FrameWriter:
    """The proxy's side: appends frames to a file. The first frame that would exceed the size limit
    and all later frames are not written; `left_out` is their number."""

    def __init__(self, path: str) -> None:
        self.file = Path(path).open("wb", buffering=0)      # noqa: SIM115
        self.written, self.left_out = 0, 0

    def write(
        self, direction: bytes, api_key: int, version: int, connection: int,
        correlation_id: int, at_ms: float, frame: bytes,
    ) -> None:
        """Add one frame; it can be read from the file when this returns."""
        if self.left_out or self.written + len(frame) > RECORDED_BYTES_MAX:
            self.left_out += 1
            return
        head = HEAD.pack(
            direction, api_key, version, connection, correlation_id, at_ms, len(frame)
        )
        self.written += self.file.write(head + frame)


class Recording:
    """The frames of all connections since `broker.record()`. If used as a context manager, the
    recording ends with the block."""

    def __init__(self, path: Path, end: Any) -> None:
        self.path, self._end = path, end
        self.left_out: int = 0
        """The number of frames that were not recorded because the file had reached its limit of
        256 MiB. Known after the recording has ended."""
        self._kept: list[Frame] | None = None

    @property
    def frames(self) -> list[Frame]:
        """The frames so far, in order."""
        if self._kept is not None:
            return self._kept
        return list(read_frames(self.path))

    def requests(self, api: str | None = None) -> list[Frame]:
        """The requests so far. With `api` ("Produce"), only the requests of this API."""
        return self._of("request", api)

    def responses(self, api: str | None = None) -> list[Frame]:
        """The responses so far. With `api`, only the responses of this API."""
        return self._of("response", api)

    def _of(self, direction: str, api: str | None) -> list[Frame]:
        key = api_key_of(api)
        wanted = None if key is None else APIS[key].name
        return [
            frame for frame in self.frames
            if frame.direction == direction and wanted in (None, frame.api)
        ]

    def stop(self) -> None:
        """Ends the recording; its frames stay readable after the broker is gone."""
        if self._kept is None:
            self.left_out = self._end()
            self._kept = list(read_frames(self.path))
            self.path.unlink(missing_ok=True)

    def __str__(self) -> str:
        return "\n".join(map(str, self.frames))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def read_frames(path: Path) -> Iterator[Frame]:
    """The complete frames of a file, without a frame that is still being written."""
    data = path.read_bytes()
    clients: dict[tuple[int, int], str | None] = {}
    at = 0
    while at + HEAD.size <= len(data):
        direction, key, version, connection, correlation_id, at_ms, size = HEAD.unpack_from(
            data, at
        )
        at += HEAD.size
        if at + size > len(data):
            return
        frame = data[at : at + size]
        at += size
        if direction == REQUEST:
            clients[connection, correlation_id] = client_id_of(frame)
        name = APIS[key].name if key in APIS else f"API {key}"
        yield Frame(
            "request" if direction == REQUEST else "response", name, version, connection,
            correlation_id, at_ms, clients.get((connection, correlation_id)), frame,
        )


def client_id_of(frame: bytes) -> str | None:
    """The client id in a request's header; it is at the same place in all versions."""
    size = int.from_bytes(frame[8:10], "big", signed=True)
    return None if size < 0 else frame[10 : 10 + size].decode(errors="replace")
