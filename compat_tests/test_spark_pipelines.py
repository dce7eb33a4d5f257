"""The pipelines of `ottla.spark_interop` on real flights: each result equals the source."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import SparkSession

from compat_tests.brokers import Broker
from compat_tests.flights import Event, LoadedTopic, produce, read_flights, same_lines
from compat_tests.spark_flights import FLIGHTS, committed_lines, source_lines
from compat_tests.waiting import wait_until
from ottla import spark_interop as si
from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import DataLost, PipelineError
from ottla.spark_interop.pipelines import command, steps
from ottla.spark_interop.pipelines.columns import check_expressions


@pytest.fixture(scope="module")
def loaded(broker: Broker, new_topic: Callable[..., str]) -> LoadedTopic:
    """The first few thousand flights in six partitions."""
    topic = new_topic("some-flights", partitions=6)
    return produce(broker.bootstrap, topic, "lz4", read_flights(FLIGHTS))


SCHEMA = "carrier STRING, dep_delay INT, time_hour TIMESTAMP"


@pytest.fixture(scope="module")
def archived(
    spark: SparkSession,
    broker: Broker,
    loaded: LoadedTopic,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """An archive of these flights, written in three batches."""
    path = tmp_path_factory.mktemp("archive") / "flights"
    report = si.archive(
        spark, broker.bootstrap, loaded.name, path, by="date", records_per_batch=1_500
    )
    assert (report["records"], report["batches"]) == (FLIGHTS, 3)
    return path


def test_an_archive_holds_each_record_once_and_proves_it(
    spark: SparkSession, broker: Broker, loaded: LoadedTopic, archived: Path
) -> None:
    again = si.archive(spark, broker.bootstrap, loaded.name, archived, by="date")
    assert again["records"] == 0
    rows = si.read_archive(spark, archived).selectExpr(
        "partition", "offset", "unix_millis(timestamp) AS t", "key", "value"
    )
    lines = defaultdict(list)
    for row in rows.orderBy("partition", "offset").collect():
        text = b"%d\t%d\t%d\t%b\t%b" % (row.partition, row.offset, row.t, row.key, row.value)
        lines[row.partition].append(text)
    same_lines(dict(lines), loaded.lines())
    verdict = si.verify(spark, archived, broker.bootstrap)
    assert verdict["ok"], verdict
    assert sum(p["in_topic"] for p in verdict["partitions"].values()) == FLIGHTS


def test_a_compacted_archive_has_the_same_records_in_fewer_files(
    spark: SparkSession, broker: Broker, loaded: LoadedTopic, archived: Path
) -> None:
    before = {
        tuple(r) for r in si.read_archive(spark, archived).select("partition", "offset").collect()
    }
    done = si.compact(spark, archived)
    assert done["added"] < done["removed"]
    files = list((archived / "data").rglob("*.parquet"))
    assert len(files) == done["added"]
    after = [
        tuple(r) for r in si.read_archive(spark, archived).select("partition", "offset").collect()
    ]
    assert len(after) == len(before) and set(after) == before
    assert si.verify(spark, archived, broker.bootstrap)["ok"]
    assert si.compact(spark, archived) == {"directories": 0, "removed": 0, "added": 0}


def test_a_replay_is_the_original_however_often_it_is_run(
    spark: SparkSession,
    broker: Broker,
    loaded: LoadedTopic,
    archived: Path,
    new_topic: Callable[..., str],
) -> None:
    copy = new_topic("replayed", 6)
    counted = si.replay(spark, archived, broker.bootstrap, copy, dry_run=True)
    assert (counted["records"], counted["written"]) == (FLIGHTS, 0)
    assert committed_lines(broker, copy) == []
    day = si.replay(
        spark,
        archived,
        broker.bootstrap,
        copy,
        name=f"{copy}-day",
        until="2013-01-02T05:00",
        time_zone="UTC",
    )
    expected = [x for x in source_lines(loaded) if x[1] < 1_357_102_800_000]
    assert 0 < day["written"] == len(expected) < FLIGHTS
    assert Counter(committed_lines(broker, copy)) == Counter(expected)
    whole = new_topic("replayed-whole", 6)
    assert si.replay(spark, archived, broker.bootstrap, whole)["written"] == FLIGHTS
    assert si.replay(spark, archived, broker.bootstrap, whole)["already_there"] == FLIGHTS
    got = committed_lines(broker, whole)
    by_partition = defaultdict(list)
    for line in got:
        by_partition[line[0]].append(line)
    assert dict(by_partition) == {
        p: [(p, e.timestamp_ms, e.key, e.value) for e in es] for p, es in loaded.events.items()
    }


def test_a_damaged_or_missing_file_is_named_and_nothing_is_lost_in_silence(
    spark: SparkSession,
    broker: Broker,
    loaded: LoadedTopic,
    tmp_path: Path,
    new_topic: Callable[..., str],
) -> None:
    path, copy = tmp_path / "a", new_topic("from-damage", 6)
    si.archive(spark, broker.bootstrap, loaded.name, path, by="none")
    victim = max((path / "data").rglob("*.parquet"), key=lambda f: f.stat().st_size)
    whole = victim.read_bytes()
    victim.write_bytes(whole[:1000] + bytes([whole[1000] ^ 0xFF]) + whole[1001:])
    with pytest.raises(DataLost, match="damaged"):
        si.replay(spark, path, broker.bootstrap, copy)
    assert not si.verify(spark, path)["ok"]
    victim.write_bytes(whole[:-10])
    with pytest.raises(DataLost, match=victim.name):
        si.replay(spark, path, broker.bootstrap, copy)
    victim.unlink()
    assert "is gone" in si.verify(spark, path)["problems"][0]
    victim.write_bytes(whole)
    si.replay(spark, path, broker.bootstrap, copy)
    assert Counter(committed_lines(broker, copy)) == Counter(source_lines(loaded))


def test_an_archive_refuses_another_topic_and_says_when_retention_was_faster(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, other = new_topic("short", 1), new_topic("other", 1)
    events = [Event(b"k", b"%d" % n, 1_000 + n) for n in range(30)]
    produce(broker.bootstrap, topic, "none", events[:10])
    assert si.archive(spark, broker.bootstrap, topic, tmp_path / "a")["records"] == 10
    with pytest.raises(PipelineError, match=f"with topic {topic}, but this run has {other}"):
        si.archive(spark, broker.bootstrap, other, tmp_path / "a")
    produce(broker.bootstrap, topic, "none", events[10:])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [done] = admin.delete_records([TopicPartition(topic, 0, 20)]).values()
    done.result()
    with pytest.raises(DataLost, match=r"--allow-gaps\); `verify` then shows the gap"):
        si.archive(spark, broker.bootstrap, topic, tmp_path / "a")
    assert (
        si.archive(spark, broker.bootstrap, topic, tmp_path / "a", allow_gaps=True)["records"] == 10
    )
    verdict = si.verify(spark, tmp_path / "a", broker.bootstrap)
    assert verdict["partitions"]["0"]["gaps"] == [[10, 20]]


def test_the_latest_table_is_a_dict_of_the_topic(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, at, path = new_topic("keyed", 3), broker.bootstrap, tmp_path / "t"
    expected: dict[bytes, bytes] = {}

    def send(run: int) -> None:
        producer = Producer({"bootstrap.servers": at, "partitioner": "murmur2_random"})
        for n in range(300):
            key = b"k%d" % (n * 7 % 50)
            value = None if n % 11 == 3 else b"%d-%d" % (run, n)
            producer.produce(topic, value, key)
            expected[key] = value  # type: ignore[assignment]
        producer.produce(topic, b"without a key")
        assert producer.flush(60) == 0

    def there() -> dict[bytes, bytes]:
        rows = si.read_latest(spark, path).collect()
        assert len(rows) == report["keys"]
        return {bytes(r.key): bytes(r.value) for r in rows}

    for run in range(2):
        send(run)
        report = si.latest(spark, at, topic, path, records_per_batch=200)
        assert (report["records"], report["without_key"], report["moved_keys"]) == (301, 1, 0)
        assert there() == {k: v for k, v in expected.items() if v is not None}
    assert report["keys"] < len(expected)
    send(2)
    admin = AdminClient({"bootstrap.servers": at})
    admin.create_partitions([NewPartitions(topic, 7)])[topic].result(60)
    wait_until(lambda: len(Cluster(at).partitions(topic)) == 7, "the new partitions")
    send(3)             # keys have moved; the highest offset of a key may be in its old partition
    report = si.latest(spark, at, topic, path)
    assert report["moved_keys"] > 0
    assert there() == {k: v for k, v in expected.items() if v is not None}


def test_the_newest_record_of_a_key_stays_when_an_older_one_is_read_after_it(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """The keys had moved to partition 1 before the first run. That run reads in several batches,
    and comes to the end of the short partition first."""
    topic, at, path = new_topic("moved-before", 2), broker.bootstrap, tmp_path / "t"
    producer = Producer({"bootstrap.servers": at})
    for _ in range(40):
        producer.produce(topic, b"1", b"stays", 0, timestamp=1_000)
    for key, value in (b"moves", b"new"), (b"goes", None):
        producer.produce(topic, b"old", key, 0, timestamp=2_000)
        producer.produce(topic, value, key, 1, timestamp=3_000)
    assert producer.flush(60) == 0
    for records in (44, 0):
        report = si.latest(spark, at, topic, path, records_per_batch=10)
        rows = {bytes(r.key): bytes(r.value) for r in si.read_latest(spark, path).collect()}
        assert rows == {b"stays": b"1", b"moves": b"new"}
        assert (report["records"], report["keys"]) == (records, 2)


def test_windows_are_those_of_the_source_in_parquet_and_in_a_topic(
    spark: SparkSession,
    broker: Broker,
    loaded: LoadedTopic,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    expected: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for _, _, key, value in source_lines(loaded):
        flight = json.loads(value)
        figures = expected[flight["time_hour"][:10], key.decode()]
        figures[0] += 1
        figures[1] += flight["dep_delay"] or 0
    options: dict[str, Any] = {
        "window": "1 day", "time_column": "time_hour", "by": ["carrier"], "schema": SCHEMA,
        "aggregates": {"flights": "count(*)", "minutes": "coalesce(sum(dep_delay), 0)"},
        "watermark": "2 days",
    }  # fmt: skip
    report = si.windows(spark, broker.bootstrap, loaded.name, tmp_path / "w", **options)
    assert (report["records"], report["bad"], report["late"]) == (FLIGHTS, 0, 0)
    closed = {k: tuple(v) for k, v in expected.items() if k[0] < "2013-01-03"}
    rows = si.read_windows(spark, tmp_path / "w").collect()
    assert {(str(r.window_start)[:10], r.carrier): (r.flights, r.minutes) for r in rows} == closed
    for more in ({"watermark": "3 days"}, {"time_column": "_timestamp"}, {"session_gap": True}):
        with pytest.raises(PipelineError, match="name another path"):
            si.windows(spark, broker.bootstrap, loaded.name, tmp_path / "w", **(options | more))
    for _ in range(2):      # `final` closes the last windows; the second run adds nothing
        si.windows(spark, broker.bootstrap, loaded.name, tmp_path / "w", final=True, **options)
        rows = si.read_windows(spark, tmp_path / "w").collect()
        assert {(str(r.window_start)[:10], r.carrier): (r.flights, r.minutes) for r in rows} == {
            k: tuple(v) for k, v in expected.items()}  # fmt: skip
        assert len(rows) == len(expected)
    with pytest.raises(PipelineError, match="so they ignore later records"):
        si.windows(spark, broker.bootstrap, loaded.name, tmp_path / "w", **options)
    to = new_topic("daily", 3, cleanup_policy="compact")
    for _ in range(2):
        si.windows(spark, broker.bootstrap, loaded.name, tmp_path / "u", to=to, updates=True,
                   records_per_batch=2_500, **options)  # fmt: skip
    newest = {key: json.loads(value) for _, _, key, value in committed_lines(broker, to)}
    assert {(r["window_start"][:10], r["carrier"]): (r["flights"], r["minutes"])
            for r in newest.values()} == {k: tuple(v) for k, v in expected.items()}  # fmt: skip
    with pytest.raises(PipelineError, match="has no checkpoint of `"):
        si.windows(
            spark, broker.bootstrap, loaded.name, tmp_path / "n", to=to, updates=True, **options
        )


def test_windows_go_on_after_a_kill_between_their_commit_and_sparks(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """The test kills nothing: after two of three runs, it puts the checkpoint into the state that
    such a kill leaves."""
    topic, path, sent = new_topic("killed-windows", 2), tmp_path / "w", 0
    checkpoint = path / "_ottla" / "checkpoint"
    for killed in (True, True, False):
        records = [Event(b"k%d" % n, b"%d" % n, 10_000 + 1_000 * n) for n in range(sent, sent + 20)]
        produce(broker.bootstrap, topic, "none", records)
        sent += 20
        si.windows(spark, broker.bootstrap, topic, path, window="10 seconds", watermark="1 second",
                   format="raw", aggregates={"n": "count(*)"})  # fmt: skip
        last = max(int(f.name) for f in (checkpoint / "commits").glob("[0-9]*"))
        for name in (f"{last}", f".{last}.crc") if killed else ():
            (checkpoint / "commits" / name).unlink()
    rows = si.read_windows(spark, path).orderBy("window_start").collect()
    assert [row.n for row in rows] == [10] * 5      # the window of the last ten records is open


def test_the_check_before_a_jvm_starts_takes_every_function_of_spark(spark: SparkSession) -> None:
    for (name,) in spark.sql("SHOW FUNCTIONS").collect():
        if name.isidentifier():
            check_expressions(["c"], {"n": f"{name}(c)"}, "aggregates")
    with pytest.raises(PipelineError, match=r"there is no function avgg; did you mean avg\?"):
        check_expressions(["c"], {"n": "avgg(c)"}, "aggregates")


def test_dead_letters_carry_their_reason_and_the_others_go_on(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, good, dead = (new_topic(name, 2) for name in ("in", "good", "dead"))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(200):
        value = b"{" if n % 50 == 7 else json.dumps({"n": n}).encode()
        producer.produce(topic, value, b"k", partition=n % 2, timestamp=1_000 + n)
    assert producer.flush(60) == 0

    def double(key: bytes | None, value: bytes | None) -> bytes:
        number = json.loads(value or b"")["n"]
        return str(1000 // (number - 20)).encode()

    more = {"format": "json", "schema": "n INT", "function": double}
    report = si.dead_letter(spark, broker.bootstrap, topic, good, dead, tmp_path / "c", **more)
    assert (report["good"], report["bad"]) == (195, 5)
    assert (
        si.dead_letter(spark, broker.bootstrap, topic, good, dead, tmp_path / "c", **more)["bad"]
        == 0
    )
    letters = si.read_topic(spark, broker.bootstrap, dead).collect()
    headers = [{h.key: h.value.decode() for h in letter._headers} for letter in letters]
    failed = next(h for h in headers if h.get("ottla.exception"))
    assert failed["ottla.exception"] == "ZeroDivisionError"
    assert (failed["ottla.source.topic"], failed["ottla.source.partition"]) == (topic, "0")
    assert failed["ottla.source.offset"] == "10"
    assert sum("not a JSON object" in h["ottla.error"] for h in headers) == 4
    with pytest.raises(PipelineError, match="5 of 200 records of batch 0 are bad, more than 1%"):
        si.dead_letter(spark, broker.bootstrap, topic, good, dead, tmp_path / "d", share_max=0.01,
                       name="strict", **more)  # fmt: skip


def test_two_mirrors_keep_partitions_and_run_in_no_circle(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    left, right = new_topic("left", 2), new_topic("right", 2)
    at = broker.bootstrap
    produce(at, left, "none", [Event(b"l%d" % n, b"%d" % n, 1_000 + n) for n in range(40)])
    produce(at, right, "none", [Event(b"r%d" % n, b"%d" % n, 2_000 + n) for n in range(40)])
    origin = {topic: committed_lines(broker, topic) for topic in (left, right)}
    for run in range(2):
        there = si.mirror(spark, at, left, at, tmp_path / "l", to=right, names=("L", "R"))
        back = si.mirror(spark, at, right, at, tmp_path / "r", to=left, names=("R", "L"))
        assert (there["written"], back["written"]) == ((40, 40) if run == 0 else (0, 0))
    assert set(there["lag"].values()) == {0}
    both = Counter(origin[left]) + Counter(origin[right])
    assert Counter(committed_lines(broker, left)) == both == Counter(committed_lines(broker, right))
    maps = [json.loads(value) for *_, value in committed_lines(broker, f"{right}.offsets")]
    assert {m["source_offset"] for m in maps} <= set(range(40))
    # A mirror that lost its checkpoint continues from its progress in the destination.
    assert (
        si.mirror(spark, at, left, at, tmp_path / "new", to=right, names=("L", "R"))["written"] == 0
    )


def test_a_slice_has_the_records_of_its_time_wherever_they_are(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, chance = new_topic("out-of-order", 2), random.Random(1)
    times = [1_000_000 + 100 * n + chance.randrange(-60_000, 60_000) for n in range(2_000)]
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n, time_ms in enumerate(times):
        producer.produce(topic, b"%d" % n, partition=n % 2, timestamp=time_ms)
    assert producer.flush(60) == 0
    since, until = 1_050_000, 1_150_000
    expected = {str(n) for n, time_ms in enumerate(times) if since <= time_ms < until}
    for number, lateness in enumerate((None, "2m")):
        file = tmp_path / f"{number}.jsonl"
        report = si.slice_topic(spark, broker.bootstrap, topic, since=since, until=until,
                                lateness=lateness, output=file)  # fmt: skip
        found = [json.loads(line)["value"] for line in file.read_text().splitlines()]
        assert set(found) == expected and len(found) == report["records"] == len(expected)


def test_a_querys_progress_is_a_groups_offsets_and_metrics(
    spark: SparkSession, broker: Broker, loaded: LoadedTopic, tmp_path: Path
) -> None:
    listener = si.OffsetCommitter(broker.bootstrap, {"watched": f"watch-{loaded.name}"})
    spark.streams.addListener(listener)
    try:
        stream = si.stream_topic(spark, broker.bootstrap, loaded.name, records_per_batch=1_500)
        writer = stream.writeStream.queryName("watched").format("noop")
        writer = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        metrics = si.lag_metrics(query)
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        listener.close()
        spark.streams.removeListener(listener)
    ends = Cluster(broker.bootstrap).ends(loaded.name)
    from ottla.spark_interop.offsets import group_offsets

    group = f"watch-{loaded.name}"
    assert group_offsets(broker.bootstrap, group, loaded.name) == ends
    assert si.offsets_from_checkpoint(tmp_path / "c") == {loaded.name: ends}
    labels = f'query="watched",topic="{loaded.name}",partition="0"'
    assert f"ottla_spark_offsets_behind_latest{{{labels}}} 0\n" in metrics
    offsets = si.starting_offsets_from_group(broker.bootstrap, group, loaded.name)
    assert json.loads(offsets) == {loaded.name: {str(p): o for p, o in ends.items()}}
    si.checkpoint_to_group(tmp_path / "c", broker.bootstrap, f"{group}-2")
    assert group_offsets(broker.bootstrap, f"{group}-2", loaded.name) == ends
    with pytest.raises(PipelineError, match="has no committed offset"):
        si.starting_offsets_from_group(broker.bootstrap, "nobody", loaded.name)


def test_the_report_of_quality_counts_what_is_wrong(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic("quality", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    rows = [
        (b"a", b'{"n":1}', 5_000),
        (b"a", b'{"n":null}', 4_500),
        (None, b"{", 9_000),
        (b"b", None, 9_100),
    ]
    for key, value, time_ms in rows:
        producer.produce(topic, value, key, timestamp=time_ms)
    assert producer.flush(60) == 0
    page = tmp_path / "q.html"
    report = si.quality_report(
        spark, broker.bootstrap, topic, format="json", schema="n INT", html=page
    )
    assert [
        report[k] for k in ("records", "tombstones", "without_key", "bad", "duplicate_keys")
    ] == [4, 1, 1, 1, 1]
    assert report["columns"]["n"] == {"nulls": 0.5, "distinct": 1, "least": "1", "most": "1"}
    assert report["partitions"][0] == {"records": 4, "first": 0, "last": 3, "gaps": 0, "twice": 0}
    assert report["lateness"]["1 s"] == 1 and report["lateness"]["in order"] == 3
    text = page.read_text()
    assert text.count("<svg") == 2 and "src=" not in text and "<script" not in text


def test_the_command_runs_a_file_of_steps(
    spark: SparkSession, broker: Broker, loaded: LoadedTopic, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    file = tmp_path / "flights.toml"
    again = f"{loaded.name}-again"
    file.write_text(f"""
