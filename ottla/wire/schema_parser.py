"""Parses schema texts to trees of fields: the content of Kafka's messages in each version.

A file declares one API (`request`, `response`), one record of an internal topic (`key`, `value`)
or one single struct (`data`), such as a record of KRaft's metadata log. The first line names it. If
this broker serves an API, an indented second line names the file of `broker/api` that has the
handler, and the API's ROLES. A section's line may set its own versions. Examples of the first
lines:

    list_offsets   key 2   versions 0-11   flexible 6+   listeners broker
      served offsets
    create_topics   key 19   versions 0-7   flexible 5+   listeners broker controller
      served topics   roles audited forwarded
    offset_commit   record 1   topic __consumer_offsets
    end_txn_marker   data   versions 0   flexible none
    topic_record   data 2   versions 0   flexible 0+   topic __cluster_metadata

A field is one line, `name type versions marks`; nested fields are indented below it:

    name string?     may be null in every version of the field; `string ?2+` only in versions 2+
    name[]           an array of structs; `name struct` is one struct, `name int32[]` has integers
    name 3+          versions that have the field; without this mark, all versions of its struct
    =-1  =null       the default if it is not zero, empty or false
    @0               tag number: a tagged field (KIP-482)
    ~                ignorable: silently dropped when written in a version without the field

A line with one CamelCase name opens a struct that several fields of the section share; these fields
have the struct's name as their type.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import cache
from pathlib import Path
from typing import TextIO

SCHEMA_FOLDER = Path(__file__).parent / "schema"
INTEGERS = ("int8", "int16", "uint16", "int32", "uint32", "int64")
PRIMITIVES = frozenset((*INTEGERS, "bool", "float64", "string", "bytes", "records", "uuid"))
SECTIONS = {"key": ("request", "response"), "record": ("key", "value"), "data": ("data",)}
MARKS = (*SECTIONS, "versions", "flexible", "listeners", "topic", "served", "roles")
ROLES = {
    "audited": "the outcome of each request is written to the audit log",
    "forwarded": "the controller handles the request, other brokers forward it (KIP-590)",
    "forwarded_in_part": "as forwarded, but the receiving broker handles its own part itself",
    "forwarded_after_check": "as forwarded, after the receiving broker has checked the connection",
    "between_brokers": "served only in a cluster, on the listener for connections between brokers",
}
"""The roles that an API may have, and their meanings."""
DEPTH_MAX = 12
"""The maximum nesting of a schema; decoding recurses no deeper than this."""

EMPTY = object()
"""The default of a struct field: a struct in which all fields have their defaults."""


class SchemaError(ValueError):
    """A schema text that is not valid; the message gives file and line."""


@dataclass
class Field:
    """One field of a struct; `nullable` has the versions in which it may be null."""

    name: str
    type: str
    """A primitive's name, "struct", or the name of a shared struct."""
    array: bool
    versions: range
    nullable: range
    default: object = None
    """None for null, [] for an empty array, EMPTY for a struct of defaults, else the value."""
    tag: int | None = None
    ignorable: bool = False
    fields: list["Field"] = dataclass_field(default_factory=list)

    @property
    def is_struct(self) -> bool:
        """Whether the values (or elements) are structs."""
        return self.type not in PRIMITIVES

    @property
    def class_name(self) -> str:
        """The name of the structs' class: the shared struct's name, or the field's name in
        CamelCase, which for an array is in the singular."""
        if self.type != "struct":
            return self.type
        return camel_case(singular(self.name) if self.array else self.name)


@dataclass
class Section:
    """A message: the request or response of an API, the key or value of a record, or plain data."""

    class_name: str
    kind: str
    versions: range
    flexible_from: int | None
    """First version with compact lengths and tagged fields; None if there is none."""
    fields: list[Field] = dataclass_field(default_factory=list)
    shared: dict[str, list[Field]] = dataclass_field(default_factory=dict)


