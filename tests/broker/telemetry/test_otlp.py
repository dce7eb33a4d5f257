"""The decoder of OTLP: what clients send, and malformed input."""

from __future__ import annotations

import math
import random

import pytest

from ottla.broker.telemetry.otlp import (
    ATTRIBUTES_MAX,
    POINTS_MAX,
    TEXT_LENGTH_MAX,
    BadPayload,
    Point,
    decode_points,
)
from tests.broker.telemetry.protobuf import field, fixed64, gauge, pushed, total, varint

# The first push, uncompressed, of a librdkafka 2.16.0 producer that sent one record.
LIBRDKAFKA = bytes.fromhex(
    "0ad50412d2040a180a0e6c69622370726f64756365722d311206322e31362e301284010a326f72672e617061"
    "6368652e6b61666b612e70726f64756365722e636f6e6e656374696f6e2e6372656174696f6e2e7261746512"
    "2f5468652072617465206f6620636f6e6e656374696f6e732065737461626c69736865642070657220736563"
    "6f6e642e2a1d0a1b11e8a7fdf1386cea1819007c2010396cea182100000000000000001286010a336f72672e"
    "6170616368652e6b61666b612e70726f64756365722e636f6e6e656374696f6e2e6372656174696f6e2e746f"
    "74616c122c54686520746f74616c206e756d626572206f6620636f6e6e656374696f6e732065737461626c69"
    "736865642e3a210a1b11e8a7fdf1386cea1819007c2010396cea18310100000000000000100218011291010a"
    "326f72672e6170616368652e6b61666b612e70726f64756365722e6e6f64652e726571756573742e6c617465"
    "6e63792e617667122d54686520617665726167652072657175657374206c6174656e637920696e206d732066"
    "6f722061206e6f64652e2a2c0a2a11e8a7fdf1386cea1819007c2010396cea1821ac1c5a643bdf09403a0d0a"
    "076e6f64652e6964120218001291010a326f72672e6170616368652e6b61666b612e70726f64756365722e6e"
    "6f64652e726571756573742e6c6174656e63792e6d6178122d546865206d6178696d756d2072657175657374"
    "206c6174656e637920696e206d7320666f722061206e6f64652e2a2c0a2a11e8a7fdf1386cea1819007c2010"
    "396cea18310d000000000000003a0d0a076e6f64652e696412021800"
)


def test_gauges_and_sums_keep_their_numbers_labels_and_kinds() -> None:
    payload = pushed(
        gauge("a", field(4, 1.5), topic="t", number=-3 & (1 << 64) - 1, half=0.5, yes=True),
        gauge("b", fixed64(6, -7)),
        total("c", 3.0), total("d", 4.0, delta=True, monotonic=False),
        client_rack="r1",
    )
    rack = ("client_rack", "r1")
    assert decode_points(payload) == ([
        Point("a", (rack, ("topic", "t"), ("number", "-3"), ("half", "0.5"), ("yes", "true")), 1.5),
        Point("b", (rack,), -7.0),
        Point("c", (rack,), 3.0, counts=True),
        Point("d", (rack,), 4.0, delta=True),
    ], 0)


@pytest.mark.parametrize("number", [9, 10, 11], ids=["histogram", "exponential", "summary"])
def test_distributions_are_their_count_and_sum(number: int) -> None:
    metric = field(1, "h") + field(number, field(1, fixed64(4, 12) + field(5, 34.5)) + field(2, 2))
    points, dropped = decode_points(pushed(metric))
    assert ([(p.name, p.value, p.counts) for p in points], dropped) == (
        [("h.count", 12.0, True), ("h.sum", 34.5, False)], 0)


def test_special_numbers_and_unknown_fields_are_read() -> None:
    unknown = field(99, "later") + field(98, 5) + varint(97 << 3 | 5) + b"1234"
    metric = gauge("a", field(4, math.inf) + unknown) + unknown
    assert decode_points(pushed(metric) + unknown)[0] == [Point("a", (), math.inf)]
    assert decode_points(b"") == ([], 0)


def test_long_texts_and_many_labels_are_dropped_and_counted() -> None:
    long = "x" * (TEXT_LENGTH_MAX + 1)
    many = {f"k{i}": "v" for i in range(ATTRIBUTES_MAX + 1)}
    points, dropped = decode_points(pushed(
        gauge(long, field(4, 1.0)), gauge("a", field(4, 1.0), key=long),
        gauge("b", field(4, 1.0), **{long: "v"}), gauge("c", field(4, 1.0), **many),
        gauge("kept", field(4, 1.0)),
    ))
    assert ([point.name for point in points], dropped) == (["kept"], 4)


def test_more_points_than_allowed_are_refused() -> None:
    point = field(1, field(4, 1.0))
    at_most = field(1, "a") + field(5, point * POINTS_MAX)
    assert len(decode_points(pushed(at_most))[0]) == POINTS_MAX
    with pytest.raises(BadPayload, match="more than 10000"):
        decode_points(pushed(field(1, "a") + field(5, point * (POINTS_MAX + 1))))


@pytest.mark.parametrize(("payload", "said"), [
    (b"\x0a\x05abc", "needs 5 bytes, but only 3 bytes are left"),
    (b"\x0a" + b"\xff" * 9 + b"\x01", "bytes, but only 0 bytes are left"),
    (b"\x0a" + b"\xff" * 20, "does not end"),
    (b"\x80", "does not end"),
    (b"\x0b", "wire type 3"),
    (b"\x09123", "needs 8 bytes"),
    (pushed(b"\x0a\x7f"), "needs 127 bytes"),
])
def test_damaged_payloads_are_refused(payload: bytes, said: str) -> None:
    with pytest.raises(BadPayload, match=said):
        decode_points(payload)


def test_no_byte_that_changes_makes_another_error_than_bad_payload() -> None:
    payload = pushed(
        gauge("a.b", field(4, 1.5), topic="t", n=3), total("c", 3.0, delta=True), rack="r")
    chance = random.Random(7)
    for _ in range(3000):
        broken = bytearray(payload)
        for _ in range(chance.randint(1, 3)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        try:
            points, _ = decode_points(bytes(broken[: chance.randint(0, len(broken))]))
        except BadPayload:
            continue
        assert all(isinstance(point.value, float) for point in points)


def test_a_push_of_librdkafka_is_read() -> None:
    points, dropped = decode_points(LIBRDKAFKA)
    found = {point.name: point for point in points}
    created = found["org.apache.kafka.producer.connection.creation.total"]
    assert (created.value, created.counts, dropped) == (1.0, True, 0)
