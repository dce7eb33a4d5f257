"""Schema text is parsed into its tree, and invalid text is refused with file and line."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest

from ottla.wire.schema_parser import (
    DEPTH_MAX,
    EMPTY,
    Lines,
    SchemaError,
    api_schemas,
    camel_case,
    format_versions,
    load_schema,
    parse_schema,
    parse_versions,
    read_first_lines,
    singular,
    snake_case,
)

TEXT = """
# A comment.
example   key 7   versions 1-5   flexible 4+   listeners broker controller

request
  names      string[]?  2+    =null
  topics[]                          # the reader's own note
    id       uuid             ~
    name     string     1-3   ?2+ =none
    size     int32      3     =-1
    inside   Shared
  where      struct?    5+    =null @0
    port     uint16

  Shared
    flag     bool             =true

response
"""


def test_a_schema_is_read_as_it_is_written() -> None:
    schema = parse_schema(TEXT, "example.txt")
    assert (schema.name, schema.kind, schema.key) == ("example", "key", 7)
    assert (schema.versions, schema.flexible_from) == (range(1, 6), 4)
    assert schema.listeners == ("broker", "controller")
    request, response = schema.sections["request"], schema.sections["response"]
    assert (request.class_name, response.class_name) == ("ExampleRequest", "ExampleResponse")
    assert response.fields == []
    names, topics, where = request.fields
    assert (names.array, names.versions, names.nullable) == (True, range(2, 6), range(2, 6))
    assert names.default is None
    assert (topics.class_name, topics.default, topics.versions) == ("Topic", [], range(1, 6))
    id_, name, size, inside = topics.fields
    assert (id_.ignorable, id_.default) == (True, bytes(16))
    assert (name.versions, name.nullable, name.default) == (range(1, 4), range(2, 4), "none")
    assert (size.versions, size.default) == (range(3, 4), -1)
    assert (inside.class_name, inside.default is EMPTY) == ("Shared", True)
    assert (where.tag, where.default, where.class_name) == (0, None, "Where")
    assert request.shared["Shared"][0].default is True


def test_a_second_line_says_who_serves_an_api_and_what_sets_it_apart() -> None:
    served = "  served groups   roles audited forwarded\n"
    schema = parse_schema(TEXT.replace("controller\n", "controller\n" + served), "example.txt")
    assert schema.listeners == ("broker", "controller")
    assert (schema.served_by, schema.roles) == ("groups", {"audited", "forwarded"})
    first_lines = "".join(TEXT.splitlines(keepends=True)[2:3]) + served
    assert read_first_lines(StringIO(first_lines + "request\n")).roles == schema.roles
    assert read_first_lines(StringIO(TEXT[TEXT.index("example"):])).roles == set()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("  served groups   roles admired\n", "roles \\['admired'\\] are not among"),
        ("  roles audited\n", "needs `served NAME`"),
        ("  served versions\n", "needs `served NAME`"),      # a keyword of the schema language
    ],
)
def test_a_role_that_means_nothing_is_a_mistake(line: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        parse_schema(TEXT.replace("controller\n", "controller\n" + line), "example.txt")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("second_api   key 1   versions 0", "second_api.txt: key 1 is already used by first_api"),
        ("other_api   key 2   versions 0", "second_api.txt: the first line has to begin with"),
        ("second_api   key 2   versions 0\n  served x   roles admired", "second_api.txt: roles"),
    ],
)
def test_a_first_line_that_is_wrong_is_named_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    (tmp_path / "first_api.txt").write_text("first_api   key 1   versions 0\n")
    (tmp_path / "second_api.txt").write_text(text)
    monkeypatch.setattr("ottla.wire.schema_parser.SCHEMA_FOLDER", tmp_path)
    with pytest.raises(SchemaError, match=reason):
        api_schemas.__wrapped__()


def test_a_record_has_versions_of_its_own_for_key_and_value() -> None:
    schema = load_schema("records/offset_commit")
    assert (schema.kind, schema.key, schema.topic) == ("record", 1, "__consumer_offsets")
    assert (schema.versions, schema.flexible_from) == (range(0), None)
    key, value = schema.sections["key"], schema.sections["value"]
    assert (key.versions, key.flexible_from) == (range(1), None)
    assert (value.versions, value.flexible_from) == (range(5), 4)


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("    size     int32 ", "    size     text ", 10, "size may have only the default null"),
        ("uint16", "", 13, "needs a type"),
        ("uint16", "=null", 13, "needs a type"),
        ("uint16", "5+ =null", 13, "needs a type"),
        ("2+    =null", "0+", 6, "not within 1-5"),
        ("2+    =null", "4-3", 6, "not within"),
        ("?2+ =none", "!", 9, "'!' is not a valid mark"),
        ("=-1", "=minus", 10, "minus"),
        ("=true", "=yes", 16, "yes"),
        ("    port     uint16", "", 12, "struct where has no fields"),
        ("    id ", "      id ", 7, "struct topics has no fields"),
        ("    id ", "   id ", 7, "struct topics has no fields"),
        ("    size ", "    name ", 10, "name appears twice"),
        ("5+    =null @0", "3+ =null @0", 16, "not flexible"),
        ("  where      struct?    5+", "  where      struct    5+", 12, "not nullable"),
        ("response", "answer", 18, "'answer'"),
        ("response", "response\n  x int8\nmore", 20, "follows the end of the message"),
        ("key 7", "", 3, "key N"),
        ("example   key", "example   tree 4 key", 3, "'tree'"),
        ("inside   Shared", "inside   Other", 16, "unknown type Other"),
        ("  Shared\n    flag", "  shared\n    flag", 15, "shared needs a type"),
        ("response\n", "", 16, "ends too early"),
        ("flag     bool             =true", "flag     Shared", 16, "does not declare"),
        ("names ", "Names! ", 6, "Names!"),
        ("=-1", "@0.5", 10, "0.5"),
    ],
)
def test_nonsense_is_refused_with_file_and_line(old: str, new: str, line: int, reason: str) -> None:
    assert old in TEXT
    with pytest.raises(SchemaError) as caught:
        parse_schema(TEXT.replace(old, new, 1), "example.txt")
    assert str(caught.value).startswith("example.txt, line ")
    assert reason in str(caught.value)
    assert f"line {line}:" in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n# A comment.\n"])
def test_a_file_without_lines_is_refused(text: str) -> None:
    with pytest.raises(SchemaError, match=r"example\.txt, line 0: the file ends"):
        parse_schema(text, "example.txt")


def test_after_the_last_line_there_is_no_depth() -> None:
    for text in ("", "\n# A comment.\n"):
        assert Lines(text).depth == -1
    lines = Lines("a\n  b\n\n")
    assert (lines.depth, lines.take(), lines.depth) == (0, ["a"], 1)
    assert (lines.take(), lines.depth, lines.number) == (["b"], -1, 2)


def test_names_change_their_form_both_ways() -> None:
    for name in ("list_offsets", "add_partitions_to_txn", "sasl_handshake"):
        assert snake_case(camel_case(name)) == name
    plurals = ["topics", "entries", "batches", "statuses", "status", "addresses", "data", "axis"]
    assert [singular(name) for name in plurals] == [
        "topic", "entry", "batch", "status", "status", "address", "data", "axis",
    ]
    ranges = [range(0), range(3, 4), range(3, 6)]
    assert [format_versions(versions) for versions in ranges] == ["none", "3", "3-5"]


@pytest.mark.parametrize(("text", "expected"), [
    ("none", range(0)), ("3", range(3, 4)), ("1", range(1, 2)), ("5", range(5, 6)),
    ("2-4", range(2, 5)), ("1-5", range(1, 6)), ("3+", range(3, 6)), ("5+", range(5, 6)),
])
def test_versions_are_a_number_a_range_or_all_that_follow(text: str, expected: range) -> None:
    assert parse_versions(text, range(1, 6)) == expected


@pytest.mark.parametrize("text", ["0", "6", "0-3", "3-6", "4-3", "6+", "0+", "", "x", "-"])
def test_versions_outside_the_enclosing_ones_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_versions(text, range(1, 6))


def test_each_type_has_its_default() -> None:
    schema = parse_schema("""example   data   versions 0-1   flexible none
