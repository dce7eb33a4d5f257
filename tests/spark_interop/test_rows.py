"""Rows that pipelines handle in Python have timestamps in UTC, whatever the machine's zone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.spark_interop.pipelines.slice import in_utc


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def kind(name: str, **more: Any) -> Any:
    """A substitute for a data type of pyspark."""
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
