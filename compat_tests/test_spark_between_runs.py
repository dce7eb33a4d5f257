"""What pipelines promise when something changes between or during runs: topics are created again,
partitions are added, transactions are aborted, names are used twice, there are two writers, or the
driver is killed in the middle of a batch."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from compat_tests.brokers import Broker
from compat_tests.flights import Event, produce
from compat_tests.spark_flights import AVRO_1, AVRO_2, committed_lines, confluent
from compat_tests.waiting import wait_until
from ottla import spark_interop as si
from ottla.spark_interop.errors import DataLost, PipelineError
from ottla.spark_interop.pipelines import query_reports, query_run
from ottla.spark_interop.pipelines.archive import UTC_SQL
from ottla.spark_interop.pipelines.files import Files
from ottla.spark_interop.pipelines.table import LOCK
from ottla.testing import Broker as TestBroker

pytestmark = pytest.mark.long
CHECKPOINT = "_ottla/checkpoint"


def numbered(first: int, after: int) -> list[Event]:
    return [Event(b"k%d" % n, b'{"n":%d}' % n, 1_000 + n) for n in range(first, after)]


def pipelines(
    spark: SparkSession, at: str, place: Path, topic: str
) -> dict[str, Callable[..., dict[str, Any]]]:
    """A function for every pipeline with a checkpoint; its arguments are a topic and options."""

    def windows(of: str, **more: Any) -> dict[str, Any]:
        return si.windows(spark, at, of, place / "windows", window="1 second", format="raw",
                          aggregates={"records": "count(*)"}, **more)  # fmt: skip

    def dead_letter(of: str, **more: Any) -> dict[str, Any]:
        return si.dead_letter(spark, at, of, f"{topic}-good", f"{topic}-bad", place / "dead",
                              format="json", schema="n INT", **more)  # fmt: skip

    return {
        "archive": lambda of, **more: si.archive(spark, at, of, place / "archive", **more),
        "latest": lambda of, **more: si.latest(spark, at, of, place / "latest", **more),
        "windows": windows,
        "mirror": lambda of, **more: si.mirror(
            spark, at, of, at, place / "mirror", to=f"{topic}-copy", **more),
        "dead_letter": dead_letter,
    }  # fmt: skip


def remake(broker: Broker, topic: str, partitions: int) -> None:
    """Delete a topic, and create another one with the same name."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(60)

    def made() -> bool:
        new = NewTopic(topic, partitions, -1, config={"retention.ms": "-1"})
        try:
            admin.create_topics([new])[topic].result(60)
        except KafkaException:          # it is still being deleted
            return False
        return True

    wait_until(made, "a topic of the same name")