@dataclass
class Schema:
    """One schema file."""

    name: str
    kind: str
    """"key" for an API, "record" for a record with key and value, "data" for a single struct."""
    key: int | None
    """The API key, or the record's type; None for a struct that has neither."""
    versions: range
    flexible_from: int | None
    listeners: tuple[str, ...]
    topic: str
    served_by: str = ""
    """The module of `ottla.broker.api` with the handler; empty if no handler serves the API."""
    roles: frozenset[str] = frozenset()
    sections: dict[str, Section] = dataclass_field(default_factory=dict)


def camel_case(name: str) -> str:
    """`list_offsets` as `ListOffsets`."""
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


def snake_case(name: str) -> str:
    """`ListOffsets` as `list_offsets`."""
    return "".join(
        "_" + c.lower() if c.isupper() and i else c.lower() for i, c in enumerate(name)
    )


def singular(name: str) -> str:
    """`topics` as `topic`, `entries` as `entry`, `batches` as `batch`; `status` stays."""
    for ending, instead in (("ies", "y"), ("sses", "ss"), ("uses", "us"), ("ches", "ch")):
        if name.endswith(ending):
            return name.removesuffix(ending) + instead
    if name.endswith("s") and not name.endswith(("ss", "us", "is")):
        return name[:-1]
    return name


def parse_versions(text: str, within: range) -> range:
    """`3`, `3-5`, `3+` or `none` as a range. Raises ValueError for other texts, and for versions
    outside `within`."""
    if text == "none":
        return range(0)
    if text.endswith("+"):
        first, last = int(text[:-1]), within.stop - 1
    else:
        first_text, _, last_text = text.partition("-")
        first, last = int(first_text), int(last_text or first_text)
    if not within.start <= first <= last < within.stop:
        raise ValueError(f"versions {text} are not within {format_versions(within)}")
    return range(first, last + 1)


def format_versions(versions: range) -> str:
    """The range as in the schema text: `3` or `3-5`, `none` if it is empty."""
    if not versions:
        return "none"
    last = versions.stop - 1
    return str(last) if len(versions) == 1 else f"{versions.start}-{last}"


def parse_first_line(line: str) -> Schema:
    """The name, key, versions, listeners and roles of a file, without reading the rest."""
    words = line.split()
    name, marks = words[0], words[1:]
    values: dict[str, list[str]] = {}
    for word in marks:
        if word in MARKS:
            last = values.setdefault(word, [])
        elif values:
            last.append(word)
        else:
            raise ValueError(
                f"the first line has {word!r} after the name, expected one of {', '.join(MARKS)}")
    kind = next((kind for kind in SECTIONS if kind in values), None)
    if kind is None:
        raise ValueError("the first line needs `key N`, `record N` or `data`")
    key = int(values[kind][0]) if values[kind] else None
    versions, flexible_from = version_marks(values, range(0), None)
    topic = "".join(values.get("topic", []))
    listeners = tuple(values.get("listeners", []))
    served_by, roles = "".join(values.get("served", [])), frozenset(values.get("roles", []))
    if unknown := roles - ROLES.keys():
        raise ValueError(f"roles {sorted(unknown)} are not among {list(ROLES)}")
    if not served_by and (roles or "served" in values):
        raise ValueError(
            f"{name} needs `served NAME`: NAME is the file in broker/api that has its handler")
    return Schema(
        name, kind, key, versions, flexible_from, listeners, topic, served_by, roles
    )


def read_first_lines(file: TextIO) -> Schema:
    """Like `parse_first_line`, from an open file; includes the second line of an API."""
    first, second = file.readline(), file.readline()
    return parse_first_line(first + second if second.startswith("  ") else first)


@cache
def api_schemas() -> dict[int, Schema]:
    """The first lines of each API's schema, by API key and in the order of the keys."""
    found: dict[int, Schema] = {}
    for path in sorted(SCHEMA_FOLDER.glob("*.txt")):
        try:
            with path.open(encoding="ascii") as file:
                schema = read_first_lines(file)
            if schema.key is None or schema.name != path.stem:
                raise ValueError(f"the first line has to begin with `{path.stem}   key N`")
            if schema.key in found:
                raise ValueError(f"key {schema.key} is already used by {found[schema.key].name}")
        except (ValueError, IndexError) as error:
            raise SchemaError(f"{path.name}: {error}") from error
        found[schema.key] = schema
    return dict(sorted(found.items()))


