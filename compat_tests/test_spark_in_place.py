"""`format("ottla")` reads from log files the same records as Spark's kafka source does; also tests
the helpers for users' tests."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from compat_tests.brokers import Broker, KafkaBroker, OttlaBroker
from compat_tests.flights import CODECS, read_flights
from ottla.spark_interop import read_topic
from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import DataLost, PipelineError
from ottla.spark_interop.in_place import source
from ottla.spark_interop.in_place.segments import Segment
from ottla.spark_interop.in_place.source import (
    InPlaceReader,
    OttlaDataSource,
    Pieces,
    read_in_place,
)
from ottla.spark_interop.testing import assert_frames_equal, run_available_now

KAFKA_COLUMNS = [
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
]
TOPIC = "in-place"


@pytest.fixture(scope="module")
def small_segments(new_broker: Callable[..., Broker]) -> Iterator[tuple[Broker, Path]]:
    """A broker with segments of 1 MiB, and its data directory. Its topic has batches of every
    codec, headers, committed and aborted transactions, deleted records, and one partition with a
    single, open segment."""
    broker = new_broker("log.segment.bytes=1048576", "log.index.interval.bytes=1000")
    assert isinstance(broker, OttlaBroker | KafkaBroker)
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 3, 1, config={"retention.ms": "-1"})])[TOPIC].result()
    for number, codec in enumerate(CODECS):
        producer = Producer({
            "bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 20,
            "batch.num.messages": 500, "transactional.id": f"t{number}",
        })  # fmt: skip
        producer.init_transactions()
        for part in range(4):
            producer.begin_transaction()
            for n, event in enumerate(read_flights(1_200)[part * 300 : part * 300 + 300]):
                headers = [("n", struct.pack(">i", n)), ("none", None)] if n % 3 == 0 else None
                value = None if n % 50 == 7 else event.value * 10
                producer.produce(TOPIC, value, event.key, partition=n % 2, headers=headers,
                                 timestamp=event.timestamp_ms + number)  # fmt: skip
            if part % 2:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    last = Producer({"bootstrap.servers": broker.bootstrap})
    last.produce(TOPIC, b"alone", partition=2)
    assert last.flush(60) == 0
    [done] = admin.delete_records([TopicPartition(TOPIC, 0, 100)]).values()
    done.result()
    yield broker, broker.directory / "data"
    broker.stop()


def kafka(spark: SparkSession, broker: Broker, **options: str) -> Any:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    reader = reader.option("kafka.isolation.level", "read_committed").option(
        "includeHeaders", "true"
    )
    return reader.option("subscribe", TOPIC).options(**options).load().select(*KAFKA_COLUMNS)


def test_every_column_of_every_record_is_that_of_the_kafka_source(
    spark: SparkSession, small_segments: tuple[Broker, Path]
) -> None:
    broker, directory = small_segments
    ours = read_in_place(spark, broker.bootstrap, TOPIC, [directory], columns=KAFKA_COLUMNS)
    theirs = kafka(spark, broker)
    assert [f.simpleString() for f in ours.schema] == [f.simpleString() for f in theirs.schema]
    assert_frames_equal(ours, theirs)
    plain = spark.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
    plain = plain.option("topic", TOPIC).option("logDirs", str(directory)).load()
    assert plain.columns == KAFKA_COLUMNS[:-1]
    assert plain.where("partition = 1").count() == theirs.where("partition = 1").count() > 800


def test_closed_and_open_segments_are_read_from_files_in_few_tasks(
    spark: SparkSession, small_segments: tuple[Broker, Path]
) -> None:
    broker, directory = small_segments
    schema = type("Schema", (), {"names": ["offset"]})()
    options = {"bootstrap": broker.bootstrap, "topic": TOPIC, "logDirs": str(directory)}
    parts = [p for p in InPlaceReader(options, schema).partitions() if isinstance(p, Pieces)]
    assert [p.partition for p in parts] == [0, 1, 2]        # small segments share a task
    found = [piece.segment for part in parts for piece in part.pieces]
    assert sum(segment is not None and not segment.growing for segment in found) >= 2
    assert [p.partition for p in parts if getattr(p.pieces[-1].segment, "growing", False)]
    assert None not in found


def test_what_is_written_while_the_last_segment_is_read_does_not_disturb(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str]
) -> None:
    assert isinstance(broker, OttlaBroker | KafkaBroker)
    topic = new_topic("growing", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    sent = 0
    for _ in range(3):
        for _ in range(2_000):      # still being sent when the read begins
            producer.produce(topic, b"%d" % sent)
            sent += 1
        frame = read_in_place(
            spark, broker.bootstrap, topic, [broker.directory / "data"], columns=["offset"])
        found = sorted(row.offset for row in frame.collect())
        assert found == list(range(len(found)))
        assert producer.flush(60) == 0
    frame = read_in_place(
        spark, broker.bootstrap, topic, [broker.directory / "data"], columns=["value"])
    assert sorted(int(row.value) for row in frame.collect()) == list(range(sent))


@pytest.mark.parametrize("security", [{}, {"security.protocol": "plaintext"}])
def test_without_files_all_of_it_comes_over_the_wire_with_any_client(
    spark: SparkSession, small_segments: tuple[Broker, Path], security: dict[str, str]
) -> None:
    broker, _ = small_segments
    cluster = Cluster(broker.bootstrap, security)
    ours = read_in_place(spark, cluster, TOPIC, [], columns=KAFKA_COLUMNS)
    assert_frames_equal(ours, kafka(spark, broker))


def test_ranges_of_offsets_and_of_time_are_those_of_the_kafka_source(
    spark: SparkSession, small_segments: tuple[Broker, Path]
) -> None:
    broker, directory = small_segments
    theirs = kafka(
        spark, broker, startingOffsets=f'{{"{TOPIC}":{{"0":250,"1":17,"2":-2}}}}',
        endingOffsets=f'{{"{TOPIC}":{{"0":301,"1":1500,"2":-1}}}}',
    ).select("partition", "offset")  # fmt: skip
    ranges = {"startingOffsets": '{"0":250,"1":17,"2":-2}', "endingOffsets": '{"0":301,"1":1500}'}
    names = ["partition", "offset"]
    ours = read_in_place(spark, broker.bootstrap, TOPIC, [directory], columns=names, options=ranges)
    assert_frames_equal(ours, theirs)
    # The range of times below begins and ends within the first transaction. With a later end, it
    # would always end at that transaction's marker, because the marker has the current time.
    known = [flight.timestamp_ms for flight in read_flights(300)]
    times = known[40], known[280]
    theirs = kafka(
        spark, broker, startingTimestamp=str(times[0]), endingTimestamp=str(times[1]),
        startingOffsetsByTimestampStrategy="latest",
    ).select("partition", "offset")  # fmt: skip
    ours = read_in_place(
        spark, broker.bootstrap, TOPIC, [directory], columns=names, since=times[0], until=times[1]
    )
    assert_frames_equal(ours, theirs)
    assert 0 < theirs.count() < kafka(spark, broker).count()


def test_timestamps_that_the_broker_gave_are_of_type_1(
    spark: SparkSession, small_segments: tuple[Broker, Path]
) -> None:
    broker, directory = small_segments
    topic, admin = "append-time", AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {"message.timestamp.type": "LogAppendTime"}
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20})
    for n in range(20):
        producer.produce(topic, b"%d" % n, timestamp=1_000 + n)
    assert producer.flush(60) == 0
    theirs = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    theirs = theirs.option("subscribe", topic).load()
    ours = read_in_place(spark, broker.bootstrap, topic, [directory])
    assert_frames_equal(ours, theirs.select(*ours.columns))
    assert {row.timestampType for row in ours.collect()} == {1}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"startingOffsets": '{"other":{"0":1}}'}, "startingOffsets has offsets of other"),
        ({"endingOffsets": f'{{"{TOPIC}":{{"0":1}},"other":{{}}}}'},
         "endingOffsets has offsets of other"),
        ({"startingOffsets": '{"3":0}'}, r"names partition 3, .* has only \[0, 1, 2\]"),
        ({"startingOffsets": '{"0":"x"}'}, "startingOffsets of partition 0 is 'x', not an"),
        ({"startingOffsets": '{"0":-1}'}, "startingOffsets of partition 0 is -1, not an"),
        ({"endingOffsets": '{"0":-2}'}, "endingOffsets of partition 0 is -2, not an"),
        ({"startingOffsets": "latest"}, "the query would read nothing"),
        ({"endingOffsets": "earliest"}, "the query would read nothing"),
        ({"startingOffsets": "17"}, "is not valid: expected JSON"),
        ({"startingOffsets": '{"2":2}'}, "ends at .* asked for {2: 2}"),
        ({"endingOffsets": '{"2":2}'}, "ends at .* asked for {2: 2}"),
        ({"startingOffsets": '{"0":300}', "endingOffsets": '{"0":200}'}, "starts after its end"),
        ({"startingOffset": '{"0":300}'}, "has no option startingoffset; its options are"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss must be true or false, not 'no'"),
    ],
)
def test_a_range_that_the_topic_does_not_have_is_refused(
    small_segments: tuple[Broker, Path], options: dict[str, str], error: str
) -> None:
    broker, directory = small_segments
    schema = type("Schema", (), {"names": ["offset"]})()
    given = {"bootstrap": broker.bootstrap, "topic": TOPIC, "logDirs": str(directory)}
    with pytest.raises(PipelineError, match=error):
        InPlaceReader(given | options, schema).partitions()
    if "ends at" in error:
        given["failOnDataLoss"] = "false"
        reader = InPlaceReader(given | options, schema)
        parts = [p for p in reader.partitions() if isinstance(p, Pieces)]
        assert {part.partition for part in parts} >= {0, 1}


def test_files_of_another_topic_are_refused_and_no_files_are_no_matter(
    spark: SparkSession, small_segments: tuple[Broker, Path], tmp_path: Path
) -> None:
    broker, directory = small_segments
    fake = tmp_path / f"{TOPIC}-1"
    fake.mkdir()
    (tmp_path / "meta.properties").write_text((directory / "meta.properties").read_text())
    (fake / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n")
    with pytest.raises(Exception, match="files of another cluster"):
        read_in_place(spark, broker.bootstrap, TOPIC, [tmp_path]).count()
    names = ["partition", "offset"]
    wire = read_in_place(spark, broker.bootstrap, TOPIC, [tmp_path / "none"], columns=names)
    assert_frames_equal(wire, kafka(spark, broker).select(*names))
    with pytest.raises(PipelineError, match="column colour not found"):
        read_in_place(spark, broker.bootstrap, TOPIC, [directory], columns=["colour"])


def test_a_segment_that_is_deleted_after_planning_is_read_over_the_wire(
    spark: SparkSession, small_segments: tuple[Broker, Path]
) -> None:
    broker, directory = small_segments
    schema = type("Schema", (), {"names": ["offset"]})()
    options = {"bootstrap": broker.bootstrap, "topic": TOPIC, "logDirs": str(directory)}
    reader = InPlaceReader(options, schema)
    part = next(p for p in reader.partitions() if isinstance(p, Pieces))
    before = [x for b in reader.read(part) for x in b.column(0).to_pylist()]
    for piece in part.pieces:
        if piece.segment is not None:
            piece.segment = Segment("/nowhere.log", piece.start, piece.end)
    assert [x for b in reader.read(part) for x in b.column(0).to_pylist()] == before
    assert OttlaDataSource.name() == "ottla"


def message(offset: int, error: int | None = None) -> Any:
    """A message as librdkafka returns it: a record, or an error such as the partition's end."""
    failed = None if error is None else confluent_kafka.KafkaError(error)
    return SimpleNamespace(error=lambda: failed, offset=lambda: offset)


