"""The conditions of a search: text, a regular expression (RE2), a JSON path, a key, a header.

A JSON path such as `$.user.id`, `$.items[0].price` or `$.items[*].sku` finds records that have this
path. With a comparison it finds records for which the comparison holds: `$.user.id == 42`,
`$.name != "x"`, `$.price >= 10`, `$.text contains "word"`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ottla.client.errors import ClientError
from ottla.console.schemas import NotDecoded, Schemas
from ottla.console.shown import document_of
from ottla.wire.patterns import InvalidPattern, compiled

LENGTH_MAX = 2000
STEPS_MAX = 50
FOUND_MAX = 10_000
SEARCHED_MAX = 1 << 20
"""How many bytes of a key or a value a regular expression searches."""
STEP = re.compile(r'\.([A-Za-z_$][\w$-]*)|\["((?:[^"\\]|\\.)*)"\]|\[(\d{1,9}|\*)\]')
COMPARISON = re.compile(r"\s*(==|!=|>=|<=|>|<|contains)\s*(.+)", re.DOTALL)
Test = Callable[[Any], bool]
MISSING = object()


class BadFilter(ClientError):
    """An invalid filter."""


@dataclass
class Filters:
    """The conditions for a record, all of which must hold."""

    text: str | None = None
    regex: str | None = None
    path: str | None = None
    key: str | None = None
    header: str | None = None

    def tests(self, schemas: Schemas | None = None) -> list[Test]:
        """A test function for each condition; with `schemas` a JSON path also works with Avro and
        Protobuf. Raises BadFilter."""
        for value in (self.text, self.regex, self.path, self.key, self.header):
            if value is not None and len(value) > LENGTH_MAX:
                raise BadFilter(f"a filter has more than {LENGTH_MAX} characters")
        makers = (
            (key_test, self.key), (header_test, self.header), (text_test, self.text),
            (regex_test, self.regex), (partial(path_test, schemas=schemas), self.path),
        )
        return [make(value) for make, value in makers if value]


def text_test(text: str) -> Test:
    """Whether the key or the value contains a text; case does not matter."""
    lowered, folded = text.lower().encode("utf-8", "surrogatepass"), text.casefold()

    def contains(data: bytes) -> bool:
        if text.isascii():
            return lowered in data.lower()
        return folded in data.decode("utf-8", "replace").casefold()

    return lambda record: any(
        data is not None and contains(data) for data in (record.value(), record.key())
    )


def regex_test(pattern: str) -> Test:
    """Whether a regular expression matches somewhere in the value or the key."""
    try:
        pattern_of_all = compiled(f"(?s).*(?:{pattern}).*")
    except InvalidPattern as wrong:
        raise BadFilter(str(wrong).replace("(?s).*(?:", "").replace(").*", "")) from wrong

    def test(record: Any) -> bool:
        return any(
            data is not None
            and pattern_of_all.fullmatch(data[:SEARCHED_MAX].decode("utf-8", "replace")) is not None
            for data in (record.value(), record.key())
        )

    return test


def key_test(key: str) -> Test:
    """Whether the key is exactly this text."""
    wanted = key.encode("utf-8", "surrogatepass")
    return lambda record: record.key() == wanted


def header_test(text: str) -> Test:
    """Whether the record has a header with this name (`name`), or with this name and this value
    (`name=value`)."""
    name, equals, value = text.partition("=")
    wanted = value.encode("utf-8", "surrogatepass")

    def test(record: Any) -> bool:
        return any(
            known == name and (not equals or data == wanted)
            for known, data in record.headers() or ()
        )

    return test


def document_in(data: bytes | None, schemas: Schemas | None) -> Any:
    """The document in a value: JSON, or decoded with its schema."""
    if schemas is not None:
        try:
            if (found := schemas.decoded(data)) is not None:
                return found.document
        except NotDecoded:
            pass
    return document_of(data)


def path_test(text: str, schemas: Schemas | None = None) -> Test:
    """Whether the value is a document with this path. If a comparison follows the path, a value at
    the path must pass it."""
    steps, rest = steps_of(text.strip())
    compare = comparison(rest) if rest.strip() else None

    def test(record: Any) -> bool:
        document = document_in(record.value(), schemas)
        if document is None:
            return False
        found = at(document, steps)
        if compare is None:
            return next(found, MISSING) is not MISSING
        return any(compare(value) for value in found)

    return test


def steps_of(text: str) -> tuple[list[str | int], str]:
    """The names and indexes of a path (-1 is every element), and the text after it."""
    if not text.startswith("$"):
        raise BadFilter(f"JSON path {text!r}: expected $, then .name or [0], as in $.user.id == 42")
    steps: list[str | int] = []
    position = 1
    while (match := STEP.match(text, position)) is not None:
        name, quoted, place = match.groups()
        if place is not None:
            steps.append(-1 if place == "*" else int(place))
        else:
            steps.append(name if name is not None else name_of(quoted))
        position = match.end()
    if len(steps) > STEPS_MAX:
        raise BadFilter(f"a JSON path has more than {STEPS_MAX} steps")
    rest = text[position:]
    if rest.strip() and COMPARISON.fullmatch(rest) is None:
        raise BadFilter(
            f"JSON path {text!r}: {rest.strip()!r} is not understood; expected .name, [0], [*], or "
            "a comparison such as == 42"
        )
    return steps, rest


def name_of(quoted: str) -> str:
    """The name between the quotes of `["name"]`. Raises BadFilter."""
    try:
        return str(json.loads(f'"{quoted}"'))
    except ValueError as wrong:
        raise BadFilter(f'JSON path ["{quoted}"]: the name is invalid JSON: {wrong}') from wrong


def at(document: Any, steps: list[str | int]) -> Iterator[Any]:
    """The values at a path."""
    values = [document]
    for step in steps:
        following: list[Any] = []
        for value in values:
            if step == -1 and isinstance(value, list):
                following += value[:FOUND_MAX]
            elif has(value, step):
                following.append(value[step])
        values = following[:FOUND_MAX]
    yield from values


def has(value: Any, step: str | int) -> bool:
    """Whether an object has this name, or a list has this index."""
    if isinstance(step, str):
        return isinstance(value, dict) and step in value
    return isinstance(value, list) and 0 <= step < len(value)


def comparison(text: str) -> Test:
    """A function that compares a value with the value in the filter."""
    match = COMPARISON.fullmatch(text)
    operator, written = match.groups() if match else ("", "")
    try:
        wanted = json.loads(written)
    except (ValueError, RecursionError):
        wanted = written.strip()            # the filter has a text without quotes
    if operator == "contains":
        return lambda value: (str(wanted) in value if isinstance(value, str)
                              else isinstance(value, list) and wanted in value)
    if operator in ("==", "!="):
        return lambda value: equal(value, wanted) == (operator == "==")
    number = isinstance(wanted, int | float) and not isinstance(wanted, bool)

    def ordered(value: Any) -> bool:
        alike = isinstance(value, int | float) if number else isinstance(value, str)
        if not alike or isinstance(value, bool) or not (number or isinstance(wanted, str)):
            return False
        less, same = bool(value < wanted), bool(value == wanted)
        return {"<": less, "<=": less or same, ">": not less and not same, ">=": not less}[operator]

    return ordered


def equal(value: Any, wanted: Any) -> bool:
    """Equality of JSON: true is not 1."""
    return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)
