"""Whatever bytes the text fields of a request hold, every client can read the reply, or there is
none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.dispatch import HANDLERS
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.headers import RequestHeader, response_header_size
from ottla.wire.messages import Struct
from ottla.wire.schema_parser import Field
from tests.broker.running import RunningBroker, WireClient

TEXTS = {
    "no UTF-8": b"\xff\xfe\xc3(\xed\xa0\x80\xf8" + b"\x80" * 52,
    "control characters": b"\x00\n\r\t\x1b[31m" + b"\x7f" * 50,
    "as long as can be": b"a" * 32_767,
    "as long, and no UTF-8": b"\xff" * 32_767,
}
PATIENCE_MS = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "timeout_ms": 1_000}
"""Values of integer fields that must be plausible for a request to be processed."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    data = tmp_path_factory.mktemp("data")
    with RunningBroker(data, group_initial_rebalance_delay_ms=0) as running:
        yield running


def texts_of(struct_class: type[Struct], version: int, path: str = "") -> Iterator[str]:
    """The names of a message's text fields. Nested fields are named like `topics.name`."""
    layout = struct_class.LAYOUT
    for field in layout.fields:
        if version not in field.versions:
            continue
        if field.is_struct:
            yield from texts_of(layout.classes[field.name], version, f"{path}{field.name}.")
        elif field.type == "string":
            yield path + field.name


def request_of(
    struct_class: type[Struct], version: int, bad: str | None, text: str, path: str = ""
) -> Any:
    """A message with one element in every array. `text` is in the text field `bad`, or in all text
    fields if `bad` is None."""
    layout = struct_class.LAYOUT

    def single(field: Field) -> Any:
        name = path + field.name
        if field.is_struct:
            return request_of(layout.classes[field.name], version, bad, text, name + ".")
        if field.type == "string":
            return text if bad in (None, name) else "plausible"
        if field.type == "uuid":
            return b"u" * 16
        if field.type in ("bytes", "records"):
            return b""
        if field.type == "bool":
            return False
        return PATIENCE_MS.get(field.name, 0)

    return struct_class(
        **{
            field.name: [single(field)] if field.array else single(field)
            for field in layout.fields
            if version in field.versions
        }
    )


def place_of(text: bytes) -> str:
    """A valid text as long as `text`. In the encoded request `replied` puts `text` in its place."""
    return "\x01" * len(text)


def replied(client: WireClient, key: int, version: int, request: Any, text: bytes) -> bytes | None:
    """The body of the reply; None if the broker closes the connection, which is allowed."""
    header = RequestHeader(key, version, 1, "test").encode()
    body = request.encode(version).replace(place_of(text).encode(), text)
    client.send_frame(header + body)
    try:
        frame = client.receive_frame()
    except ConnectionError:
        return None
    return frame[response_header_size(key, version, frame) :]


CASES = [
    (key, version) for key, handler in sorted(HANDLERS.items()) for version in handler.versions
]


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize(
    ("key", "version"), CASES, ids=[f"{ApiKey(key).name}-{version}" for key, version in CASES]
)
def test_no_reply_holds_bytes_that_are_no_text(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture, key: int, version: int, kind: str
) -> None:
    for bad in (None, *texts_of(APIS[key].request, version)):
        with WireClient(broker.address) as client:
            request = request_of(APIS[key].request, version, bad, place_of(TEXTS[kind]))
            body = replied(client, key, version, request, TEXTS[kind])
        if body is None:
            continue
        told = APIS[key].response.decode(body, version)
        # Bytes that are not UTF-8 would be decoded as U+FFFD, so the encoded bytes would differ.
        assert told.encode(version) == body, (bad, body)
        assert not any(has_surrogates(each) for each in texts_in(told)), (bad, told)
    # Unexpected errors of the broker would be logged with a traceback.
    assert not [each for each in caplog.records if each.exc_info], caplog.text[-2000:]


def has_surrogates(text: str) -> bool:
    """Whether a text has surrogates, which cannot be encoded. Python may decode invalid bytes to
    them (PEP 383)."""
    return any("\ud800" <= each <= "\udfff" for each in text)


def texts_in(value: Any) -> Iterator[str]:
    """All texts of a message."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from texts_in(each)
    elif isinstance(value, Struct):
        for field in value.LAYOUT.fields:
            yield from texts_in(getattr(value, field.name, None))
