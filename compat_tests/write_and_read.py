"""Stock clients write records and read them back, with whatever login a test uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def by_librdkafka(settings: Mapping[str, Any], topic: str, values: Sequence[bytes]) -> None:
    """Write the values to partition 0 of a new topic, and read them in a group. The broker creates
    the topic at the first write."""
    producer = Producer(dict(settings))
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read = []
    while len(read) < len(values):
        message = consumer.poll(30)
        assert message is not None and message.error() is None
        read.append(message.value())
    consumer.close()
    assert read == list(values)


def by_spark(
    spark: SparkSession, topic: str, settings: Mapping[str, str], bootstrap: str
) -> None:
    """Write a thousand rows with Spark's sink and read them with its source. `settings` are those
    of the Java clients."""
    options = {f"kafka.{name}": text for name, text in settings.items()}
    options["kafka.bootstrap.servers"] = bootstrap
    rows = spark.range(1000).selectExpr("cast(id as string) as key", "cast(id * 2 as string) value")
    rows.write.format("kafka").options(**options).option("topic", topic).save()
    frame = spark.read.format("kafka").options(**options).option("subscribe", topic).load()
    found = frame.selectExpr("cast(key as string)", "cast(value as string)").collect()
    assert sorted(int(row.key) for row in found) == list(range(1000))
    assert all(int(row.value) == 2 * int(row.key) for row in found)
