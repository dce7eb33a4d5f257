"""Checks, before a JVM starts, that the columns in a pipeline's options are in its schema.

Only Spark knows all of SQL. So a name is refused only if it is neither a column nor an SQL word. An
unknown type or function is refused only if its name resembles a known name. Spark checks the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any

from ottla.spark_interop.errors import WrongColumn
from ottla.spark_interop.topics import OWN
from ottla.spark_interop.value_format import Format

TYPE_NAMES = """
array bigint binary boolean byte char date dec decimal double float int integer interval long map
numeric real short smallint string struct timestamp timestamp_ltz timestamp_ntz tinyint varchar
variant void
"""
TYPES = frozenset(TYPE_NAMES.split())
OTHER_WORDS = """
all and any as asc at between both by case chr collate collations current current_date current_time
current_timestamp current_user day dayofweek dayofweek_iso dayofyear days desc distinct div dow
dow_iso doy else end escape exists extract false filter first following for from group hour hours if
ignore ilike in is last leading len like localtimestamp microsecond microseconds millisecond
milliseconds minute minutes mod month months nanosecond nanoseconds not null nulls of or order over
partition percent percentile_cont percentile_disc placing preceding quarter random range regexp
respect rlike row rows schema_of_avro second seconds session_user similar some sounds then time to
trailing true try_cast unbounded user using variant_explode_outer week weeks when where within year
yearofweek years zone
"""
WORDS = TYPES | frozenset(OTHER_WORDS.split())
"""Words in an SQL expression that are not columns, and SQL functions that are missing in
pyspark.sql.functions."""
TOKEN = re.compile(
    r"""[rRxX]?'(?:\\.|[^'\\])*'|[rR]?"(?:\\.|[^"\\])*\""""  # texts
    r"|`(?:``|[^`])+`|\d\w*|\.\s*(?:\w+|`[^`]+`)"      # a quoted name; a number; a struct's field
    r"|[^\W\d]\w*(?:\s*(?:\(|=>))?"      # a column; "name(" of a function; "name =>" of an argument
)
FIELD = re.compile(r"\s*(`[^`]+`|\w+)(?:\s*:\s*|\s+)(\w+)")
"""The name and the type of a field of a DDL."""
NEAR = 0.75
"""An error suggests a known name if its similarity to the wrong name is at least this (0 to 1)."""


def columns_of(given: Format) -> list[str] | None:
    """The names of a format's columns, followed by the columns that every topic has; None if the
    format's columns are unknown. Raises WrongColumn for a misspelt type."""
    if given.name in ("raw", "text"):
        return ["value", *OWN]
    text = given.text.strip() if isinstance(given.schema, str) else ""
    found: list[str] | None = None
    if text.startswith("{"):
        found = _names_of_json(text)
    elif text and given.name == "json":
        found = [_field(part) for part in parts(text)]
    return None if found is None or "" in found else [*found, *OWN]


def type_in(given: Format, name: str) -> str | None:
    """The type of a column, such as `string`, if the schema is written as DDL; None for another
    schema, and for an unknown column."""
    if given.name != "json" or not isinstance(given.schema, str) or given.text.startswith("{"):
        return None
    for part in parts(given.text):
        found = FIELD.match(part)
        if found is not None and found[1].strip("`").lower() == name.strip("`").lower():
            return found[2].lower()
    return None


def check_columns(known: list[str], names: Iterable[str], option: str, where: str = "") -> None:
    """Raises WrongColumn for the first name in an option that is not a column. The error's text
    lists the columns. `where` is the part of the option's value that has the names."""
    lower = {name.lower(): name for name in known}
    for name in names:
        whole = name.strip("`").lower()
        if whole not in lower and whole.partition(".")[0].strip("`") not in lower:
            near = get_close_matches(name.lower(), lower, 1, NEAR)
            hint = f"; did you mean {lower[near[0]]}?" if near else ""
            there = ", ".join(each for each in known if each not in OWN)
            raise WrongColumn(
                f"`{option}`{where}: there is no column {name}; the columns are {there}{hint}",
                option)


def check_expressions(known: list[str], expressions: Mapping[str, str], option: str) -> None:
    """Raises WrongColumn for a column that SQL expressions use but `known` lacks, and for a
    function whose name looks misspelt."""
    for name, sql in expressions.items():
        where = f", {name} = {sql}"
        columns, functions = _named(sql)
        if "->" not in sql:             # a lambda has its own names
            check_columns(known, columns, option, where)
        for function in functions:
            _check_function(function, option, where)


def _named(sql: str) -> tuple[list[str], list[str]]:
    """The columns and the functions that an expression uses."""
    columns, functions = [], []
    for token in TOKEN.findall(sql):
        if token.endswith("("):
            functions.append(token[:-1].strip().lower())
        elif token[0] == "`":
            columns.append(token.strip("`"))
        elif token.isidentifier() and token.lower() not in WORDS:
            columns.append(token)
    return columns, functions


def _check_function(name: str, option: str, where: str) -> None:
    if name in WORDS or find_spec("pyspark") is None:
        return
    from pyspark.sql import functions

    known = dir(functions)
    if name in map(str.lower, known):
        return
    if near := get_close_matches(name, filter(str.islower, known), 1, NEAR):
        raise WrongColumn(
            f"`{option}`{where}: there is no function {name}; did you mean {near[0]}?", option)


def _names_of_json(text: str) -> list[str] | None:
    """The field names of a schema in JSON, Spark's or Avro's; None if they cannot be read."""
    try:
        fields = json.loads(text).get("fields")
    except ValueError:
        return None                     # Spark reports the error later
    if not isinstance(fields, list):
        return None
    names: list[Any] = [each.get("name") for each in fields if isinstance(each, dict)]
    return names if all(isinstance(name, str) for name in names) else None


def parts(text: str) -> Iterator[str]:
    """The fields of a DDL: the parts between commas outside brackets and quotes."""
    begin = depth = 0
    for token in re.finditer(r"""'(?:\\.|[^'\\])*'|"[^"]*"|`[^`]*`|[<>(),]""", text):
        if token[0] in ("<", "("):
            depth += 1
        elif token[0] in (">", ")"):
            depth -= 1
        elif token[0] == "," and depth == 0:
            yield text[begin : token.start()]
            begin = token.end()
    yield text[begin:]


def _field(part: str) -> str:
    """The name of a field of a DDL, "" if it cannot be parsed. Raises WrongColumn for a wrong
    type."""
    found = FIELD.match(part)
    if found is None:
        return ""
    type_ = found[2].lower()
    near = get_close_matches(type_, TYPES, 1, NEAR)
    if type_ not in TYPES and near:
        raise WrongColumn(
            f"the schema's column {found[1]}: there is no type {found[2]}; did you mean"
            f" {near[0].upper()}?", "schema"
        )
    return found[1].strip("`")
