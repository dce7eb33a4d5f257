"""`read_topic`, `stream_topic` and `write_topic` read and write every format, and refuse invalid
arguments.

The tests write and read Avro values with fastavro, and protobuf values with Google's library.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import SparkSession

from compat_tests.brokers import Broker
from compat_tests.spark_flights import AVRO_1, AVRO_2, confluent
from ottla.spark_interop import read_topic, session, spark_session, stream_topic, write_topic
from ottla.spark_interop.errors import PipelineError, SparkUnavailable
from ottla.spark_interop.pipelines import dead_letter

PROTO = """
syntax = "proto3";
package flights;
import "google/protobuf/timestamp.proto";
message Flight {
  string carrier = 1; optional int32 delay = 2; int64 distance = 3; repeated string stops = 4;
  map<string, double> weights = 5; Plane plane = 6; bytes seal = 7; Kind kind = 8;
  google.protobuf.Timestamp at = 9;
  message Plane { string tail = 1; }
  enum Kind { UNKNOWN = 0; CARGO = 1; }
}
message Airport { string code = 1; }
"""


@pytest.fixture
def send(broker: Broker, new_topic: Callable[..., str]) -> Callable[..., str]:
    """`send(values)` creates a topic with one partition and these values, and returns its name.
    Record n has the timestamp 1000 + n."""

    def to_new_topic(values: list[bytes | None], **more: Any) -> str:
        topic = new_topic("formats", 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number, value in enumerate(values):
            producer.produce(topic, value, b"k%d" % number, timestamp=1_000 + number, **more)
        assert producer.flush(60) == 0
        return topic

    return to_new_topic


def values_of(broker: Broker, topic: str, count: int) -> list[bytes | None]:
    """What a stock consumer reads from partition 0."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(count, 30)
    consumer.close()
    assert [m.error() for m in messages] == [None] * count
    return [m.value() for m in messages]


def rows(frame: Any, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.orderBy("_offset").select(*columns).collect()]


def test_raw_values_keep_everything_of_a_record(
    spark: SparkSession, broker: Broker, send: Callable[..., str]
) -> None:
    topic = send([b"\xff\x00", None], headers=[("trace", b"\x01"), ("none", None)])
    frame = read_topic(spark, broker.bootstrap, topic)
    first, second = frame.orderBy("_offset").collect()
    assert (first.value, first._key, first._partition, first._offset) == (b"\xff\x00", b"k0", 0, 0)
    assert first._timestamp.timestamp() == 1.0
    assert [tuple(h) for h in first._headers] == [("trace", b"\x01"), ("none", None)]
    assert (second.value, second._value, second._error) == (None, None, None)


def test_text_that_is_not_utf8_is_an_error_and_keeps_its_bytes(
    spark: SparkSession, broker: Broker, send: Callable[..., str]
) -> None:
    topic = send(["zażółć".encode(), b"\xff", None])
    frame = read_topic(spark, broker.bootstrap, topic, format="text")
    assert rows(frame, "value", "_value", "_error") == [
        ("zażółć", "zażółć".encode(), None),
        (None, b"\xff", "the value is not UTF-8"),
        (None, None, None),
    ]


def test_bad_json_is_kept_with_its_bytes_and_its_reason(
    spark: SparkSession, broker: Broker, send: Callable[..., str]
) -> None:
    bad = [b"{", b"", b"[1]", b'{"n":"x"}', b'{"n":1.5}', b"\xff", b'{"s":"a"}', b"null"]
    topic = send([b'{"n":1,"s":"a","more":true}', *bad, None])
    frame = read_topic(
        spark, broker.bootstrap, topic, format="json", schema="n INT NOT NULL, s STRING"
    )
    got = rows(frame, "n", "s", "_value", "_error")
    assert got[0] == (1, "a", b'{"n":1,"s":"a","more":true}', None)
    assert [row[2] for row in got[1:-1]] == bad
    assert all(row[:2] == (None, None) and row[3] for row in got[1:-1]), got
    assert "NOT NULL" in got[7][3]
    assert got[-1] == (None, None, None, None)


