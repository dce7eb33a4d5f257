"""Consume, transform and produce at most once: no record is written twice, but a crash may lose the
records of the current batch.

    python at_most_once.py localhost:9092 SOURCE SINK

The program commits the offsets of a batch before it writes the records. An error ends the program;
after a restart it continues at the committed offsets. But if the client gives up writing a record,
the record is lost and the program continues. SIGTERM ends the program after the current batch.
"""

from __future__ import annotations

import signal
import sys
import threading

from confluent_kafka import Consumer, KafkaException, Message, Producer

BATCH = 20


def transform(value: bytes) -> bytes:
    return value.upper()


def take(consumer: Consumer) -> list[Message]:
    """The next records, perhaps none."""
    messages: list[Message] = consumer.consume(BATCH, timeout=0.2)
    for message in messages:
        if message.error() is not None:
            raise KafkaException(message.error())
    return messages


def run(bootstrap: str, source: str, sink: str, stopping: threading.Event) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{source}-to-{sink}",
            # A restarted program is the same member: it gets its partitions back at once.
            "group.instance.id": "1",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    # Without idempotence a retry inside the client could write a record twice.
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    consumer.subscribe([source])
    while not stopping.is_set():
        messages = take(consumer)
        if not messages:
            continue
        consumer.commit(asynchronous=False)
        for message in messages:
            producer.produce(sink, transform(message.value()), message.key())
        producer.flush()
    consumer.close()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    run(*sys.argv[1:4], stop)
