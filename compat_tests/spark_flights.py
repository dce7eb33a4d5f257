"""For tests of pipelines: reads topics of flights as tuples, and encodes flights as Avro."""

from __future__ import annotations

import io
import struct
from typing import Any

import fastavro
from confluent_kafka import Consumer, KafkaError, TopicPartition

from compat_tests.brokers import Broker
from compat_tests.flights import LoadedTopic
from ottla.spark_interop.cluster import Cluster

FLIGHTS = 4_000
PASSING = {"_TRANSPORT", "_ALL_BROKERS_DOWN"}
AVRO_1 = {"type": "record", "name": "Flight", "fields": [
    {"name": "carrier", "type": "string"}, {"name": "delay", "type": ["null", "int"]}]}  # fmt: skip
AVRO_2 = {"type": "record", "name": "Flight", "fields": [
    *AVRO_1["fields"], {"name": "origin", "type": "string", "default": "???"}]}  # fmt: skip


def committed_lines(broker: Broker, topic: str) -> list[tuple[int, int, bytes, bytes]]:
    """(partition, timestamp in ms, key, value) of each record that a stock read_committed consumer
    gets up to the end of the topic."""
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.partition.eof": True,
        "isolation.level": "read_committed",
    })  # fmt: skip
    partitions = list(Cluster(broker.bootstrap).partitions(topic))
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    found, ended = [], set()
    while len(ended) < len(partitions):
        for message in consumer.consume(1000, 0.2):
            if (error := message.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                else:               # a broker was killed
                    assert error.name() in PASSING, error
            else:
                time_ms = message.timestamp()[1]
                found.append((message.partition(), time_ms, message.key(), message.value()))
    consumer.close()
    return found


def source_lines(loaded: LoadedTopic) -> list[tuple[int, int, bytes, bytes]]:
    return [(p, e.timestamp_ms, e.key, e.value) for p, es in loaded.events.items() for e in es]


def confluent(number: int, schema: dict[str, Any], record: dict[str, Any]) -> bytes:
    """A record in Avro as Confluent's serializer writes it; `number` is the schema's id."""
    out = io.BytesIO(struct.pack(">bI", 0, number))
    out.seek(5)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()