def test_failfast_names_the_record(
    spark: SparkSession, broker: Broker, send: Callable[..., str]
) -> None:
    topic = send([b'{"n":1}', b"{"])
    frame = read_topic(
        spark, broker.bootstrap, topic, format="json", schema="n INT", mode="failfast"
    )
    with pytest.raises(PySparkException, match=rf"bad record at {topic}-0 offset 1: the value is"):
        frame.select("n").collect()
    for others in (frame.select("_offset").collect, frame.count):
        with pytest.raises(PySparkException, match="bad record at"):
            others()


@pytest.mark.parametrize(("how", "column", "good", "bad", "reason"), [
    ({"format": "protobuf", "schema": PROTO}, "carrier", b"\x0a\x02UA", b"\x0a\x05UA",
     "does not match protobuf schema 0"),
    ({"format": "text"}, "value", b"UA", b"\xff", "is not UTF-8"),
], ids=["protobuf", "text"])  # fmt: skip
def test_failfast_names_the_record_whatever_columns_are_selected(
    spark: SparkSession, broker: Broker, send: Callable[..., str], how: dict[str, Any],
    column: str, good: bytes, bad: bytes, reason: str,
) -> None:  # fmt: skip
    sound = read_topic(spark, broker.bootstrap, send([good]), mode="failfast", **how)
    assert rows(sound, column) == [("UA",)]
    topic = send([good, bad])
    frame = read_topic(spark, broker.bootstrap, topic, mode="failfast", **how)
    found = rf"bad record at {topic}-0 offset 1: the value {reason}"
    for ask in (frame.select(column).collect, frame.select("_offset").collect, frame.count):
        with pytest.raises(PySparkException, match=found):
            ask()


def test_text_that_spark_takes_for_json_is_an_error(
    spark: SparkSession, broker: Broker, send: Callable[..., str]
) -> None:
    bad = [
        b'{"a":1}{"a":2}', b'{"a":1} x', b'{"a":1},{"a":2}', b'{"a":1}]', b'{"a":1}}', b"{'a':1}",
        b'{"a":1},"b":2', b'{"d":1e999}', b'{"d":-1e999}', b'{"d":NaN}', b'{"t":"12:00"}',
        b'{"t":"T12:00:00Z"}', b'{"l":[{"d":1},{"d":1e999}]}', b'{"m":{"x":"12:00"}}',
        b'{"t":"1\\u0032:00"}', b'{"d":"Infinity","l":[{"d":1e999}]}', b'{"d":"NaN","x":-Infinity}',
    ]  # fmt: skip
    good = [
        b' {"a":1}\n', b'{"d":1e300}', b'{"d":"Infinity"}', b'{"d":"NaN"}', b"{}", b'{"d":null}',
        b'{"t":"2026-11-27T12:00:00Z"}', b'{"t":"2026-11-27 12:00"}', b'{"t":"2026-11-27"}',
        b'{"l":[{"d":1},null]}', b'{"m":{"x":"2026-11-27T12:00:00Z"}}', b'{"x":"\\"}]"}',
        b'{"d":"-Infinity","t":"2026-11-27","x":", NaN, 12:00"}',
    ]  # fmt: skip
    topic = send([*bad, *good])
    schema = "a INT, d DOUBLE, t TIMESTAMP, l ARRAY<STRUCT<d: FLOAT>>, m MAP<STRING, TIMESTAMP>"
    frame = read_topic(spark, broker.bootstrap, topic, format="json", schema=schema)
    got = rows(frame, "_value", "_error")
    assert [value for value, error in got if error is not None] == bad
    assert [value for value, error in got if error is None] == good
    plain = read_topic(spark, broker.bootstrap, topic, format="json", schema="a INT")
    assert [value for value, error in rows(plain, "_value", "_error") if error] == [
        *bad[:7], b'{"d":NaN}', bad[-1]
    ]  # fmt: skip


