"""JSON values as typed columns. A value either is an object of the schema, or gets an error text.

By itself, Spark's from_json ignores text after the first value, turns numbers that are too large
into infinity, accepts NaN without quotes, and adds today's date to a time of day.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial, reduce
from operator import or_
from typing import Any

from ottla.spark_interop.value_format import DECODED, PROBLEM

CORRUPT = "__corrupt"
OPTIONS = {"columnNameOfCorruptRecord": CORRUPT, "allowSingleQuotes": "false"}
NUMBERS, TIMES = ("float", "double"), ("timestamp", "timestamp_ntz")
TIME_OF_DAY = r"^[\x00-\x20]*(T|\d{1,2}:)"
DOUBTFUL = r'[:,\[]\s*[-+]?(NaN|I)'
DOUBTFUL_TIME = r'"\s*\d{0,2}[T:\\]'
"""DOUBTFUL finds every text with NaN or Infinity instead of a number. DOUBTFUL_TIME finds every
text with a time that lacks its date, even if characters are escaped. Both also match some harmless
texts."""


def decode(frame: Any, value: Any, schema: Any) -> Any:
    """The frame with the columns DECODED and PROBLEM, as `formats.decode` describes them."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructField

    nullable = [StructField(x.name, x.dataType, True) for x in schema.fields]
    text, whole = value.cast("string"), _Whole()
    frame = frame.withColumn(DECODED, whole.read(text, nullable, OPTIONS, CORRUPT))
    inside = f.col(DECODED)
    item = f.get(inside[whole.items], f.lit(0))
    message = f"the value is not a JSON object that matches {schema.simpleString()}"[:300]
    good = inside[CORRUPT].isNull() & item.isNotNull() & whole.ended(inside)
    problem = (
        f.when(value.isNull(), f.lit(None).cast(StringType()))
        .when(~f.is_valid_utf8(text), "the value is not UTF-8")
        .when(~f.coalesce(good, f.lit(False)), message)
    )
    what = "a number is too large or not JSON, or a time has no date"
    problem = problem.when(_misread(item, text, nullable, whole), f"{message}: {what}"[:300])
    for field in schema.fields:
        if not field.nullable:
            absent = f"the field {field.name} is null or missing, and the schema says NOT NULL"
            problem = problem.when(item[field.name].isNull(), absent)
    sound = f.col(PROBLEM).isNull() & value.isNotNull()
    return frame.withColumn(PROBLEM, problem).withColumn(
        DECODED, f.when(sound, item.dropFields(whole.end))
    )


class _Whole:
    """Reads a text as the first of two items of an array. If the second item is found,
    the text ended after its value.

    The names of the array and of the last item's field are random, so no text contains them.
    """

    def __init__(self) -> None:
        self.items, self.end = uuid.uuid4().hex, uuid.uuid4().hex

    def read(self, text: Any, fields: list[Any], options: dict[str, str], *more: str) -> Any:
        """Parses the text into a struct: the array, and text fields with the names in `more`."""
        from pyspark.sql import functions as f
        from pyspark.sql.types import ArrayType, StringType, StructField, StructType

        items = ArrayType(StructType([*fields, StructField(self.end, StringType())]))
        columns = [StructField(name, StringType()) for name in more]
        array = f.concat(
            f.lit(f'{{"{self.items}":['), text, f.lit(f',{{"{self.end}":"{self.end}"}}]}}')
        )
        return f.from_json(array, StructType([StructField(self.items, items), *columns]), options)

    def ended(self, struct: Any) -> Any:
        """Whether the text was exactly one item."""
        from pyspark.sql import functions as f

        last = f.get(struct[self.items], f.lit(1))
        return (f.size(struct[self.items]) == 2) & last[self.end].eqNullSafe(f.lit(self.end))


def _misread(item: Any, text: Any, fields: list[Any], whole: _Whole) -> Any:
    """Whether Spark has accepted a number that is too large or not JSON, or a time without a date.
    A cheap check finds the doubtful texts, which are parsed again, strictly."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    schema = t.StructType(fields)
    infinite = partial(_any, kind=schema, names=NUMBERS, test=_is_infinite)
    time = partial(_any, kind=schema, names=TIMES, test=lambda text: text.rlike(TIME_OF_DAY))
    doubt = _either([
        text.rlike(DOUBTFUL),
        infinite(item),
        None if time(item) is None else text.rlike(DOUBTFUL_TIME),
    ])  # fmt: skip

    def wrong(struct: Any) -> Any:
        # Parsed strictly, "Infinity" becomes null, 1e999 becomes infinite, and NaN ends parsing.
        again = f.get(struct[whole.items], f.lit(0))
        cut = ~f.coalesce(whole.ended(struct), f.lit(False))
        return _either([cut, infinite(again), time(again)])

    strict = OPTIONS | {"allowNonNumericNumbers": "false"}
    second = whole.read(text, _times_as_text(schema).fields, strict)
    return doubt & f.exists(f.array(second), wrong)


def _is_infinite(number: Any) -> Any:
    from pyspark.sql import functions as f

    return f.abs(number) == f.lit(float("inf"))


def _either(conditions: list[Any]) -> Any:
    """Whether one of the conditions holds; None without conditions."""
    some = [each for each in conditions if each is not None]
    return reduce(or_, some) if some else None


def _times_as_text(kind: Any) -> Any:
    """The type with text in place of times."""
    from pyspark.sql import types as t

    if isinstance(kind, t.TimestampType | t.TimestampNTZType):
        return t.StringType()
    if isinstance(kind, t.StructType):
        fields = [(x.name, _times_as_text(x.dataType)) for x in kind.fields]
        return t.StructType([t.StructField(name, inner) for name, inner in fields])
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(_times_as_text(kind.elementType))
    if isinstance(kind, t.MapType):
        return t.MapType(kind.keyType, _times_as_text(kind.valueType))
    return kind


def _any(column: Any, kind: Any, names: tuple[str, ...], test: Callable[[Any], Any]) -> Any:
    """Whether the column contains, at any depth, a value of a type with one of these names that
    passes the test; None if the column has no such type."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    if kind.typeName() in names:
        found = test(column)
    elif isinstance(kind, t.StructType):
        found = _either([_any(column[x.name], x.dataType, names, test) for x in kind.fields])
    elif isinstance(kind, t.ArrayType | t.MapType):
        inner = kind.elementType if isinstance(kind, t.ArrayType) else kind.valueType
        if _any(f.lit(None), inner, names, test) is None:
            return None
        items = column if isinstance(kind, t.ArrayType) else f.map_values(column)
        found = f.exists(items, lambda item: _any(item, inner, names, test))
    else:
        return None
    return None if found is None else f.coalesce(found, f.lit(False))
