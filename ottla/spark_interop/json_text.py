"""What Spark's from_json accepts although it is not JSON of the schema.

It ignores what follows the first value, reads numbers that are too large as infinite, and takes
the date of today for a time of day alone. A second look at the text finds these.
"""

from __future__ import annotations

import uuid
from typing import Any

END = "__end"
TIME_OF_DAY = r"^\s*(T|\d{1,2}:)"


def judge(problem: Any, text: Any, schema: Any, message: str) -> Any:
    """The column `problem` with more conditions."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, StringType, StructField, StructType

    looked_at = _looked_at(schema)
    fields = looked_at.fields if looked_at is not None else []
    items = ArrayType(StructType([*fields, StructField(END, StringType())]))
    # The value has to be one whole item of an array. Its text cannot contain this end.
    end = uuid.uuid4().hex
    array = f.concat(f.lit("["), text, f.lit(f',{{"{END}":"{end}"}}]'))
    options = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
    read = f.from_json(array, items, options)
    whole = (f.size(read) == 2) & read[1][END].eqNullSafe(f.lit(end))
    problem = problem.when(~f.coalesce(whole, f.lit(False)), message)
    wrong = _wrong(read[0], schema)
    if wrong is not None:
        what = "a number is too large, or a time has no date"
        problem = problem.when(wrong, f"{message}: {what}"[:300])
    return problem


def _looked_at(kind: Any) -> Any:
    """The part of a type that has fractions and timestamps, as text; None if there are none."""
    from pyspark.sql import types as t

    if isinstance(kind, t.FloatType | t.DoubleType | t.TimestampType | t.TimestampNTZType):
        return t.StringType()
    if isinstance(kind, t.StructType):
        pairs = [(x.name, _looked_at(x.dataType)) for x in kind.fields]
        fields = [t.StructField(name, inner) for name, inner in pairs if inner is not None]
        return t.StructType(fields) if fields else None
    if isinstance(kind, t.ArrayType):
        inner = _looked_at(kind.elementType)
        return None if inner is None else t.ArrayType(inner)
    if isinstance(kind, t.MapType):
        inner = _looked_at(kind.valueType)
        return None if inner is None else t.MapType(t.StringType(), inner)
    return None


def _wrong(column: Any, kind: Any) -> Any:
    """Whether one of the texts below the column is wrong; None if there is nothing to look at."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    if _looked_at(kind) is None:
        return None
    if isinstance(kind, t.StructType):
        each = [_wrong(column[x.name], x.dataType) for x in kind.fields
                if _looked_at(x.dataType) is not None]
        return f.array_contains(f.array(*each), True)
    if isinstance(kind, t.ArrayType):
        wrong = f.exists(column, lambda x: _wrong(x, kind.elementType))
    elif isinstance(kind, t.MapType):
        wrong = f.exists(f.map_values(column), lambda x: _wrong(x, kind.valueType))
    elif isinstance(kind, t.FloatType | t.DoubleType):
        # A number that no double holds becomes the text "Infinity" with its quotes, a string none.
        number = f.abs(column.try_cast(kind))
        too_large = column.rlike(r"\d") & (number == f.lit(float("inf")))
        wrong = column.rlike('^"') | f.coalesce(too_large, f.lit(False))
    else:
        wrong = column.rlike(TIME_OF_DAY)
    return f.coalesce(wrong, f.lit(False))
