"""Pipelines with a full disk, with Ctrl-C, and with a broker that is down; `verify` of an archive
that is behind its topic; `ottla pipeline check-history` of histories in Parquet."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pyspark
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql import SparkSession

from compat_tests.brokers import Broker, KafkaBroker, OttlaBroker
from compat_tests.flights import Event, produce
from compat_tests.requirements import COMPAT_DIR
from compat_tests.spark_session import SHORT_RUN
from compat_tests.waiting import wait_until
from ottla import spark_interop as si
from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import PipelineError
from ottla.spark_interop.history import check_history_file
from ottla.spark_interop.pipelines import command, query_run
from tests.spark_interop.histories import good_history

RECORDS = 600
STARTS = ("starting Spark", "Spark started")
"""How the lines begin that a command prints before it reads a record."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB in memory."""
    if os.geteuid():
        pytest.skip("mounting a small file system needs root")
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_at_the_sink_ends_the_archive_and_the_next_run_completes_it(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], small_disk: Path
) -> None:
    topic = new_topic("larger-than-the-disk", 2)
    events = [Event(b"k%d" % n, os.urandom(9_000), 1_000 + n) for n in range(RECORDS)]
    produce(broker.bootstrap, topic, "none", events)
    path = small_disk / "archive"
    with pytest.raises(PipelineError, match=r"no room|No space|disk"):
        si.archive(spark, broker.bootstrap, topic, path, records_per_batch=100)
    written = sum(p["records"] for p in si.verify(spark, path)["partitions"].values())
    assert written < RECORDS
    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    report = si.archive(spark, broker.bootstrap, topic, path, records_per_batch=100)
    assert report["records"] == RECORDS - written
    verdict = si.verify(spark, path, broker.bootstrap)
    assert verdict["ok"], verdict
    assert sum(p["distinct"] for p in verdict["partitions"].values()) == RECORDS


def test_a_history_in_parquet_is_judged_as_one_in_json_lines(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number in range(2):
        events = good_history(7)
        if number:
            final = next(e for e in events if e.get("final") and e["type"] == "ok")
            del final["mops"][0][2][2]
        lines, parquet = tmp_path / f"{number}.jsonl", tmp_path / f"{number}.parquet"
        lines.write_text("\n".join(map(json.dumps, events)))
        flat = [event | {"mops": json.dumps(event["mops"])} if "mops" in event else event
                for event in events]  # fmt: skip
        names = sorted({name for event in flat for name in event})
        rows = [{name: event.get(name) for name in names} for event in flat]
        directory = tmp_path / f"of-spark-{number}.parquet"
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), parquet)
        spark.read.parquet(str(parquet)).coalesce(1).write.parquet(str(directory))
        verdicts = [
            check_history_file(spark, lines),
            check_history_file(spark, parquet),
            check_history_file(None, parquet, small=True),
            check_history_file(None, directory, small=True),
        ]
        assert all(one == verdicts[0] for one in verdicts)
        assert verdicts[0]["valid"] == (number == 0)


def test_ctrl_c_while_spark_starts_leaves_no_jvm(tmp_path: Path) -> None:
    """A script replaces `spark-submit`: it never becomes ready, and sends SIGINT like Ctrl-C."""
    submit, pid = tmp_path / "bin" / "spark-submit", tmp_path / "pid"
    submit.parent.mkdir()
    submit.write_text(f"#!/bin/sh\necho $$ > {pid}\nkill -INT $PPID\nexec sleep 600\n")
    submit.chmod(0o755)
    (tmp_path / f"spark-sql-kafka-0-10_2.13-{pyspark.__version__}.jar").touch()
    code = f"from ottla.spark_interop import session; session(jars={str(tmp_path)!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "SPARK_HOME": str(tmp_path)},
        stderr=subprocess.PIPE, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == -signal.SIGINT and "KeyboardInterrupt" in done.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@pytest.mark.long
@pytest.mark.parametrize(("number", "moment"), [
    (signal.SIGINT, "_ottla/table.json"),
    (signal.SIGINT, "_ottla/checkpoint/offsets/0"),
    (signal.SIGTERM, "_ottla/checkpoint/offsets/0"),
])  # fmt: skip
def test_an_interrupted_pipeline_says_so_and_has_no_summary(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path,
    number: signal.Signals, moment: str,
) -> None:  # fmt: skip
    """The whole process group gets the signal, also the JVM, as with Ctrl-C in a terminal."""
    topic, path = new_topic("interrupted", 2), tmp_path / "archive"
    events = [Event(b"k%d" % n, b"v", 1_000 + n) for n in range(RECORDS)]
    produce(broker.bootstrap, topic, "none", events)
    words = ["archive", "-b", broker.bootstrap, "--topic", topic, "--path", str(path),
             "--records-per-batch", "10", "--memory", "512m",
             "--jars", str(COMPAT_DIR / "ivy")]  # fmt: skip
    running = subprocess.Popen(
        [sys.executable, "-m", "ottla.tools.command", "pipeline", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, **SHORT_RUN},
    )  # fmt: skip
    try:
        wait_until(
            lambda: (path / moment).exists() or running.poll() is not None, moment, seconds=120
        )
        os.killpg(running.pid, number)
        out, told = running.communicate(timeout=60)
    finally:
        running.kill()
    assert (running.returncode, out) == (128 + number, "")
    told = [line for line in told.splitlines() if not line.startswith(STARTS)]
    assert told == ["ottla pipeline archive: interrupted; run the same command again"]
    si.archive(spark, broker.bootstrap, topic, path)
    verdict = si.verify(spark, path, broker.bootstrap)
    assert verdict["ok"], verdict
    assert sum(p["distinct"] for p in verdict["partitions"].values()) == RECORDS