@pytest.mark.parametrize("registered", [False, True])
def test_bytes_that_are_not_avro_are_an_error_and_a_record_of_nulls_is_not(
    spark: SparkSession, broker: Broker, send: Callable[..., str], tmp_path: Path, registered: bool
) -> None:
    fields = [{"name": name, "type": ["null", "string"], "default": None} for name in "ab"]
    schema = {"type": "record", "name": "Pair", "fields": fields}
    (tmp_path / "3.avsc").write_text(json.dumps(schema))
    prefix = b"\x00\x00\x00\x00\x03" if registered else b""
    good = [b"\x00\x00", b"\x02\x04UA\x00"]
    bad = [b"\xff" * 5, b"", b"\x02\x04U", b"\x00", b"\x00\x00\x00", b"\x00\x00\xff", b"{}"]
    topic = send([prefix + value for value in [*good, *bad]])
    how = {"schemas": tmp_path} if registered else {"schema": json.dumps(schema)}
    frame = read_topic(spark, broker.bootstrap, topic, format="avro", **how)
    got = rows(frame, "a", "b", "_error")
    assert got[:2] == [(None, None, None), ("UA", None, None)]
    assert all(row[:2] == (None, None) and "does not match" in row[2] for row in got[2:]), got
    frame = read_topic(spark, broker.bootstrap, topic, format="avro", mode="failfast", **how)
    with pytest.raises(PySparkException, match="bad record at"):
        frame.select("_offset").collect()


def test_avro_of_several_schemas_is_read_as_the_newest(
    spark: SparkSession, broker: Broker, send: Callable[..., str], tmp_path: Path
) -> None:
    for number, schema in ((3, AVRO_1), (11, AVRO_2)):
        (tmp_path / f"{number}.avsc").write_text(json.dumps(schema))
    topic = send([
        confluent(3, AVRO_1, {"carrier": "UA", "delay": None}),
        confluent(11, AVRO_2, {"carrier": "AA", "delay": -5, "origin": "JFK"}),
        b"\x00\x00\x00\x00\x07rest",
        b"plain",
        b"\x00\x00\x00\x00\x0b\xff\xff",
        None,
    ])  # fmt: skip
    frame = read_topic(spark, broker.bootstrap, topic, format="avro", schemas=tmp_path)
    got = rows(frame, "carrier", "delay", "origin", "_error")
    assert got[:2] == [("UA", None, "???", None), ("AA", -5, "JFK", None)]
    assert "schema id 7 is unknown (known: 3, 11)" in got[2][3]
    assert "wire format" in got[3][3]
    assert got[4][3] == "the value does not match Avro schema 11"
    assert got[5] == (None, None, None, None)


def test_avro_is_written_in_the_wire_format_with_the_newest_schema(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "258.avsc").write_text(json.dumps(AVRO_1))
    topic = new_topic("avro", 1)
    frame = spark.createDataFrame([("UA", 7)], "carrier STRING NOT NULL, delay INT")
    write_topic(frame, broker.bootstrap, topic, format="avro", schemas=tmp_path)
    [value] = values_of(broker, topic, 1)
    assert value is not None and value[:5] == b"\x00\x00\x00\x01\x02"
    read = fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(AVRO_1), None)
    assert read == {"carrier": "UA", "delay": 7}


def test_protobuf_goes_there_and_back_with_every_kind_of_field(
    spark: SparkSession, broker: Broker, send: Callable[..., str], tmp_path: Path
) -> None:
    from ottla.spark_interop.protobuf import compile_proto, message_class

    (tmp_path / "5.proto").write_text(PROTO)
    flight = message_class(compile_proto(PROTO), "flights.Flight")
    message = flight(carrier="UA", distance=2**40, stops=["A", "B"], weights={"a": 0.5},
                     plane={"tail": "N1"}, seal=b"\xff", kind=1)  # fmt: skip
    message.at.FromJsonString("2013-06-01T10:00:00Z")
    prefix = b"\x00\x00\x00\x00\x05"
    airport = message_class(compile_proto(PROTO), "flights.Airport")(code="JFK")
    topic = send([
        prefix + b"\x00" + message.SerializeToString(),
        prefix + b"\x02\x02" + airport.SerializeToString(),  # path [1] names another message
        prefix + b"\x00\xff",
        b"\x00\x00\x00\x00\x06\x00",
        None,
    ])  # fmt: skip
    frame = read_topic(spark, broker.bootstrap, topic, format="protobuf", schemas=tmp_path)
    got = frame.orderBy("_offset").collect()
    one = got[0]
    assert (one.carrier, one.delay, one.distance, one.stops) == ("UA", None, 2**40, ["A", "B"])
    assert (one.weights, one.plane.tail, one.seal, one.kind) == ({"a": 0.5}, "N1", b"\xff", "CARGO")
    assert one.at.replace(tzinfo=UTC) == datetime(2013, 6, 1, 10, tzinfo=UTC)
    assert "flights.Airport" in got[1]._error
    assert "does not match protobuf schema 5" in got[2]._error
    assert "schema id 6 is unknown (known: 5)" in got[3]._error
    assert got[4]._error is None

    back = new = send([])
    columns = frame.where("_offset = 0").select("carrier", "delay", "distance", "stops")
    write_topic(columns, broker.bootstrap, back, format="protobuf", schemas=tmp_path)
    [value] = values_of(broker, new, 1)
    assert value is not None and value[:6] == prefix + b"\x00"
    copy = flight.FromString(value[6:])
    assert (copy.carrier, copy.HasField("delay"), copy.distance) == ("UA", False, 2**40)