data
  a   bool
  b   int32
  c   float64   =0.5
  d   string    =x
  e   string
  f   bytes
  g   uuid
  h   records
  i   records?
  j   int32[]
  k   float64
  l   int64     =-7
  m   bytes?    =null
  n   Other
  o   Other[]
  p   string?   1   =null
  Other
    x int8
""", "example.txt")
    found = {field.name: field.default for field in schema.sections["data"].fields}
    assert found == {
        "a": False, "b": 0, "c": 0.5, "d": "x", "e": "", "f": b"", "g": bytes(16), "h": b"",
        "i": None, "j": [], "k": 0.0, "l": -7, "m": None, "n": EMPTY, "o": [], "p": None,
    }
    assert schema.flexible_from is None and schema.sections["data"].class_name == "Example"
    assert schema.sections["data"].fields[-1].nullable == range(1, 2)


@pytest.mark.parametrize("default", ["=x", "=0"])
@pytest.mark.parametrize("kind", ["bytes", "uuid", "records", "int32[]", "Other", "Other[]"])
def test_only_plain_values_have_a_default_of_their_own(kind: str, default: str) -> None:
    text = f"example data versions 0\ndata\n  a {kind} {default}\n  Other\n    x int8\n"
    with pytest.raises(SchemaError, match="line 3: field a may have only the default null"):
        parse_schema(text, "example.txt")


@pytest.mark.parametrize("levels", [DEPTH_MAX, DEPTH_MAX + 1])
def test_structs_are_nested_so_deep_and_no_deeper(levels: int) -> None:
    lines = ["example data versions 0", "data"]
    lines += ["  " * depth + f"s{depth}[]" for depth in range(1, levels)]
    lines.append("  " * levels + "last int8")
    if levels <= DEPTH_MAX:
        parse_schema("\n".join(lines), "example.txt")
        return
    with pytest.raises(SchemaError, match=f"up to {DEPTH_MAX} levels|has no fields"):
        parse_schema("\n".join(lines), "example.txt")


def test_a_shared_struct_may_use_those_above_it() -> None:
    text = "example data versions 0\ndata\n  a B\n  A\n    x int8\n  B\n    y A[]\n    z A\n"
    schema = parse_schema(text, "example.txt")
    assert [field.type for field in schema.sections["data"].shared["B"]] == ["A", "A"]
    for wrong in ("    x B", "    x A", "    x int8\n    s[]\n      y B"):
        with pytest.raises(SchemaError, match="does not declare"):
            parse_schema(text.replace("    x int8", wrong, 1), "example.txt")