@pytest.mark.long
def test_an_interrupted_pipeline_that_writes_topics_prints_only_that(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """The JVM gets the signal as well, so that Python loses all connections to it."""
    topic, checkpoint = new_topic("interrupted-writes", 2), tmp_path / "checkpoint"
    events = [Event(b"k", b'{"n": 1}', 1_000 + n) for n in range(RECORDS)]
    produce(broker.bootstrap, topic, "none", events)
    running = subprocess.Popen(
        [sys.executable, "-m", "ottla.tools.command", "pipeline", "dead-letter", "-b",
         broker.bootstrap, "--topic", topic, "--to", f"{topic}-good", "--dead-letters",
         f"{topic}-bad", "--checkpoint", str(checkpoint), "--format", "json", "--schema", "n:INT",
         "--records-per-batch", "10", "--memory", "512m", "--jars", str(COMPAT_DIR / "ivy")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, **SHORT_RUN},
    )  # fmt: skip
    try:
        wait_until(
            lambda: [*checkpoint.rglob("offsets/2")] or running.poll() is not None,
            "the third batch", seconds=120,
        )
        os.killpg(running.pid, signal.SIGTERM)
        out, told = running.communicate(timeout=60)
    finally:
        running.kill()
    assert (running.returncode, out) == (128 + signal.SIGTERM, "")
    [line] = [line for line in told.splitlines() if not line.startswith(STARTS)]
    assert line.startswith("ottla pipeline dead-letter: interrupted; run the same command again")


def test_an_expression_that_spark_refuses_is_one_sentence(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """pyspark logged the error, too, as a line of ten kilobytes."""
    words = ["windows", "-b", broker.bootstrap, "--topic", new_topic("refused", 1), "--path",
             str(tmp_path / "w"), "--window", "1h", "--format", "text", "--aggregates",
             "n = sum(array(1))"]  # fmt: skip
    assert command.main(["pipeline", *words]) == 1
    told = [line for line in capfd.readouterr().err.splitlines() if not line.startswith(STARTS)]
    assert len(told) == 1 and told[0].startswith("ottla pipeline windows: [DATATYPE_MISMATCH"), told


@pytest.mark.one_broker
def test_a_replay_waits_for_a_broker_that_is_away_before_it_writes(
    spark: SparkSession, new_broker: Callable[..., Broker], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    broker = new_broker()
    assert isinstance(broker, OttlaBroker | KafkaBroker)
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("away", 2, 1)])["away"].result(60)
        events = [Event(b"k%d" % n, b"v", 1_000 + n) for n in range(RECORDS)]
        produce(broker.bootstrap, "away", "none", events)
        si.archive(spark, broker.bootstrap, "away", tmp_path / "archive", progress=False)
        broker.kill()
        say = query_run.Progress.say

        def returns(progress: query_run.Progress, text: str) -> None:
            say(progress, text)
            if text == query_run.AWAY:
                broker.start()

        monkeypatch.setattr(query_run.Progress, "say", returns)
        begun = Cluster(broker.bootstrap).patient()     # as `ottla pipeline` calls it, too
        report = si.replay(spark, tmp_path / "archive", begun, "back", create=True)
        assert report["written"] == RECORDS
        told = capsys.readouterr().err.splitlines()
        assert told == [f"replay back: {line}" for line in (query_run.AWAY, query_run.BACK)]
    finally:
        broker.stop()


def test_what_is_not_archived_yet_is_counted_and_an_archive_of_nothing_is_not_sound(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, path = new_topic("not-archived", 1), tmp_path / "archive"
    si.archive(spark, broker.bootstrap, topic, path)
    assert si.verify(spark, path, broker.bootstrap)["ok"]
    events = [Event(b"k", b"%d" % n, 1_000 + n) for n in range(10)]
    produce(broker.bootstrap, topic, "none", events)
    verdict = si.verify(spark, path, broker.bootstrap)
    assert not verdict["ok"]
    empty = f"the archive is empty, but {topic}-0 has 10 records: run `ottla pipeline archive`"
    assert verdict["problems"] == [empty]
    assert verdict["partitions"]["0"]["not_archived"] == 10
    si.archive(spark, broker.bootstrap, topic, path)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(60)
    more = [Event(b"k%d" % n, b"v", 2_000 + n) for n in range(99)]
    produce(broker.bootstrap, topic, "none", more)
    verdict = si.verify(spark, path, broker.bootstrap)
    assert verdict["ok"], verdict
    later = {p: one["not_archived"] for p, one in verdict["partitions"].items()}
    assert later.keys() == {"0", "1"} and later["1"] and sum(later.values()) == 99
    si.archive(spark, broker.bootstrap, topic, path)
    after = si.verify(spark, path, broker.bootstrap)["partitions"].values()
    assert [one["not_archived"] for one in after] == [0, 0]


def test_a_first_run_that_finds_no_room_at_all_is_repeated_once_there_is_some(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], small_disk: Path
) -> None:
    topic, path = new_topic("no-room-yet", 1), small_disk / "archive"
    produce(broker.bootstrap, topic, "none", [Event(b"k", b"v", 1_000)])
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(bytes(4 << 20))
    with pytest.raises(Exception, match="No space"):
        si.archive(spark, broker.bootstrap, topic, path)
    filler.unlink()
    assert si.archive(spark, broker.bootstrap, topic, path)["records"] == 1
