"""A broker with two topics, and a start of pipelines that must not reach Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.spark_interop.pipelines import command
from ottla.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as one:
        one.create_topic("six", 6)
        one.create_topic("one", 1)
        yield one


@pytest.fixture
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise AssertionError("a JVM would have started")

    monkeypatch.setattr(command, "_session", refuse)
    monkeypatch.setattr(command, "spark_version", lambda: "4.2.0")      # pyspark is not needed
