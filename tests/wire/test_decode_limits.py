"""Arrays have Apache Kafka 4.4's limit of elements, and structs its limit of tagged fields."""

from __future__ import annotations

import pytest

from ottla.wire.errors import MalformedMessage
from ottla.wire.messages import HeartbeatRequest, OffsetFetchRequest

ELEMENTS_MAX, TAGS_MAX = 1_000_000, 10_000


def varint(number: int) -> bytes:
    found = b""
    while number > 0x7F:
        found, number = found + bytes([number & 0x7F | 0x80]), number >> 7
    return found + bytes([number])


def heartbeat(tags: int) -> bytes:
    """A heartbeat with this many unknown tagged fields, each of them empty."""
    plain = HeartbeatRequest(group_id="g", member_id="m").encode(4)
    assert plain[-1] == 0
    return plain[:-1] + varint(tags) + b"".join(varint(100 + tag) + b"\0" for tag in range(tags))


def offset_fetch(partitions: int) -> bytes:
    made = OffsetFetchRequest.Topic(name="t", partition_indexes=[0] * partitions)
    return OffsetFetchRequest(group_id="g", topics=[made]).encode(5)


def test_as_many_as_are_allowed_are_read() -> None:
    assert HeartbeatRequest.decode(heartbeat(TAGS_MAX), 4).group_id == "g"
    found = OffsetFetchRequest.decode(offset_fetch(ELEMENTS_MAX), 5)
    assert len(found.topics[0].partition_indexes) == ELEMENTS_MAX


@pytest.mark.parametrize("count", [TAGS_MAX + 1, 4 * TAGS_MAX])
def test_more_tagged_fields_are_refused(count: int) -> None:
    with pytest.raises(MalformedMessage, match=f"{count} tagged fields"):
        HeartbeatRequest.decode(heartbeat(count), 4)


def test_a_longer_array_is_refused() -> None:
    with pytest.raises(MalformedMessage, match=f"{ELEMENTS_MAX + 1} elements"):
        OffsetFetchRequest.decode(offset_fetch(ELEMENTS_MAX + 1), 5)
