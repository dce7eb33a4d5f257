"""Consume, transform and produce exactly once: one transaction commits the written records together
with the offsets of the records that were read.

    python exactly_once.py localhost:9092 SOURCE SINK

Consumers of SINK must read only committed records (`isolation.level=read_committed`, which is the
default of librdkafka but not of the Java client). After an error that requires an abort, the
program aborts the transaction and reads its records again; any other error ends the program. After
a restart, the program aborts a transaction that it had left open, and continues. Ctrl-C or SIGTERM
ends the program after the current transaction.
"""

from __future__ import annotations

import signal
import sys
import threading

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

BATCH = 20


def transform(value: bytes | None) -> bytes | None:
    return value and value.upper()      # a null value stays null


def take(consumer: Consumer) -> list[Message]:
    """The next records, perhaps none."""
    messages: list[Message] = consumer.consume(BATCH, timeout=0.2)
    for message in messages:
        if message.error() is not None:
            raise KafkaException(message.error())
    return messages


def rewind(consumer: Consumer) -> None:
    """Go back to the committed offsets: the records of an aborted transaction are read again."""
    for at in consumer.committed(consumer.assignment()):
        offset = at.offset if at.offset >= 0 else OFFSET_BEGINNING
        consumer.seek(TopicPartition(at.topic, at.partition, offset))


def run(bootstrap: str, source: str, sink: str, stopping: threading.Event) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            # With the same id, a restarted program fences a former process that still runs.
            "transactional.id": f"{source}-to-{sink}",
            # Without this setting, librdkafka's send_offsets_to_transaction may wait for ever if no
            # broker was reachable (https://github.com/confluentinc/librdkafka/issues/5511).
            "metadata.recovery.strategy": "none",
        }
    )
    producer.list_topics(timeout=5)         # ends the program if no broker answers
    producer.init_transactions()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{source}-to-{sink}",
            # A restarted program is the same member: it gets its partitions back at once.
            "group.instance.id": "1",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([source])
    while not stopping.is_set():
        messages = take(consumer)
        if not messages:
            continue
        try:
            producer.begin_transaction()
            for message in messages:
                producer.produce(sink, transform(message.value()), message.key())
            positions = consumer.position(consumer.assignment())
            # The group's metadata lets the broker refuse a member that has lost its partitions.
            group = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction(positions, group)
            producer.commit_transaction()
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction()
            rewind(consumer)
    consumer.close()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        run(*sys.argv[1:4], stop)
    except KafkaException as error:
        sys.exit(f"exactly_once.py: {error.args[0].str()}")
