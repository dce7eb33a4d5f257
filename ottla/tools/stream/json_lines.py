"""Records as lines of JSON that can be read back without loss.

`ottla consume --output jsonl | ottla produce -i jsonl` copies keys, values, headers and timestamps.

A key or a value is a string, or null, or `{"base64": "…"}` if its bytes are not UTF-8:

    {"topic": "t", "partition": 0, "offset": 7, "timestamp": 1700000000000, "key": "k",
     "value": {"base64": "/w=="}, "headers": [["name", "value"]]}
"""

from __future__ import annotations

import base64
import binascii
import json
from difflib import get_close_matches
from typing import Any, NamedTuple

from ottla.client.errors import ClientError

FIELDS = {"topic", "partition", "offset", "timestamp", "key", "value", "headers"}
MOST_PARTITION, MOST_TIMESTAMP = (1 << 31) - 1, (1 << 63) - 1


class Line(NamedTuple):
    """One record in a line. A field is None if the line does not have it, or has null."""

    topic: str | None
    partition: int | None
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def written(data: bytes | None) -> Any:
    """A key or a value in JSON."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def line_of(record: Any) -> str:
    """A line for a record."""
    return json.dumps(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp
            if record.timestamp is not None and record.timestamp >= 0
            else None,
            "key": written(record.key),
            "value": written(record.value),
            "headers": [[name, written(value)] for name, value in record.headers],
        },
        ensure_ascii=False,
    )


def known(name: str) -> str:
    """The end of the message about an unknown field: a similar field, or all fields."""
    similar = get_close_matches(name.lower(), FIELDS, 1)
    return f"did you mean {similar[0]}?" if similar else f"known are {', '.join(sorted(FIELDS))}"


def utf8(text: str, number: int, what: str, instead: str) -> bytes:
    """The text as UTF-8. Raises ClientError for half of a surrogate pair, which is valid JSON."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        raise ClientError(
            f"line {number}: {what} has {half}, which is half of a surrogate pair and has no UTF-8:"
            f" {instead}") from None


def parsed(text: bytes, number: int) -> Line:
    """The record in a line. Raises ClientError with the line's number if the line is not valid."""

    def wrong(why: str) -> ClientError:
        return ClientError(f"line {number}: {why}")

    def data(value: Any, what: str) -> bytes | None:
        if value is None:
            return None
        if isinstance(value, str):
            return utf8(value, number, what, 'as {"base64": "…"}, give the bytes to send')
        if isinstance(value, dict) and value.keys() == {"base64"} and (
            isinstance(value["base64"], str)
        ):
            try:
                return base64.b64decode(value["base64"], validate=True)
            except binascii.Error as error:
                raise wrong(f"{what} is not base64: {error}") from None
        raise wrong(f'{what} must be a string, null or {{"base64": "…"}}')

    def number_of(name: str, most: int) -> int | None:
        value = found.get(name)
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most:
            return value
        raise wrong(f"the field {name!r} must be a whole number from 0 to {most}, or null")

    def unique(fields: list[tuple[str, Any]]) -> dict[str, Any]:
        one: dict[str, Any] = {}
        for name, value in fields:
            if name in one:
                raise wrong(f"the field {name!r} appears twice")
            one[name] = value
        return one

    try:
        found = json.loads(text, object_pairs_hook=unique)
    except ValueError as error:
        raise wrong(f"not JSON: {error}") from None
    except RecursionError:
        raise wrong("its arrays or objects are nested too deeply") from None
    if not isinstance(found, dict):
        raise wrong("expected a JSON object with the fields key and value")
    if not found.keys() <= FIELDS:
        name = next(name for name in found if name not in FIELDS)
        raise wrong(f"unknown field {name!r}; {known(name)}")
    if "value" not in found:
        raise wrong('the field "value" is missing; "value": null sends a tombstone')
    topic = found.get("topic")
    if topic is not None and not isinstance(topic, str):
        raise wrong("the field 'topic' must be a string")
    utf8(topic or "", number, "the field 'topic'", "give the topic's name")
    headers: list[tuple[str, bytes | None]] = []
    listed = found.get("headers") or []
    pairs = list(listed.items()) if isinstance(listed, dict) else listed
    for pair in pairs:
        if not (isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)):
            raise wrong("the field 'headers' must be a list of [name, value] pairs")
        utf8(pair[0], number, "a header's name", "give another name")
        headers.append((pair[0], data(pair[1], "a header")))
    return Line(
        topic,
        number_of("partition", MOST_PARTITION),
        number_of("timestamp", MOST_TIMESTAMP),
        data(found.get("key"), "key"),
        data(found.get("value"), "value"),
        headers,
    )
