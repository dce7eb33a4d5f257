"""Requests as plain values, and their variants: one or two fields have a borderline value.

A request's body is a dictionary as in its schema (`{"topics": [{"name": "t", ...}]}`). When it is
sent, fields that the version does not have are left out, so one body serves all versions.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

from ottla.wire.apis import APIS, ApiKey
from ottla.wire.plan import Layout
from ottla.wire.schema_parser import Field
from ottla.wire.structs import Message, Struct

Body = dict[str, Any]
Place = tuple[str | int, ...]
"""Where a value is in a body: names of fields and places in arrays."""

INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
STRINGS = ("", "no-such-thing", ".", "not legal/€", "x" * 250)
UUIDS = (bytes(16), bytes(range(16)))
BYTES = (b"", b"\0", b"\xff" * 7)


def request_class(api: str) -> type[Message]:
    """The class of an API's requests, by the API's name, such as `ListOffsets`."""
    return next(each for each in APIS.values() if each.name == api).request


def key_of(api: str) -> ApiKey:
    """The key of an API, by its name."""
    return next(each.key for each in APIS.values() if each.name == api)


def message(api: str, version: int, body: Body) -> Message:
    """The request that a body describes in a version."""
    made = _struct(request_class(api), body, version)
    assert isinstance(made, Message)
    return made


def _struct(kind: type[Struct], body: Body, version: int) -> Struct:
    layout = kind.LAYOUT
    unknown = set(body) - {field.name for field in layout.fields}
    assert not unknown, f"{kind.__qualname__} has no {unknown}"
    return kind(
        **{
            field.name: _value(layout, field, body[field.name], version)
            for field in layout.fields
            if version in field.versions and field.name in body
        }
    )


def _value(layout: Layout, field: Field, value: Any, version: int) -> Any:
    if not field.is_struct or value is None:
        return value
    inner = layout.classes[field.name]
    if field.array:
        return [_struct(inner, each, version) for each in value]
    return _struct(inner, value, version)


def variants(
    api: str, version: int, body: Body, skip: tuple[str, ...] = ()
) -> list[tuple[Place, Any]]:
    """Every borderline value for every field that the body has in this version.

    Fields named in `skip` stay as they are, with everything inside them.
    """
    return list(_variants(request_class(api).LAYOUT, version, body, (), frozenset(skip)))


def _variants(
    layout: Layout, version: int, body: Body, above: Place, skip: frozenset[str]
) -> Iterator[tuple[Place, Any]]:
    for field in layout.fields:
        if version not in field.versions or field.name not in body or field.name in skip:
            continue
        place, value = (*above, field.name), body[field.name]
        if version in field.nullable and value is not None:
            yield place, None
        if field.array:
            yield from _of_array(layout, field, version, value, place, skip)
        elif field.is_struct:
            if value is not None:
                inner = layout.classes[field.name].LAYOUT
                yield from _variants(inner, version, value, place, skip)
        else:
            yield from ((place, each) for each in borderline(field.type, value))


def _of_array(
    layout: Layout, field: Field, version: int, value: Any, place: Place, skip: frozenset[str]
) -> Iterator[tuple[Place, Any]]:
    if value:
        yield place, []
        yield place, [*value, value[0]]                # its first element twice
    for at, each in enumerate(value or ()):
        if field.is_struct:
            inner = layout.classes[field.name].LAYOUT
            yield from _variants(inner, version, each, (*place, at), skip)
        else:
            yield from (((*place, at), other) for other in borderline(field.type, each))


def borderline(kind: str, value: Any) -> Iterator[Any]:
    """Borderline values of a type, other than the present one."""
    if kind in INTEGER_BITS:
        top = 1 << (INTEGER_BITS[kind] - 1)
        found: tuple[Any, ...] = (-top, -7, -6, -2, -1, 0, 1, 2, 77, top - 1)
    else:
        found = {
            "string": STRINGS, "uuid": UUIDS, "bytes": BYTES, "records": BYTES,
            "bool": (False, True), "float64": (-1.0, 0.0, 1.5, float("inf")), "uint16": (0, 65535),
        }[kind]  # fmt: skip
    yield from (each for each in found if each != value)


def put(body: Body, place: Place, value: Any) -> None:
    """Set the value at a place in a body."""
    inside: Any = body
    for step in place[:-1]:
        inside = inside[step]
    inside[place[-1]] = value


def chosen(
    found: list[tuple[Place, Any]], version: int, newest: bool, stride: int
) -> list[tuple[Place, Any]]:
    """Returns all variants for the newest version. For each older version, returns a part of them,
    which differs from version to version."""
    if newest or stride <= 1:
        return found
    return found[version % stride :: stride]


def varied(
    api: str,
    versions: range,
    make: Callable[[], Body],
    skip: tuple[str, ...],
    stride: int,
    chance: random.Random,
) -> Iterator[tuple[int, Body]]:
    """Yields requests of all versions: correct ones, then with one and with two wrong fields."""
    for version in versions:
        yield version, make()
        found = variants(api, version, make(), skip)
        for place, value in chosen(found, version, version == versions[-1], stride):
            body = copy.deepcopy(make())
            put(body, place, value)
            yield version, body
        for _ in range(min(4, len(found) // 8)):
            body = copy.deepcopy(make())
            first, second = chance.sample(found, 2)
            if not _inside(first[0], second[0]):
                put(body, *first)
                put(body, *second)
                yield version, body


def _inside(first: Place, second: Place) -> bool:
    """Whether one place is inside the other, so that a request cannot have both values."""
    shared = min(len(first), len(second))
    return first[:shared] == second[:shared]
