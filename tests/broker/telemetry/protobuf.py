"""Writes OTLP metrics for tests, by the field numbers of OpenTelemetry's metrics.proto."""

from __future__ import annotations

import struct
from collections.abc import Mapping


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value: bytes | str | int | float) -> bytes:
    """A field: text and bytes with their length, ints as varints, floats as doubles."""
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def fixed64(number: int, value: int) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<q", value)


def attributes(number: int, pairs: Mapping[str, str | int | float | bool]) -> bytes:
    out = b""
    for key, value in pairs.items():
        kind = {str: 1, bool: 2, int: 3, float: 4}[type(value)]
        held = int(value) if isinstance(value, bool) else value
        out += field(number, field(1, key) + field(2, field(kind, held)))
    return out


def gauge(name: str, value: bytes, **labels: str | int | float | bool) -> bytes:
    """A Metric with one number; `value` is field 4 (double) or 6 (sfixed64)."""
    return field(1, name) + field(5, field(1, attributes(7, labels) + value))


def total(
    name: str, value: float, delta: bool = False, monotonic: bool = True, **labels: str
) -> bytes:
    point = field(1, attributes(7, labels) + field(4, value))
    return field(1, name) + field(7, point + field(2, 1 if delta else 2) + field(3, monotonic))


def pushed(*metrics: bytes, **resource: str) -> bytes:
    """A whole payload: one resource with its attributes, and its metrics."""
    scope = b"".join(field(2, metric) for metric in metrics)
    return field(1, field(1, attributes(1, resource)) + field(2, field(1, b"") + scope))
