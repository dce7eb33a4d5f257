"""Bytes become requests and responses become bytes, without a socket."""

from __future__ import annotations

import pytest

from ottla.broker.network.conversation import Conversation
from ottla.wire.errors import MalformedMessage
from ottla.wire.headers import RequestHeader
from ottla.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from ottla.wire.structs import Message

FRAME_SIZE_MAX = 10_000


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def request(message: Message, version: int, correlation_id: int, client_id: str) -> bytes:
    header = RequestHeader(message.API_KEY, version, correlation_id, client_id)
    return framed(header.encode() + message.encode(version))


def taken(conversation: Conversation) -> list[tuple[int, int, int, str | None, bytes]]:
    """The requests that have arrived."""
    found = []
    while (each := conversation.next_request()) is not None:
        header, body = each
        assert header is not None
        found.append(
            (header.api_key, header.version, header.correlation_id, header.client_id, body)
        )
    return found


SAID = request(ApiVersionsRequest(), 0, 7, "a") + request(MetadataRequest(topics=None), 9, 8, "é")
HEARD = [
    (18, 0, 7, "a", b""),
    (3, 9, 8, "é", MetadataRequest(topics=None).encode(9)),
]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, len(SAID)])
def test_requests_arrive_whole_however_their_bytes_are_cut(size: int) -> None:
    conversation = Conversation(FRAME_SIZE_MAX)
    found = []
    for at in range(0, len(SAID), size):
        conversation.receive_data(SAID[at : at + size])
        found += taken(conversation)
    assert found == HEARD


def test_many_requests_arrive_at_once_in_their_order() -> None:
    conversation = Conversation(FRAME_SIZE_MAX)
    conversation.receive_data(SAID * 500)
    assert taken(conversation) == HEARD * 500


@pytest.mark.parametrize(
    "data, why",
    [
        (framed(b"1234567"), "a frame has 7 bytes, but 8 to 10000"),
        ((FRAME_SIZE_MAX + 1).to_bytes(4, "big"), "a frame has 10001 bytes"),
        (b"\xff\xff\xff\xff", "a frame has -1 bytes"),
        (b"GET / HTTP/1.1\r\n", "the client speaks HTTP"),
        (framed(b"\x00\x12\x00\x00\x00\x00\x00\x01\x00\x09short"), "declares 9 bytes, but 5 "),
    ],
)
def test_what_is_no_request_is_refused_and_named(data: bytes, why: str) -> None:
    conversation = Conversation(FRAME_SIZE_MAX)
    conversation.receive_data(data)
    with pytest.raises(MalformedMessage, match=why):
        conversation.next_request()


def test_the_bytes_of_a_longest_frame_are_all_there() -> None:
    conversation = Conversation(FRAME_SIZE_MAX)
    content = RequestHeader(18, 0, 1, None).encode()
    content += bytes(range(256)) * 40
    conversation.receive_data(framed(content[:FRAME_SIZE_MAX]))
    assert taken(conversation) == [(18, 0, 1, None, content[10:FRAME_SIZE_MAX])]


def test_tokens_have_no_header_and_may_be_short_until_requests_follow() -> None:
    conversation = Conversation(FRAME_SIZE_MAX)
    conversation.expect_tokens(True)
    conversation.receive_data(framed(b"token") + framed(b"") + SAID)
    assert conversation.next_request() == (None, b"token")
    assert conversation.next_request() == (None, b"")
    conversation.expect_tokens(False)
    assert taken(conversation) == HEARD


def test_responses_have_the_headers_of_their_requests_and_keep_their_order() -> None:
    conversation = Conversation(FRAME_SIZE_MAX)
    conversation.receive_data(SAID)
    versions, metadata = ApiVersionsResponse(), MetadataResponse(controller_id=3)
    for response in (versions, metadata):
        found = conversation.next_request()
        assert found is not None
        conversation.send_response(found[0], response)
    assert conversation.data_to_send() == (
        framed(b"\x00\x00\x00\x07" + versions.encode(0))
        + framed(b"\x00\x00\x00\x08\x00" + metadata.encode(9))
    )
    assert conversation.data_to_send() == b""


def test_a_response_that_cannot_be_encoded_leaves_nothing_behind() -> None:
    conversation = Conversation(FRAME_SIZE_MAX)
    header = RequestHeader(3, 9, 1, None)
    good = MetadataResponse(controller_id=3)
    conversation.send_response(header, good)
    with pytest.raises((OverflowError, TypeError, ValueError)):
        conversation.send_response(header, MetadataResponse(controller_id=1 << 40))
    conversation.send_response(header, good)
    assert conversation.data_to_send() == 2 * framed(b"\x00\x00\x00\x01\x00" + good.encode(9))