@pytest.mark.parametrize(
    ("polls", "read"),
    [
        ([[0, 1], [2], [5]], [0, 1, 2]),                # compaction removed 3 and 4
        ([[-3], [], [0, 1, 2, 3], [-9]], [0, 1, 2, 3]),     # offset 4 is a marker
        ([[0, -1], [1, 2], [3, 4]], [0, 1, 2, 3, 4]),   # a new leader's log seemed to end at 1
        ([[-5]], []),                                   # no record is left
        ([[0, 1, -2], [], [-4], [], [4]], [0, 1, 4]),
    ],
)
def test_a_range_is_read_up_to_its_end_whether_or_not_a_record_is_last(
    polls: list[list[int]], read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The range has offsets 0 to 4. In `polls`, -n stands for the message that the partition ends
    at offset n."""
    left = iter(polls)
    end = confluent_kafka.KafkaError._PARTITION_EOF
    consumer = SimpleNamespace(
        assign=lambda _: None, close=lambda: None,
        consume=lambda *_: [message(abs(n), end if n < 0 else None) for n in next(left)],
    )
    monkeypatch.setattr(confluent_kafka, "Consumer", lambda _: consumer)
    schema = type("Schema", (), {"names": ["offset"]})()
    reader = InPlaceReader({"bootstrap": "nowhere:9092", "topic": TOPIC}, schema)
    assert [n for b in reader._consume(0, 0, 5) for n in b.column(0).to_pylist()] == read
    assert next(left, None) is None


def test_a_range_whose_records_do_not_come_is_an_error_of_that_offset(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = SimpleNamespace(
        assign=lambda _: None, close=lambda: None,
        consume=lambda *_: [message(3, confluent_kafka.KafkaError._PARTITION_EOF)],
    )
    monkeypatch.setattr(confluent_kafka, "Consumer", lambda _: consumer)
    monkeypatch.setattr(source, "WIRE_SECONDS", -1)
    schema = type("Schema", (), {"names": ["offset"]})()
    reader = InPlaceReader({"bootstrap": "nowhere:9092", "topic": TOPIC}, schema)
    with pytest.raises(PipelineError, match="in-place-0: no record at or after offset 3 was"):
        list(reader._consume(0, 0, 5))


@pytest.mark.parametrize("name", ["GROUP_AUTHORIZATION_FAILED", "_ALL_BROKERS_DOWN", "_TRANSPORT"])
def test_an_error_after_which_the_consumer_goes_on_ends_no_query(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer looks for the coordinator of its group, although it is not a member. Its user may
    lack the right to read the group."""
    code = getattr(confluent_kafka.KafkaError, name)
    polls = iter([[message(0), message(0, code)], [message(1)]])
    consumer = SimpleNamespace(
        assign=lambda _: None, close=lambda: None, consume=lambda *_: next(polls))
    monkeypatch.setattr(confluent_kafka, "Consumer", lambda _: consumer)
    schema = type("Schema", (), {"names": ["offset"]})()
    reader = InPlaceReader({"bootstrap": "nowhere:9092", "topic": TOPIC}, schema)
    assert [n for b in reader._consume(0, 0, 2) for n in b.column(0).to_pylist()] == [0, 1]


@pytest.mark.parametrize("security", ["{}", '{"security.protocol": "plaintext"}'])
def test_records_that_are_deleted_while_the_query_runs_end_it_unless_it_allows_gaps(
    broker: Broker, new_topic: Callable[..., str], security: str
) -> None:
    topic = new_topic("deleted-meanwhile", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(10):
        producer.produce(topic, b"%d" % n)
    assert producer.flush(60) == 0
    schema = type("Schema", (), {"names": ["offset"]})()
    given = {"bootstrap": broker.bootstrap, "topic": topic, "security": security}
    strict, lax = (InPlaceReader({**given, "failOnDataLoss": each}, schema)
                   for each in ("true", "false"))  # fmt: skip
    [part], [same] = strict.partitions(), lax.partitions()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [done] = admin.delete_records([TopicPartition(topic, 0, 7)]).values()
    done.result(60)
    with pytest.raises(DataLost):
        list(strict.read(part))
    assert [n for b in lax.read(same) for n in b.column(0).to_pylist()] == [7, 8, 9]


def test_the_helpers_for_users_tests_find_what_differs(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    from ottla.spark_interop import stream_topic, write_topic

    topic = new_topic("orders", 1)
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "n INT, s STRING")
    write_topic(frame, broker.bootstrap, topic)
    stream = stream_topic(spark, broker.bootstrap, topic, format="json", schema="n INT, s STRING")
    writer = stream.select("n", "s").writeStream.format("parquet")
    reports = run_available_now(writer, tmp_path / "c", tmp_path / "out")
    assert sum(r["numInputRows"] for r in reports) == 2
    assert_frames_equal(spark.read.parquet(str(tmp_path / "out")), [(2, "b"), (1, "a")])
    assert read_topic(spark, broker.bootstrap, topic).count() == 2
    with pytest.raises(AssertionError, match=r"missing 1 row of .*: \[\(3, 'c'\)\]"):
        assert_frames_equal(frame, [(1, "a"), (2, "b"), (3, "c")])
    with pytest.raises(AssertionError, match="row 0"):
        assert_frames_equal(frame, [(2, "b"), (1, "a")], ordered=True)
