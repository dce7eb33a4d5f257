"""Headers of requests and responses, with the exceptions that the protocol makes."""

from __future__ import annotations

import pytest

from ottla.wire.errors import MalformedMessage
from ottla.wire.headers import RequestHeader, encode_response_header, response_header_size

START = b"\x00\x0c\x00\x03\x00\x00\x00\x07"


def fields(header: RequestHeader) -> tuple[int, int, int, str | None]:
    return header.api_key, header.version, header.correlation_id, header.client_id


def test_a_plain_request_has_a_client_id_and_no_tags() -> None:
    header, size = RequestHeader.decode(START + b"\x00\x02idbody")
    assert (fields(header), size) == ((12, 3, 7, "id"), 12)
    assert header.encode() == START + b"\x00\x02id"


def test_a_flexible_request_keeps_the_two_byte_length_and_adds_tags() -> None:
    start = b"\x00\x0c\x00\x04\x00\x00\x00\x07\x00\x02id"
    assert RequestHeader(12, 4, 7, "id").encode() == start + b"\x00"
    header, size = RequestHeader.decode(start + b"\x01\x05\x02xxbody")
    assert (fields(header), size) == ((12, 4, 7, "id"), len(start) + 5)


def test_a_client_id_may_be_null_and_may_be_no_utf8() -> None:
    assert fields(RequestHeader.decode(START + b"\xff\xff")[0])[3] is None
    header = RequestHeader.decode(START + b"\x00\x01\xff")[0]
    assert header.client_id == "\N{REPLACEMENT CHARACTER}"
    assert repr(header)


def test_controlled_shutdown_0_alone_has_no_client_id() -> None:
    header, size = RequestHeader.decode(b"\x00\x07\x00\x00\x00\x00\x00\x07\x00\x02id")
    assert (fields(header), size) == ((7, 0, 7, None), 8)
    later, size = RequestHeader.decode(b"\x00\x07\x00\x01\x00\x00\x00\x07\x00\x02id")
    assert (fields(later), size) == ((7, 1, 7, "id"), 12)
    assert len(RequestHeader(7, 0, 7).encode()) == 8
    assert len(RequestHeader(7, 1, 7).encode()) == 10


def test_a_key_that_nobody_knows_still_has_a_header() -> None:
    for key in (-1, 1000, 32767):
        data = key.to_bytes(2, "big", signed=True) + b"\x00\x01\x00\x00\x00\x07\x00\x02id"
        assert fields(RequestHeader.decode(data)[0]) == (key, 1, 7, "id")


@pytest.mark.parametrize("size", range(10))
def test_a_short_header_is_malformed(size: int) -> None:
    with pytest.raises(MalformedMessage):
        RequestHeader.decode((START + b"\x00\x02id")[:size])


def test_only_flexible_responses_have_tags_and_api_versions_never() -> None:
    assert encode_response_header(12, 3, 7) == b"\x00\x00\x00\x07"
    assert encode_response_header(12, 4, 7) == b"\x00\x00\x00\x07\x00"
    assert encode_response_header(18, 3, 7) == b"\x00\x00\x00\x07"
    assert response_header_size(12, 4, b"\x00\x00\x00\x07\x01\x05\x01x") == 8
    assert response_header_size(18, 4, b"\x00\x00\x00\x07\x00") == 4
    with pytest.raises(MalformedMessage):
        response_header_size(12, 4, b"\x00\x00\x00\x07")
