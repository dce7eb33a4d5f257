"""Functions that read a whole topic, each with a different client, and return flights.py's `Lines`.

All clients read assigned partitions, not as members of a group.
"""

from __future__ import annotations

import asyncio
import subprocess
from functools import partial

from compat_tests.flights import Lines, by_partition, line
from compat_tests.librdkafka_answers import answer_of
from compat_tests.requirements import java_client, program


def output_of(command: list[str], seconds: float = 120) -> bytes:
    """What a command prints. If the command fails, raises AssertionError with its error output."""
    done = subprocess.run(command, capture_output=True, timeout=seconds)
    complaint = done.stderr.decode(errors="replace")[-3000:]
    assert done.returncode == 0, f"{command[0]} ended with {done.returncode}\n{complaint}"
    return done.stdout


def read_with_kcat(bootstrap: str, topic: str) -> Lines:
    """kcat reads all partitions to their ends with librdkafka's simple consumer."""
    form = r"%p\t%o\t%T\t%k\t%s\n"
    command = [
        program("kcat"),
        "-C",
        "-q",
        "-e",
        "-b",
        bootstrap,
        "-t",
        topic,
        "-o",
        "beginning",
        "-f",
        form,
    ]
    return by_partition(output_of(command).splitlines())


def read_with_java(version: str, bootstrap: str, topic: str) -> Lines:
    """The Java client of the release `version`."""
    return by_partition(output_of(java_client(version, "read", bootstrap, topic)).splitlines())


def read_with_confluent_kafka(bootstrap: str, topic: str) -> Lines:
    """confluent-kafka; the library requires a group id, which is not used."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "assigned-only", "enable.auto.commit": False}
    )
    partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
    ends = {
        p: answer_of(partial(consumer.get_watermark_offsets, TopicPartition(topic, p), 60))[1]
        for p in partitions
    }
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    lines: Lines = {p: [] for p in partitions if ends[p]}
    left = sum(ends.values())
    while left > 0:
        messages = consumer.consume(min(left, 10_000), timeout=60)
        assert messages, f"nothing within 60 s, {left} records missing"
        for message in messages:
            assert message.error() is None, message.error()
            partition = message.partition()
            timestamp_ms = message.timestamp()[1]
            lines[partition].append(
                line(partition, message.offset(), timestamp_ms, message.key(), message.value())
            )
        left -= len(messages)
    consumer.close()
    return lines


def read_with_kafka_python(bootstrap: str, topic: str) -> Lines:
    """kafka-python."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False)
    partitions = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic))]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    ends = consumer.end_offsets(partitions)
    lines: Lines = {p.partition: [] for p in partitions if ends[p]}
    while any(consumer.position(p) < ends[p] for p in partitions):
        polled = consumer.poll(timeout_ms=60_000, max_records=10_000)
        assert polled, "nothing within 60 s"
        for partition, records in polled.items():
            lines[partition.partition] += [
                line(partition.partition, r.offset, r.timestamp, r.key, r.value) for r in records
            ]
    consumer.close()
    return lines


def read_with_aiokafka(bootstrap: str, topic: str) -> Lines:
    """aiokafka."""
    return asyncio.run(_read_with_aiokafka(bootstrap, topic))


async def _read_with_aiokafka(bootstrap: str, topic: str) -> Lines:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        partitions = sorted(consumer.assignment())
        ends = await consumer.end_offsets(partitions)
        lines: Lines = {p.partition: [] for p in partitions if ends[p]}
        left = sum(ends.values())
        while left > 0:
            polled = await consumer.getmany(timeout_ms=60_000, max_records=10_000)
            assert polled, f"nothing within 60 s, {left} records missing"
            for partition, records in polled.items():
                left -= len(records)
                lines[TopicPartition(*partition).partition] += [
                    line(r.partition, r.offset, r.timestamp, r.key, r.value) for r in records
                ]
        return lines
    finally:
        await consumer.stop()