def version_marks(
    values: dict[str, list[str]], versions: range, flexible_from: int | None
) -> tuple[range, int | None]:
    """`versions` and `flexible` of the first line or of a section's line."""
    if "versions" in values:
        versions = parse_versions(values["versions"][0], range(1 << 15))
    if "flexible" in values:
        flexible = parse_versions(values["flexible"][0], versions)
        flexible_from = flexible.start if flexible else None
    return versions, flexible_from


def parse_schema(text: str, file_name: str) -> Schema:
    """The whole tree of a schema text; SchemaError gives file and line of a mistake."""
    lines = Lines(text)
    try:
        words = lines.take()
        if lines.depth == 1:
            words += lines.take()
        schema = parse_first_line(" ".join(words))
        for kind in SECTIONS[schema.kind]:
            section = parse_section_line(kind, lines.take(), schema)
            schema.sections[kind] = section
            section.fields = parse_fields(lines, 1, section.versions)
            while lines.depth == 1:
                name = parse_shared_line(lines.take())
                section.shared[name] = parse_fields(lines, 2, section.versions)
            check_types(section)
        if lines.depth >= 0:
            raise ValueError(
                f"{lines.take()[0]!r} follows the end of the message, or is indented too far"
            )
    except (ValueError, KeyError, IndexError) as error:
        raise SchemaError(f"{file_name}, line {lines.number}: {error}") from error
    return schema


class Lines:
    """The significant lines of a schema text, in order, without comments and empty lines."""

    def __init__(self, text: str) -> None:
        self.number = 0
        """The number of the line taken last."""
        self.depth: int
        """Indentation of the next line, in steps of two spaces; -1 after the last line."""
        self._numbered = enumerate(text.split("\n"), 1)
        self._find_next()

    def _find_next(self) -> None:
        self.depth = -1
        for number, line in self._numbered:
            words = line.partition("#")[0].split()
            if words:
                self._next_number, self._words = number, words
                self.depth, odd = divmod(len(line) - len(line.lstrip(" ")), 2)
                if odd:
                    self.depth = DEPTH_MAX + 1
                return

    def opens_shared_struct(self) -> bool:
        """Whether the next line is the name of a shared struct."""
        return self._words[0][0].isupper()

    def take(self) -> list[str]:
        """The words of the next line."""
        if self.depth < 0:
            raise ValueError("the file ends too early")
        self.number = self._next_number
        if self.depth > DEPTH_MAX:
            raise ValueError(f"indent by two spaces, up to {DEPTH_MAX} levels")
        words = self._words
        self._find_next()
        return words


def parse_section_line(kind: str, words: list[str], schema: Schema) -> Section:
    """Parses a section's line: `request`, or `value   versions 0-4   flexible 4+`."""
    if words[0] != kind:
        raise ValueError(f"the line begins with {words[0]!r}, but the section {kind!r} is expected")
    marks = dict(zip(words[1::2], ([mark] for mark in words[2::2]), strict=True))
    versions, flexible_from = version_marks(marks, schema.versions, schema.flexible_from)
    name = camel_case(schema.name) + ("" if kind == "data" else kind.capitalize())
    return Section(name, kind, versions, flexible_from)


def parse_shared_line(words: list[str]) -> str:
    """The name of a shared struct, alone on its line."""
    if len(words) != 1 or not words[0][0].isupper():
        raise ValueError(
            f"the line is {' '.join(words)!r}, but a field or a shared struct is expected")
    return words[0]