bootstrap = "{broker.bootstrap}"
[[step]]
run = "archive"
topic = "{loaded.name}"
path = "{tmp_path}/archive"
by = "date"
[[step]]
run = "replay"
path = "{tmp_path}/archive"
topic = "{again}"
create = true
[[step]]
run = "slice"
topic = "{again}"
until = "2013-01-01T12:00"
output = "{tmp_path}/slice.jsonl"
""")
    assert command.main(["pipeline", "run", str(file), "--quiet"]) == 0
    reports = json.loads(capsys.readouterr().out)
    assert [r["step"] for r in reports] == ["archive", "replay", "slice"]
    assert reports[1]["written"] == FLIGHTS
    expected = [v for _, t, _, v in source_lines(loaded) if t < 1_357_041_600_000]
    lines = [json.loads(line) for line in (tmp_path / "slice.jsonl").read_text().splitlines()]
    assert sorted(x["value"].encode() for x in lines) == sorted(expected)
    missing = [
        "pipeline",
        "archive",
        "--bootstrap",
        broker.bootstrap,
        "--topic",
        "nothing",
        "--path",
        str(tmp_path / "x"),
    ]
    assert command.main(missing) == 1
    assert "topic nothing not found" in capsys.readouterr().err


def test_the_command_of_every_example_is_accepted() -> None:
    import shlex

    for step in steps.STEPS:
        words = shlex.split(step.example)
        options = command.parser().parse_args(words[2:])
        assert options.command == step.name


def test_histories_are_judged_alike_with_spark(spark: SparkSession, tmp_path: Path) -> None:
    from ottla.spark_interop.history import check_history_file
    from tests.spark_interop.histories import good_history

    events = good_history(5)
    # "bad" lacks one value of a key, "empty" lacks all values of this key.
    for name, drop in (("good", None), ("bad", 4), ("empty", slice(None))):
        if drop is not None:
            final = next(e for e in events if e.get("final") and e["type"] == "ok")
            del final["mops"][0][2][drop]
        file = tmp_path / f"{name}.jsonl"
        file.write_text("\n".join(map(json.dumps, events)))
        large, small = check_history_file(spark, file), check_history_file(None, file, small=True)
        examples = large.pop("examples"), small.pop("examples")     # these may differ
        assert large == small and examples[0].keys() == examples[1].keys()
        assert large["valid"] == (drop is None)
