"""Random messages of every class and version, for tests of the codec."""

from __future__ import annotations

import random
from typing import Any

from ottla.wire import messages
from ottla.wire.generate import all_schemas
from ottla.wire.messages import Message, Struct
from ottla.wire.schema_parser import Field

EDGES = {
    "int8": (-128, -1, 0, 1, 127),
    "int16": (-32768, -1, 0, 1, 32767),
    "uint16": (0, 1, 0x8000, 0xFFFF),
    "int32": (-(2**31), -1, 0, 1, 300, 2**31 - 1),
    "uint32": (0, 1, 2**31, 2**32 - 1),
    "int64": (-(2**63), -1, 0, 1, 2**40, 2**63 - 1),
    "float64": (0.0, -1.5, 1e300),
    "bool": (False, True),
    "string": ("", "a", "topic-1", "żółć", "日本", "x" * 130),
}


def message_classes() -> list[type[Message]]:
    """The class of every message that has a schema."""
    return [
        getattr(messages, section.class_name)
        for schema in all_schemas()
        for section in schema.sections.values()
    ]


def sample(struct_class: type[Struct], version: int, rng: random.Random) -> Any:
    """A struct with random values in the fields that the version has, defaults in the others."""
    layout = struct_class.LAYOUT
    values = {
        field.name: sample_value(field, layout.classes.get(field.name), version, rng)
        for field in layout.fields
        if version in field.versions and (field.tag is None or rng.random() < 0.6)
    }
    return struct_class(**values)


def sample_value(
    field: Field, struct_class: type[Struct] | None, version: int, rng: random.Random
) -> Any:
    """A random value for a field; sometimes null if the version allows it."""
    if version in field.nullable and rng.random() < 0.3:
        return None
    if field.array:
        count = rng.choice((0, 1, 1, 2, 3))
        return [sample_single(field.type, struct_class, version, rng) for _ in range(count)]
    return sample_single(field.type, struct_class, version, rng)


def sample_single(
    kind: str, struct_class: type[Struct] | None, version: int, rng: random.Random
) -> Any:
    """A random value of a primitive type, or a struct."""
    if struct_class is not None:
        return sample(struct_class, version, rng)
    if kind == "uuid":
        return rng.randbytes(16)
    if kind in ("bytes", "records"):
        return rng.randbytes(rng.choice((0, 1, 5, 200)))
    return rng.choice(EDGES[kind])