def parse_fields(lines: Lines, depth: int, within: range) -> list[Field]:
    """The fields at one depth with their nested fields, up to the first line that is not a
    field."""
    fields: list[Field] = []
    while lines.depth == depth and not lines.opens_shared_struct():
        field = parse_field(lines.take(), within)
        if any(field.name == other.name for other in fields):
            raise ValueError(f"field {field.name} appears twice in one struct")
        if field.type == "struct":
            field.fields = parse_fields(lines, depth + 1, field.versions)
            if not field.fields:
                raise ValueError(f"struct {field.name} has no fields")
        fields.append(field)
    return fields


def parse_field(words: list[str], within: range) -> Field:
    """One line of a field, without the lines nested in it."""
    name, *marks = words
    kind, array, nullable_mark = "struct", name.endswith(("[]", "[]?")), name.endswith("?")
    if array:
        name = name.removesuffix("?").removesuffix("[]")
    elif not marks or not marks[0][0].isalpha():
        raise ValueError(f"field {name} needs a type")
    else:
        kind = marks.pop(0)
        nullable_mark = kind.endswith("?")
        kind = kind.removesuffix("?")
        array = kind.endswith("[]")
        kind = kind.removesuffix("[]")
    if not name.replace("_", "").isalnum() or not name.islower():
        raise ValueError(f"{name!r} is not a valid field name")
    versions = within
    if marks and marks[0][0].isdigit():
        versions = parse_versions(marks.pop(0), within)
    field = Field(name, kind, array, versions, versions if nullable_mark else range(0))
    default = None
    for mark in marks:
        if mark.startswith("?"):
            field.nullable = parse_versions(mark[1:], versions)
        elif mark.startswith("="):
            default = mark[1:]
        elif mark.startswith("@"):
            field.tag = int(mark[1:])
        elif mark == "~":
            field.ignorable = True
        else:
            raise ValueError(f"{mark!r} is not a valid mark of field {name}")
    field.default = parse_default(default, field)
    return field


def parse_default(text: str | None, field: Field) -> object:
    """The value of `=text`, or the type's default if `text` is None."""
    if text == "null":
        if not field.nullable:
            raise ValueError(f"field {field.name} has default null but is not nullable")
        return None
    if field.type == "records" and field.nullable and text is None:
        return None
    if field.array or field.is_struct:
        if text is not None:
            raise ValueError(f"field {field.name} may have only the default null")
        return [] if field.array else EMPTY
    if field.type == "bool":
        return {"true": True, "false": False}[text or "false"]
    if field.type == "string":
        return text or ""
    if field.type in ("bytes", "records", "uuid"):
        if text is not None:
            raise ValueError(f"field {field.name} may have only the default null")
        return bytes(16) if field.type == "uuid" else b""
    return float(text or 0) if field.type == "float64" else int(text or 0)


def check_types(section: Section) -> None:
    """Checks three rules: every type is a primitive or a struct of this section; only fields of
    flexible versions have tags; no shared struct contains itself."""

    def check(fields: list[Field]) -> None:
        for field in fields:
            if field.is_struct and field.type != "struct" and field.type not in section.shared:
                raise ValueError(f"field {field.name} has the unknown type {field.type}")
            flexible = section.flexible_from
            if field.tag is not None and (flexible is None or field.versions.start < flexible):
                raise ValueError(f"field {field.name} is tagged in versions that are not flexible")
            check(field.fields)

    check(section.fields)
    names = list(section.shared)
    for place, (name, fields) in enumerate(section.shared.items()):
        check(fields)
        # A struct may use only structs declared above it, so that a struct cannot contain itself.
        for later in names[place:]:
            if any(field.type == later for field in walk(fields)):
                raise ValueError(
                    f"shared struct {name} uses {later}, but the file does not declare {later}"
                    f" before {name}")


def walk(fields: list[Field]) -> Iterator[Field]:
    """All fields of a tree, each before its nested fields."""
    for field in fields:
        yield field
        yield from walk(field.fields)


def load_schema(name: str) -> Schema:
    """The schema of a file below `schema/`, such as `metadata` or `records/offset_commit`."""
    path = SCHEMA_FOLDER / f"{name}.txt"
    return parse_schema(path.read_text(encoding="ascii"), path.name)
