"""Unknown columns in a pipeline's options are refused. Nothing that Spark would accept is
refused."""

from __future__ import annotations

import pytest

from ottla.spark_interop.errors import PipelineError
from ottla.spark_interop.pipelines.columns import (
    check_columns,
    check_expressions,
    columns_of,
    type_in,
)
from ottla.spark_interop.topics import OWN
from ottla.spark_interop.value_format import Format

SCHEMA = (
    "carrier STRING, dep_delay INT COMMENT 'minutes, or null', `odd name`: struct<a:int,"
    "b:array<decimal(10,2)>>, time_hour TIMESTAMP NOT NULL"
)
COLUMNS = ["carrier", "dep_delay", "odd name", "time_hour"]
AVRO = '{"type": "record", "name": "x", "fields": [{"name": "a", "type": "int"}]}'


@pytest.mark.parametrize(("given", "names"), [
    (Format("json", SCHEMA), COLUMNS),
    (Format("json", '{"type": "struct", "fields": [{"name": "a"}, {"name": "b"}]}'), ["a", "b"]),
    (Format("avro", AVRO), ["a"]),
    (Format("raw"), ["value"]),
])
def test_the_columns_of_a_schema_are_known_without_spark(given: Format, names: list[str]) -> None:
    assert columns_of(given) == [*names, *OWN]


def test_the_type_of_a_column_is_known_if_the_schema_is_ddl() -> None:
    given = Format("json", SCHEMA)
    assert [type_in(given, name) for name in ("Carrier", "`odd name`", "time_hour", "no")] == [
        "string", "struct", "timestamp", None]
    assert type_in(Format("avro", AVRO), "a") is None


@pytest.mark.parametrize("given", [
    Format("json", "struct<a:int>"), Format("json", "a"), Format("avro", '"string"'),
    Format("avro", "{"), Format("protobuf", "message X {}"), Format("avro", schemas="schemas"),
])
def test_columns_that_are_not_known_here_are_left_to_spark(given: Format) -> None:
    assert columns_of(given) is None


@pytest.mark.parametrize("sql", [
    "count(*)", "sum(CASE WHEN dep_delay > 1.5e3 THEN 1 ELSE 0 END)", "max(DEP_DELAY)",
    "count(distinct `odd name`.a)", "sum(`odd name`.`b`[0])", "sum(dep_delay)::double",
    "count_if(carrier = 'it''s' and time_hour > DATE '2013-01-01')", "max(x'1F')",
    "percentile_cont(0.5) within group (order by dep_delay)",
    "sum(dep_delay) filter (where _partition = 0)", "avg(cast(dep_delay as decimal(10, 2)))",
    "date_trunc('DAY', max(_timestamp)) + interval 1 day", "extract(dow from max(time_hour))",
    "approx_percentile(dep_delay, array(0.5, 0.9))", "collect_list(named_struct('a', carrier))",
    "transform(collect_list(dep_delay), each -> each + 1)", "mask(carrier, upperChar => 'Q')",
])
def test_an_expression_that_spark_takes_is_not_refused(sql: str) -> None:
    check_expressions([*COLUMNS, *OWN], {"n": sql}, "aggregates")


def test_a_column_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(PipelineError) as refused:
        check_expressions([*COLUMNS, *OWN], {"n": "sum(nonsense)"}, "aggregates")
    assert str(refused.value) == (
        "`aggregates`, n = sum(nonsense): there is no column nonsense; the columns are carrier,"
        " dep_delay, odd name, time_hour")
    check_columns(COLUMNS, ["carrier", "`odd name`.a", "odd name"], "by")