def test_a_slice_by_time_goes_by_the_zone_it_names(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("hours", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    midnight = 1_370_059_200_000  # 2013-06-01T00:00 in New York
    for hour in range(-2, 3):
        producer.produce(topic, str(hour), timestamp=midnight + hour * 3_600_000)
    assert producer.flush(60) == 0
    frame = read_topic(spark, broker.bootstrap, topic, format="text", since="2013-06-01",
                       until="2013-06-01T02:00", time_zone="America/New_York")  # fmt: skip
    assert [row[0] for row in rows(frame, "value")] == ["0", "1"]


def test_json_is_written_with_keys_and_headers_and_streamed_back(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], directory: Path
) -> None:
    source, copy = new_topic("rows", 2), new_topic("rows-copy", 2)
    frame = spark.createDataFrame(
        [("a", 1, 1), ("b", None, 0)], "name STRING, n INT, _to INT"
    ).selectExpr("*", "array(struct('h' AS key, cast('x' AS BINARY) AS value)) AS _marks")
    write_topic(frame, broker.bootstrap, source, key="name", headers="_marks", partition="_to")
    stream = stream_topic(
        spark, broker.bootstrap, source, format="json", schema="name STRING, n INT"
    )
    query = write_topic(stream, broker.bootstrap, copy, key="_key", checkpoint=directory / "c")
    query.processAllAvailable()
    query.stop()
    got = read_topic(spark, broker.bootstrap, source).orderBy("value").collect()
    assert [(r._key, r.value, r._partition, r._headers[0].key) for r in got] == [
        (b"a", b'{"name":"a","n":1}', 1, "h"),
        (b"b", b'{"name":"b","n":null}', 0, "h"),
    ]
    again = read_topic(spark, broker.bootstrap, copy).orderBy("value").collect()
    assert [(r._key, r.value) for r in again] == [(r._key, r.value) for r in got]


def test_a_running_session_without_the_connector_is_refused_with_what_to_add(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert session() is spark
    monkeypatch.setattr(spark_session, "KAFKA_SOURCE", "org.apache.spark.sql.kafka010.NotThere")
    with pytest.raises(SparkUnavailable, match=r"stop it first, .* spark\.jars\.packages=org"):
        session()


def test_what_cannot_be_is_refused_before_anything_runs(
    spark: SparkSession, broker: Broker, send: Callable[..., str], tmp_path: Path
) -> None:
    topic = send([b"x"])

    def refused(match: str, **more: Any) -> None:
        with pytest.raises(PipelineError, match=match):
            read_topic(spark, broker.bootstrap, more.pop("topic", topic), **more)

    refused(f"topic {topic}x not found at .*did you mean {topic}", topic=topic + "x")
    refused("is not valid for `format`: the formats are raw, text", format="xml")
    refused("`schema` is missing", format="json")
    refused("cannot be read as DDL", format="json", schema="n INTT")
    refused("has no schema: expected files like 1.avsc", format="avro", schemas=tmp_path)
    refused("is not a mode", mode="lenient")
    refused("is not a time", since="yesterday")
    refused("occurs twice in America", since="2013-11-03T01:30", time_zone="America/New_York")
    refused("reserved for the record's own fields", format="json", schema="_offset LONG")
    with pytest.raises(PipelineError, match=r"no broker answers at 127\.0\.0\.1:1"):
        read_topic(spark, "127.0.0.1:1", topic)


def test_a_function_gets_records_of_any_year() -> None:
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