def test_no_pipeline_goes_on_with_records_that_its_progress_does_not_mean(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, other = new_topic("many-pipelines", 1), new_topic("another", 1)
    for name in (topic, other):
        produce(broker.bootstrap, name, "none", numbered(0, 10))
    runs = pipelines(spark, broker.bootstrap, tmp_path, topic)
    counts = {"mirror": "written", "dead_letter": "good"}
    for name, run in runs.items():
        assert run(topic)[counts.get(name, "records")] == 10, name
    for run in runs.values():
        found = f"with topic {topic}, but this run has {other}"
        with pytest.raises(PipelineError, match=found):
            run(other)
    produce(broker.bootstrap, topic, "none", numbered(10, 30))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [deleted] = admin.delete_records([TopicPartition(topic, 0, 20)]).values()
    deleted.result(60)
    for name, run in runs.items():
        with pytest.raises(DataLost, match="--allow-gaps") as lost:
            run(topic)
        assert ("`verify` then shows the gap" in str(lost.value)) == (name == "archive")
    done = {name: run(topic, allow_gaps=True) for name, run in runs.items()}
    assert {name: report[counts.get(name, "records")] for name, report in done.items()} == (
        dict.fromkeys(runs, 10))
    lost = si.verify(spark, tmp_path / "archive", broker.bootstrap)
    assert (lost["ok"], lost["lost"], lost["partitions"]["0"]["gaps"]) == (True, 10, [[10, 20]])
    assert lost["partitions"]["0"]["unreadable_or_gone"] == 0
    for name, target in (("mirror", f"{topic}-copy"), ("dead_letter", f"{topic}-bad")):
        remake(broker, target, 1)           # empty, but the checkpoint says that all was written
        with pytest.raises(PipelineError, match=f"{target} was deleted and created again after"):
            runs[name](topic)
    remake(broker, topic, 1)
    produce(broker.bootstrap, topic, "none", numbered(100, 200))     # more records than before
    for run in runs.values():
        for gaps in (False, True):
            with pytest.raises(PipelineError, match="was deleted and created again"):
                run(topic, allow_gaps=gaps)
    verdict = si.verify(spark, tmp_path / "archive", broker.bootstrap)
    assert not verdict["ok"] and "created again" in verdict["problems"][0]
    # The mirror's checkpoint is lost, too: this run has a new path. The progress that the mirror
    # has recorded in the destination is that of the deleted source topic.
    with pytest.raises(PipelineError, match="from another source"):
        si.mirror(spark, broker.bootstrap, topic, broker.bootstrap, tmp_path / "new",
                  to=f"{topic}-copy")  # fmt: skip


def test_transactions_new_partitions_and_nulls_are_archived_and_replayed_as_they_were(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, copy = new_topic("mixed", 1), new_topic("mixed-copy", 3)
    at, path = broker.bootstrap, tmp_path / "a"
    producer = Producer({"bootstrap.servers": at, "transactional.id": topic, "linger.ms": 5})
    producer.init_transactions(30)

    def send(first: int, count: int, partition: int = 0) -> None:
        for n in range(first, first + count):
            headers = [("one", b"\x00"), ("none", None), ("one", b"")] if n % 3 else None
            producer.produce(topic, None if n % 5 == 2 else b"%d" % n, None if n % 4 else b"key",
                             partition, timestamp=1_000 + n, headers=headers)  # fmt: skip

    for end in (producer.commit_transaction, producer.abort_transaction,
                producer.commit_transaction, producer.abort_transaction):  # fmt: skip
        producer.begin_transaction()
        send(0, 20)
        producer.flush(30)
        end(30)
    producer.begin_transaction()
    send(20, 10)
    producer.flush(30)                  # the transaction is open, so nothing may be read yet
    first = si.archive(spark, at, topic, path, records_per_batch=15)
    assert first["records"] == 40 and first["batches"] > 3
    assert si.verify(spark, path, at)["ok"]
    producer.commit_transaction(30)
    admin = AdminClient({"bootstrap.servers": at})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(60)
    producer = Producer({"bootstrap.servers": at, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    send(30, 10, partition=2)           # partition 1 stays empty
    producer.commit_transaction(30)
    assert si.archive(spark, at, topic, path)["records"] == 20
    verdict = si.verify(spark, path, at)
    assert verdict["ok"], verdict
    assert {p: one["records"] for p, one in verdict["partitions"].items()} == {
        "0": 50, "1": 0, "2": 10}  # fmt: skip
    assert all(file.stat().st_size for file in (path / "data").rglob("*.parquet"))
    assert si.replay(spark, path, at, copy)["written"] == 60
    columns = ["_partition", "_timestamp", "_key", "_value", "_headers"]
    was, now = (
        si.read_topic(spark, at, name).orderBy("_partition", "_offset").select(*columns).collect()
        for name in (topic, copy)
    )
    assert was == now and len(was) == 60
    shutil.rmtree(path / CHECKPOINT)    # as in a copy of the data and the commits
    assert si.replay(spark, path, at, f"{copy}-2", create=True)["written"] == 60
    assert len(admin.list_topics(f"{copy}-2").topics[f"{copy}-2"].partitions) == 3


def test_a_key_whose_tombstone_compaction_removed_leaves_the_latest_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = {"cleanup.policy": "compact", "segment.ms": "1000", "retention.ms": "-1",
              "min.cleanable.dirty.ratio": "0.01", "message.timestamp.type": "LogAppendTime"}
    with TestBroker() as broker:                # its clock can be set forward
        topic, at = broker.create_topic("deleted", 1, config), broker.bootstrap_servers

        def put(**values: str | None) -> None:
            producer = Producer({"bootstrap.servers": at})
            for key, value in values.items():
                producer.produce(topic, value, key)
            assert producer.flush(60) == 0

        put(gone="1", stays="1")
        assert si.latest(spark, at, topic, tmp_path / "t")["keys"] == 2
        put(gone=None, new="1")
        for number, hours in enumerate((1, 30, 30)):
            broker.advance(hours=hours)
            put(**{f"later{number}": "1"})
        there = {bytes(r._key) for r in si.read_topic(spark, at, topic).collect()}
        assert b"gone" not in there and b"stays" in there
        si.latest(spark, at, topic, tmp_path / "t")
        assert {bytes(r.key) for r in si.read_latest(spark, tmp_path / "t").collect()} == there


def test_a_topic_without_records_is_no_trouble(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, at = new_topic("nothing-yet", 2), broker.bootstrap
    for name, run in pipelines(spark, at, tmp_path, topic).items():
        assert not any(run(topic).get(count) for count in ("records", "written", "good")), name
    assert si.verify(spark, tmp_path / "archive", at)["ok"]
    assert si.slice_topic(spark, at, topic, output=tmp_path / "s")["records"] == 0
    assert si.quality_report(spark, at, topic, html=tmp_path / "q.html")["records"] == 0
    with pytest.raises(PipelineError, match="holds no records yet"):
        si.replay(spark, tmp_path / "archive", at, f"{topic}-again", create=True)
    # After every key was deleted, the table has columns, but no rows.
    produce(at, topic, "none", numbered(0, 3))
    producer = Producer({"bootstrap.servers": at, "partitioner": "murmur2_random"})
    for partition in range(2):
        for n in range(3):
            producer.produce(topic, None, b"k%d" % n, partition)
    assert producer.flush(60) == 0
    assert si.latest(spark, at, topic, tmp_path / "latest")["keys"] == 0
    assert si.read_latest(spark, tmp_path / "latest").collect() == []


def test_a_second_writer_is_refused_while_the_first_goes_on(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, at, path = new_topic("two-writers", 1), broker.bootstrap, tmp_path / "a"
    produce(at, topic, "none", numbered(0, 20))
    reports: list[dict[str, Any]] = []

    def run() -> None:
        reports.append(si.archive(spark, at, topic, path, every="100 milliseconds"))

    first = threading.Thread(target=run)
    first.start()
    try:
        commits = path / "_ottla" / "commits"
        wait_until(lambda: list(commits.glob("0*.json")), "a batch", 60)
        for second in (lambda: si.archive(spark, at, topic, path), lambda: si.compact(spark, path)):
            with pytest.raises(PipelineError, match="another pipeline writes to"):
                second()
        produce(at, topic, "none", numbered(20, 30))
        wait_until(lambda: len(list(commits.glob("0*.json"))) > 1, "a second batch", 60)
    finally:
        for query in spark.streams.active:
            query.stop()
        first.join(60)
    rest = si.archive(spark, at, topic, path)
    assert reports[0]["records"] + rest["records"] == 30
    assert si.verify(spark, path, at)["ok"]
    runs = pipelines(spark, at, tmp_path, topic)
    for name, checkpoint in (("mirror", "mirror"), ("dead_letter", "dead")):
        with Files(spark, tmp_path / checkpoint).lock(LOCK):
            with pytest.raises(PipelineError, match="another pipeline writes to"):
                runs[name](topic)


@pytest.mark.parametrize("name, checkpoint", [("mirror", "mirror"), ("dead_letter", "dead")])
def test_a_lost_checkpoint_does_not_hide_records_that_were_deleted_unread(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path,
    name: str, checkpoint: str,
) -> None:
    topic, at = new_topic("gap", 1), broker.bootstrap
    run = pipelines(spark, at, tmp_path, topic)[name]
    produce(at, topic, "none", numbered(0, 10))
    run(topic)
    produce(at, topic, "none", numbered(10, 30))
    admin = AdminClient({"bootstrap.servers": at})
    [deleted] = admin.delete_records([TopicPartition(topic, 0, 20)]).values()
    deleted.result(30)
    shutil.rmtree(tmp_path / checkpoint)
    with pytest.raises(DataLost, match=r"offsets 10 to 19 of partition 0 of .*--allow-gaps"):
        run(topic)
    report = run(topic, allow_gaps=True)
    assert report.get("written", report.get("good")) == 10


def test_an_archive_that_runs_for_ever_takes_nothing_of_a_topic_made_again(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, at, path = new_topic("two-lives", 1), broker.bootstrap, tmp_path / "a"
    produce(at, topic, "none", numbered(0, 20))
    errors: list[str] = []

    def run() -> None:
        try:
            si.archive(spark, at, topic, path, every="100 milliseconds", allow_gaps=True)
        except PipelineError as error:
            errors.append(str(error))

    first = threading.Thread(target=run)
    first.start()
    try:
        commits = path / "_ottla" / "commits"
        wait_until(lambda: list(commits.glob("0*.json")), "a batch", 60)
        remake(broker, topic, 1)
        produce(at, topic, "none", numbered(100, 150))
        first.join(60)
    finally:
        for query in spark.streams.active:
            query.stop()
        first.join(60)
    assert len(errors) == 1 and "was deleted" in errors[0] and "nothing more was" in errors[0]
    assert si.read_archive(spark, path).count() == 20


@pytest.mark.parametrize("after", ["the commit", "the rename", "the write"])
def test_a_driver_killed_in_the_middle_of_a_batch_has_neither_lost_nor_doubled_it(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path, after: str
) -> None:
    """The test kills nothing: it puts the directory into the state that such a kill leaves."""
    topic, at, path = new_topic("killed", 2), broker.bootstrap, tmp_path / "a"
    produce(at, topic, "none", numbered(0, 40))
    assert si.archive(spark, at, topic, path, records_per_batch=10)["batches"] >= 4
    last = max(int(f.name) for f in (path / CHECKPOINT / "commits").glob("[0-9]*"))
    for name in (f"{last}", f".{last}.crc"):            # Spark's commit comes last
        (path / CHECKPOINT / "commits" / name).unlink()
    written = {f: f.read_bytes() for f in (path / "data").rglob(f"b{last:08}-*.parquet")}
    if after != "the commit":
        max((path / "_ottla" / "commits").glob("0*.json")).unlink()
    if after == "the write":
        for number, (file, content) in enumerate(written.items()):
            staged = path / "_ottla" / "staging" / "0123" / f"part-{number}.parquet"
            staged.parent.mkdir(parents=True, exist_ok=True)
            staged.write_bytes(content)
            file.unlink()
    assert written
    # Spark alone would refuse to finish the open batch after partitions were added.
    admin = AdminClient({"bootstrap.servers": at})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(60)
    again = si.archive(spark, at, topic, path, records_per_batch=10)
    assert (again["records"] == 0) == (after == "the commit")
    verdict = si.verify(spark, path, at)
    assert verdict["ok"], verdict
    assert sum(p["distinct"] for p in verdict["partitions"].values()) == 40
    files = {f.relative_to(path / "data") for f in (path / "data").rglob("*.parquet")}
    assert len(files) == len(si.read_archive(spark, path).inputFiles())
    assert not list((path / "_ottla").rglob("part-*"))


def test_a_batch_has_the_same_figures_where_spark_reports_none(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    topic, at = new_topic("unreported", 2), broker.bootstrap
    reported: list[dict[str, Any]] = []
    from_plans: list[dict[str, Any]] = []
    run = query_run.run

    def kept(query: Any, shown: Any, on_progress: Any, *others: Any) -> int:
        rows = run(query, shown, reported.append, *others)
        from_plans.append(query_reports.unreported(query))
        return rows

    monkeypatch.setattr(query_run, "run", kept)
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    try:
        # The watermark from two batches earlier decides which records are late.
        for records in (numbered(0, 30), [Event(b"k", b'{"n":1}', 900_000)], numbered(30, 37),
                        numbered(37, 44)):  # fmt: skip
            produce(at, topic, "none", [*records, Event(b"k", b"no JSON", 1_000_000)])
            si.windows(spark, at, topic, tmp_path / "w", window="1 second", watermark="1 second",
                       schema="n INT", aggregates={"n": "count(*)"})  # fmt: skip
    finally:
        spark.conf.unset("spark.sql.streaming.noDataMicroBatches.enabled")
    assert len(reported) == len(from_plans) == 4
    for told, read in zip(reported, from_plans, strict=True):
        assert read["numInputRows"] == told["numInputRows"]
        assert read["observedMetrics"] == told["observedMetrics"]
        late = [sum(one["numRowsDroppedByWatermark"] for one in figures["stateOperators"])
                for figures in (read, told)]  # fmt: skip
        assert late[0] == late[1]
    assert reported[-1]["observedMetrics"]["input"] == {
        "records": 8, "bad": 1, "without_time": 0}  # fmt: skip
    assert reported[-1]["stateOperators"][0]["numRowsDroppedByWatermark"] > 0


def test_a_replays_name_stands_for_one_archive_and_one_range(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    at, to = broker.bootstrap, new_topic("replayed", 1)
    for name in ("one", "two"):
        produce(at, topic := new_topic(name, 1), "none", numbered(0, 20))
        si.archive(spark, at, topic, tmp_path / name)
    assert si.replay(spark, tmp_path / "one", at, to, until=1_010)["written"] == 10
    for other, since, until in (("two", None, 1_010), ("one", None, None), ("one", 1_005, 1_010)):
        with pytest.raises(PipelineError, match=r"from another source .* name of its own"):
            si.replay(spark, tmp_path / other, at, to, since=since, until=until)
    report = si.replay(spark, tmp_path / "one", at, to, since=1_010, name=f"{to}-rest")
    assert report["written"] == 10
    assert [line[3] for line in committed_lines(broker, to)] == [e.value for e in numbered(0, 20)]
    # The target topic is created again and is empty, so the replay writes its records once more.
    remake(broker, to, 1)
    assert si.replay(spark, tmp_path / "one", at, to, until=1_010)["written"] == 10


def test_times_are_utc_in_any_session_and_those_that_cannot_be_sent_are_counted(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, copy, at = new_topic("times", 1), new_topic("times-copy", 1), broker.bootstrap
    producer = KafkaProducer(bootstrap_servers=at)
    for timestamp_ms in (0, 1_370_053_800_000):         # 2013-06-01T02:30Z
        producer.send(topic, b"x", timestamp_ms=timestamp_ms)
    producer.close()
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        si.archive(spark, at, topic, tmp_path / "a")
        folders = {str(f.parent.relative_to(tmp_path / "a" / "data"))
                   for f in (tmp_path / "a" / "data").rglob("*.parquet")}  # fmt: skip
        assert folders == {"date=1970-01-01/hour=0", "date=2013-06-01/hour=2"}
        counted = si.replay(spark, tmp_path / "a", at, copy, dry_run=True,
                            since="2013-06-01T02:00", until="2013-06-01T03:00")  # fmt: skip
        assert counted["records"] == 1
        [early] = spark.sql("SELECT timestamp_millis(-1) AS timestamp").selectExpr(
            *(f"CAST({sql} AS STRING)" for sql in UTC_SQL.values())).collect()  # fmt: skip
        assert tuple(early) == ("1969-12-31", "23")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    report = si.replay(spark, tmp_path / "a", at, copy)
    assert (report["written"], report["restamped"]) == (2, 1)


def test_records_of_a_schema_that_came_meanwhile_are_put_aside_until_it_is_known(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    at = broker.bootstrap
    topic, good, bad = new_topic("evolving", 1), new_topic("good", 1), new_topic("bad", 1)
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "3.avsc").write_text(json.dumps(AVRO_1))
    old = confluent(3, AVRO_1, {"carrier": "UA", "delay": 1})
    new = confluent(11, AVRO_2, {"carrier": "AA", "delay": 2, "origin": "JFK"})

    def run() -> tuple[int, int]:
        report = si.dead_letter(spark, at, topic, good, bad, tmp_path / "c", format="avro",
                                schemas=schemas)  # fmt: skip
        return report["good"], report["bad"]

    produce(at, topic, "none", [Event(b"k", old, 1_000), Event(b"k", new, 1_001)])
    assert run() == (1, 1)
    [letter] = si.read_topic(spark, at, bad).collect()
    reasons = {h.key: bytes(h.value).decode() for h in letter._headers}
    assert "schema id 11 is unknown" in reasons["ottla.error"] and letter._value == new
    (schemas / "11.avsc").write_text(json.dumps(AVRO_2))
    produce(at, topic, "none", [Event(b"k", old, 1_002), Event(b"k", new, 1_003)])
    assert run() == (2, 0)
