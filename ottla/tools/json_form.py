"""Messages as Apache Kafka's own tools print them: compact JSON with Kafka's field names.

Fields are in the order of the schema. Fields that the version lacks, and tagged fields with their
default value, are omitted. Bytes are written in base64, uuids in Kafka's text form, and
None as null.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from typing import Any

from ottla.wire.schema_parser import EMPTY, Field
from ottla.wire.structs import Struct

ESCAPE = re.compile(r"\\(?:u[0-9a-f]{4}|.)")


def kafka_name(name: str) -> str:
    """A field's name in Kafka's definitions: `topic_id` becomes `topicId`."""
    first, *others = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in others)


def uuid_text(value: bytes) -> str:
    """A uuid as Kafka writes it: 22 characters."""
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def as_json(struct: Struct, version: int) -> dict[str, Any]:
    """The fields of one version of a message, ready for `text_of`."""
    layout = type(struct).LAYOUT
    fields: dict[str, Any] = {}
    for field in layout.fields:
        if version not in field.versions:
            continue
        value = getattr(struct, field.name)
        if field.tag is not None:
            default = field.default
            if default is EMPTY:
                default = layout.classes[field.name]()
            if value == default:
                continue
        fields[kafka_name(field.name)] = field_as_json(value, field, version)
    return fields


def field_as_json(value: Any, field: Field, version: int) -> Any:
    """One field's value."""
    if value is None:
        return None
    if field.array:
        return [element_as_json(each, field.type, version) for each in value]
    return element_as_json(value, field.type, version)


def element_as_json(value: Any, kind: str, version: int) -> Any:
    """A value that is not an array."""
    if isinstance(value, Struct):
        return as_json(value, version)
    if kind == "uuid":
        return uuid_text(value)
    if kind in ("bytes", "records"):
        return b64encode(value).decode()
    return value


def text_of(value: Any) -> str:
    """JSON as Kafka's library writes it: no spaces, non-ASCII letters unescaped."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{quoted(k)}:{text_of(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(text_of, value)) + "]"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, float):
        return java_double(value)
    return json.dumps(value)


def quoted(text: str) -> str:
    """A JSON string. Escapes of control characters have upper-case digits, such as \\u001B."""
    return ESCAPE.sub(
        lambda found: "\\u" + found[0][2:].upper() if len(found[0]) == 6 else found[0],
        json.dumps(text, ensure_ascii=False),
    )


def java_double(value: float) -> str:
    """A double as Java prints it: with an exponent from 10000000 on, and below 0.001."""
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        digits, _, exponent = f"{value:.17e}".partition("e")
        shortest = next(
            text for size in range(1, 18) if float(text := f"{value:.{size}e}") == value
        )
        digits, _, exponent = shortest.partition("e")
        digits = digits.rstrip("0")
        digits += "0" if digits.endswith(".") else ""
    if "." not in digits:
        digits += ".0"
    return f"{digits}E{int(exponent)}"
