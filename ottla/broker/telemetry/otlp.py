"""Decodes the OpenTelemetry metrics (protobuf) that clients push, with limits.

Only what KIP-714 clients send is decoded: gauges and sums, with their attributes. Histograms and
summaries are reduced to their number of observations and their sum. Reference:
opentelemetry/proto/metrics/v1/metrics.proto, whose field numbers the tables below repeat.

    MetricsData    1 ResourceMetrics*
    ResourceMetrics  1 Resource (1 KeyValue*)    2 ScopeMetrics*
    ScopeMetrics     2 Metric*
    Metric           1 name   5 Gauge   7 Sum   9 Histogram   10 ExponentialHistogram   11 Summary
    Gauge, Sum, ...  1 data points*   2 temporality   3 monotonic (Sum)
    a data point     4 double or count   5 sum   6 sfixed64   7 KeyValue*, but in a Histogram
                     9 KeyValue*, and in an ExponentialHistogram 1 KeyValue*
    KeyValue         1 key   2 AnyValue (1 string, 2 bool, 3 int, 4 double)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

POINTS_MAX = 10_000
"""Limit for one push. A Java consumer has about 150 points, plus 6 for each of its partitions."""
TEXT_LENGTH_MAX = 256
"""The limit on characters of a name or a label; points with longer texts are dropped."""
ATTRIBUTES_MAX = 32

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
GAUGE, SUM, HISTOGRAM, EXPONENTIAL, SUMMARY = 5, 7, 9, 10, 11
DELTA = 1
ATTRIBUTES_FIELD = {GAUGE: 7, SUM: 7, HISTOGRAM: 9, EXPONENTIAL: 1, SUMMARY: 7}

Labels = tuple[tuple[str, str], ...]
Field = tuple[int, int, "int | memoryview"]


class BadPayload(ValueError):
    """The payload is not the protobuf of OTLP metrics; the message names the place."""


@dataclass(frozen=True, slots=True)
class Point:
    """One value: a metric's name, its labels, and its relation to earlier values.

    `counts` marks a monotonic sum; the value of a `delta` is to be added to the earlier values.
    """

    name: str
    labels: Labels
    value: float
    counts: bool = False
    delta: bool = False


def decode_points(payload: bytes) -> tuple[list[Point], int]:
    """The points of a payload, and how many were dropped for their size.

    Raises BadPayload if it is not valid OTLP, or has more than POINTS_MAX points.
    """
    points: list[Point] = []
    dropped = 0
    for resource in _messages(memoryview(payload), 1):
        shared = tuple(
            pair for each in _messages(resource, 1) for pair in _attributes(each, 1)
        )
        for scope in _messages(resource, 2):
            for metric in _messages(scope, 2):
                for point in _points(metric, shared):
                    if len(points) + dropped >= POINTS_MAX:
                        raise BadPayload(f"the push has more than {POINTS_MAX} data points")
                    if _is_short(point):
                        points.append(point)
                    else:
                        dropped += 1
    return points, dropped


def _is_short(point: Point) -> bool:
    return len(point.labels) <= ATTRIBUTES_MAX and all(
        len(text) <= TEXT_LENGTH_MAX
        for text in (point.name, *(text for pair in point.labels for text in pair))
    )


def _points(metric: memoryview, shared: Labels) -> Iterator[Point]:
    name, bodies = "", []
    for number, kind, value in _fields(metric):
        if number == 1 and kind == LENGTH:
            name = _text(value)
        elif number in ATTRIBUTES_FIELD and isinstance(value, memoryview):
            bodies.append((number, value))
    for number, body in bodies:
        delta = monotonic = False
        parts: list[memoryview] = []
        for inner, _, value in _fields(body):
            if inner == 1 and isinstance(value, memoryview):
                parts.append(value)
            elif inner == 2 and number != SUMMARY:
                delta = value == DELTA
            elif inner == 3 and number == SUM:
                monotonic = value == 1
        for each in parts:
            if number in (GAUGE, SUM):
                yield _number_point(name, each, shared, monotonic, number == SUM and delta)
            else:
                yield from _observations(name, number, each, shared, delta)


def _number_point(
    name: str, point: memoryview, shared: Labels, counts: bool, delta: bool
) -> Point:
    result = 0.0
    for number, kind, value in _fields(point):
        if number == 4 and kind == FIXED64:
            result = _double(value)
        elif number == 6 and kind == FIXED64:
            result = float(_signed(value))
    return Point(name, shared + tuple(_attributes(point, 7)), result, counts, delta)


def _observations(
    name: str, number: int, point: memoryview, shared: Labels, delta: bool
) -> Iterator[Point]:
    """The number and the sum of the observations in a histogram or summary."""
    labels = shared + tuple(_attributes(point, ATTRIBUTES_FIELD[number]))
    for inner, kind, value in _fields(point):
        if inner == 4 and kind == FIXED64:
            assert isinstance(value, int)
            yield Point(f"{name}.count", labels, float(value), True, delta)
        elif inner == 5 and kind == FIXED64:
            yield Point(f"{name}.sum", labels, _double(value), False, delta)


def _attributes(message: memoryview, field: int) -> Iterator[tuple[str, str]]:
    for pair in _messages(message, field):
        key, text = "", ""
        for number, kind, value in _fields(pair):
            if number == 1 and kind == LENGTH:
                key = _text(value)
            elif number == 2 and isinstance(value, memoryview):
                text = _any_value(value)
        yield key, text


def _any_value(message: memoryview) -> str:
    for number, kind, value in _fields(message):
        if number == 1 and kind == LENGTH:
            return _text(value)
        if number == 2 and kind == VARINT:
            return "true" if value else "false"
        if number == 3 and kind == VARINT:
            return str(_signed(value))
        if number == 4 and kind == FIXED64:
            return repr(_double(value))
    return ""


def _messages(message: memoryview, field: int) -> Iterator[memoryview]:
    for number, _, value in _fields(message):
        if number == field and isinstance(value, memoryview):
            yield value


def _text(value: int | memoryview) -> str:
    assert isinstance(value, memoryview)
    return str(value, "utf-8", "replace")


def _double(value: int | memoryview) -> float:
    assert isinstance(value, int)
    number: float = struct.unpack("<d", value.to_bytes(8, "little"))[0]
    return number


def _signed(value: int | memoryview) -> int:
    assert isinstance(value, int)
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _fields(message: memoryview) -> Iterator[Field]:
    """Field number, wire type and value of each field of a message.

    Raises BadPayload if a length exceeds the message.
    """
    position, end = 0, len(message)
    while position < end:
        tag, position = _varint(message, position)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, position = _varint(message, position)
            yield number, kind, value
            continue
        if kind == LENGTH:
            size, position = _varint(message, position)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise BadPayload(f"wire type {kind} of field {number} does not exist in protobuf")
        if size > end - position:
            raise BadPayload(
                f"field {number} needs {size} bytes, but only {end - position} bytes are left")
        piece = message[position : position + size]
        position += size
        yield number, kind, piece if kind == LENGTH else int.from_bytes(piece, "little")


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    result = shift = 0
    while shift < 70 and position < len(message):
        byte = message[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7
    raise BadPayload("a varint does not end")
