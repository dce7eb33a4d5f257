"""Rows that pipelines handle in Python keep their times."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.spark_interop.pipelines import dead_letter
from ottla.spark_interop.pipelines.slice import in_utc


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def kind(name: str, **more: Any) -> Any:
    """A type as pyspark has it."""
    return SimpleNamespace(typeName=lambda: name, **more)


def struct(**fields: Any) -> Any:
    named = [SimpleNamespace(name=name, dataType=of) for name, of in fields.items()]
    return kind("struct", fields=named)


@pytest.mark.usefixtures("in_new_york")
def test_a_slice_has_utc_times_on_any_machine() -> None:
    stamp = kind("timestamp")
    row = struct(
        at=stamp, local=kind("timestamp_ntz"), none=stamp, text=kind("string"),
        many=kind("array", elementType=struct(at=stamp)), named=kind("map", valueType=stamp),
    )  # fmt: skip
    seconds = [1_370_059_200, 1_383_456_600, 1_383_460_200]     # the last two are both 01:30 there
    times = [datetime.fromtimestamp(each) for each in seconds]
    utc = [datetime(2013, 6, 1, 4), datetime(2013, 11, 3, 5, 30), datetime(2013, 11, 3, 6, 30)]
    assert times[1] == times[2] == datetime(2013, 11, 3, 1, 30)
    given = {"at": times[0], "local": times[0], "none": None, "text": "x",
             "many": [{"at": times[1]}, None], "named": {"k": times[2]}}  # fmt: skip
    assert in_utc(given, row) == {
        **given, "at": utc[0], "many": [{"at": utc[1]}, None], "named": {"k": utc[2]}
    }


def test_a_function_gets_records_of_any_year() -> None:
    pa = pytest.importorskip("pyarrow")
    year_12000 = pa.array([316_000_000_000_000_000] * 3, pa.timestamp("us", "UTC"))
    numbers = pa.array(range(3))
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"k"] * 3), numbers, numbers, year_12000, pa.nulls(3),
         pa.array([b"2", b"x", b"bad"]), pa.array([None, None, "before"])],
        names=dead_letter.OWN,
    )  # fmt: skip

    def double(_: bytes | None, value: bytes | None) -> bytes:
        return b"%d" % (2 * int(value or b""))

    [judged] = dead_letter.judged_batches(iter([batch]), double)
    assert judged.column("_timestamp") == year_12000
    assert judged.column("_value").to_pylist() == [b"4", b"x", b"bad"]
    assert judged.column("_exception").to_pylist() == [None, "ValueError", None]
    assert judged.column("_error").to_pylist()[::2] == [None, "before"]
