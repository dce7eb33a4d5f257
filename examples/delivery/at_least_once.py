"""Consume, transform and produce at least once: no record is lost, but after a crash the program
may write the records of the current batch a second time.

    python at_least_once.py localhost:9092 SOURCE SINK

The program commits the offsets of a batch after all records of the batch have been acknowledged.
Any error ends the program; after a restart it continues at the committed offsets. Ctrl-C or SIGTERM
ends the program after the current batch.
"""

from __future__ import annotations

import signal
import sys
import threading

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

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


def check(error: KafkaError | None, message: Message) -> None:
    """Raise if a record was not written, so that its offset is not committed. `flush` calls this
    for each record."""
    if error is not None:
        raise KafkaException(error)


def run(bootstrap: str, source: str, sink: str, stopping: threading.Event) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            # Otherwise librdkafka logs 20 failed connections a second while no broker answers.
            "metadata.recovery.strategy": "none",
        }
    )
    producer.list_topics(timeout=5)         # ends the program if no broker answers
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
    consumer.subscribe([source])
    while not stopping.is_set():
        messages = take(consumer)
        if not messages:
            continue
        for message in messages:
            producer.produce(sink, transform(message.value()), message.key(), on_delivery=check)
        producer.flush()
        consumer.commit(asynchronous=False)
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
        sys.exit(f"at_least_once.py: {error.args[0].str()}")
