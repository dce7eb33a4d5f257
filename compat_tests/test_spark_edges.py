"""Pipelines in rare cases: a deleted target of windows, the last windows, large records, values
that are not Avro, mirrors of two clusters into one topic."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from compat_tests.brokers import Broker
from compat_tests.flights import Event, produce
from compat_tests.spark_flights import committed_lines
from compat_tests.waiting import wait_until
from ottla import spark_interop as si
from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import PipelineError
from ottla.spark_interop.pipelines import transactional
from ottla.testing import Broker as SourceBroker


def test_windows_do_not_go_on_in_a_topic_that_was_deleted_or_made_again(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, at = new_topic("counted", 1), broker.bootstrap
    to = new_topic("counts", 1, cleanup_policy="compact")

    def send(first: int, after: int) -> None:       # the timestamps are one second apart
        events = [Event(b"k", b"%d" % n, 10_000 + 1_000 * n) for n in range(first, after)]
        produce(at, topic, "none", events)

    def run(path: str, **more: Any) -> dict[str, Any]:
        return si.windows(spark, at, topic, tmp_path / path, window="10 seconds",
                          watermark="1 second", format="raw", aggregates={"n": "count(*)"}, to=to,
                          **more)  # fmt: skip

    send(0, 40)
    assert run("w")["written"] == 3
    admin = AdminClient({"bootstrap.servers": at})
    admin.delete_topics([to])[to].result(60)
    wait_until(lambda: not Cluster(at).exists(to), "the end of the topic")
    send(40, 60)
    remedy = "use another path and another pipeline name"
    with pytest.raises(PipelineError, match=f"topic {to} was deleted after .*{remedy}"):
        run("w")
    assert not Cluster(at).exists(to)
    assert run("again", name="again")["written"] == 5
    with pytest.raises(PipelineError, match=f"{to} was deleted and created again .*{remedy}"):
        run("w")
    found = [json.loads(value) for *_, value in committed_lines(broker, to)]
    assert [window["n"] for window in found] == [10] * 5
    assert len({window["window_start"] for window in found}) == 5


@pytest.mark.parametrize(("sessions", "in_topic"), [(False, True), (True, False)])
def test_the_last_windows_are_there_once_the_topic_has_ended(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path,
    sessions: bool, in_topic: bool,
) -> None:  # fmt: skip
    topic, at = new_topic("ended", 1), broker.bootstrap
    to = new_topic("last", 2) if in_topic else None
    times = [("a", 1000), ("a", 1003), ("b", 1004), ("a", 1021), ("a", 1022), ("a", 1055),
             ("b", 1057)]  # fmt: skip
    produce(at, topic, "none", [Event(b"k", who.encode(), 1_000 * second) for who, second in times])
    closed = Counter({("a", 1000, 1013, 2): 1, ("b", 1004, 1014, 1): 1, ("a", 1021, 1032, 2): 1}
                     if sessions else
                     {("a", 1000, 1010, 2): 1, ("b", 1000, 1010, 1): 1, ("a", 1020, 1030, 2): 1})
    last = Counter({("a", 1055, 1065, 1): 1, ("b", 1057, 1067, 1): 1} if sessions else
                   {("a", 1050, 1060, 1): 1, ("b", 1050, 1060, 1): 1})  # fmt: skip

    def seconds(text: str) -> float:
        return datetime.fromisoformat(text).timestamp()

    def run(**more: Any) -> Counter[tuple[Any, ...]]:
        si.windows(spark, at, topic, tmp_path / "w", window="10 seconds", watermark="1 second",
                   session_gap=sessions, by=["value"], format="text", to=to,
                   aggregates={"n": "count(*)"}, **more)  # fmt: skip
        if to is not None:
            rows = [json.loads(value) for *_, value in committed_lines(broker, to)]
            return Counter((row["value"], seconds(row["window_start"]), seconds(row["window_end"]),
                            row["n"]) for row in rows)  # fmt: skip
        columns = "value", "unix_seconds(window_start)", "unix_seconds(window_end)", "n"
        return Counter(map(tuple, si.read_windows(spark, tmp_path / "w").selectExpr(*columns)
                           .collect()))  # fmt: skip

    assert run() == closed
    for _ in range(2):
        assert run(final=True) == closed + last


def test_a_record_above_one_megabyte_is_written_if_its_topic_takes_it(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("large-records", 1, max_message_bytes="5000000")
    values = [b"small", os.urandom(4_000_000)]      # compression does not make these bytes fewer
    frame = spark.createDataFrame([(bytearray(value),) for value in values], "value BINARY")
    si.write_topic(frame, broker.bootstrap, topic, format="raw")
    found = [value for *_, value in committed_lines(broker, topic)]
    assert sorted(found, key=len) == values


def test_values_that_are_not_avro_are_dead_letters_and_bad_in_the_report(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """All fields may be null, so a value that is not Avro could pass for a record of nulls."""
    topic, good, dead = (new_topic(name, 1) for name in ("not-avro", "good", "dead"))
    fields = [{"name": name, "type": ["null", "string"], "default": None} for name in "ab"]
    schema = json.dumps({"type": "record", "name": "Pair", "fields": fields})
    values = [b"\xff" * 5, b"", b"\x02\x04U", b"\x00", b"\x00\x00\x00", b"{}"]
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, value, b"k%d" % number, timestamp=1_000 + number)
    assert producer.flush(60) == 0
    given: dict[str, Any] = {"format": "avro", "schema": schema}
    report = si.dead_letter(spark, broker.bootstrap, topic, good, dead, tmp_path / "c", **given)
    assert (report["good"], report["bad"]) == (0, len(values))
    assert committed_lines(broker, good) == []
    letters = si.read_topic(spark, broker.bootstrap, dead).orderBy("_offset").collect()
    assert [bytes(letter.value) for letter in letters] == values
    reason = "the value does not match the Avro schema"
    for letter in letters:
        assert {h.key: bytes(h.value).decode() for h in letter._headers}["ottla.error"] == reason
    quality = si.quality_report(spark, broker.bootstrap, topic, **given)
    assert (quality["records"], quality["bad"]) == (len(values), len(values))
    assert quality["reasons"] == {reason: len(values)}
    nothing = {"nulls": 0, "distinct": 0, "least": None, "most": None}
    assert quality["columns"] == {"a": nothing, "b": nothing}


def test_mirrors_of_two_clusters_into_one_topic_do_not_fence_each_other(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Both mirrors have the same source and target topic, and therefore the same name."""
    topic, expected, real = new_topic("of-two-clusters", 2), Counter[bytes](), transactional.write
    begun, others_done = threading.Event(), threading.Event()
    with SourceBroker() as left, SourceBroker() as right, ThreadPoolExecutor(1) as pool:
        sources = {"left": left.bootstrap_servers, "right": right.bootstrap_servers}
        for source in (left, right):
            source.create_topic(topic, 2, {"retention.ms": "-1"})

        def send(first: int) -> None:
            for name, at in sources.items():
                events = [Event(b"k%d" % n, f"{name} {n}".encode(), 1_000 + n)
                          for n in range(first, first + 20)]  # fmt: skip
                produce(at, topic, "none", events)
                expected.update(event.value for event in events)

        def write(rows: Any, to: transactional.Destination, **how: Any) -> Any:
            """Write one lane of the left mirror, and keep its transaction open until the right
            mirror has ended."""
            assert to.origin is not None
            if to.origin.cluster.bootstrap == sources["left"] and not begun.is_set():
                lane = transactional.Lane(to, transactional.begin(to), 0)
                for row in rows.where("lane = 0").sort("position").toArrow().to_pylist():
                    lane.add(row)
                begun.set()
                assert others_done.wait(120)
                lane.finish()
                assert lane.written
            return real(rows, to, **how)

        def run(name: str, place: str = "first") -> int:
            report = si.mirror(spark, sources[name], topic, broker.bootstrap,
                               tmp_path / f"{place}-{name}")  # fmt: skip
            return int(report["written"] + report["already_there"])

        monkeypatch.setattr(transactional, "write", write)
        send(0)
        one = pool.submit(run, "left")              # both mirrors run at the same time
        try:
            assert begun.wait(120)
            assert run("right") == 20
        finally:
            others_done.set()
        assert one.result(120) == 20
        send(20)
        # One after the other, and without their checkpoints: each mirror finds its own progress.
        assert [run(name, "second") for name in sources] == [20, 20]
        assert Counter(value for *_, value in committed_lines(broker, topic)) == expected
