"""The broker is killed ten times under load: no acknowledged record is lost, and none is served
twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests import readers
from compat_tests.brokers import Broker
from compat_tests.flights import Lines

TOPIC = "survivors"
KILLS = 10
ACKNOWLEDGED_A_ROUND = 3_000


class Load:
    """An idempotent producer with acks=all in a thread, and the answers it got.

    Between `go` and `rest` it sends continuously, so that a kill happens under load.
    """

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self.refused: list[str] = []
        self.sent = 0
        self._more = threading.Condition()
        self._stopping = False
        self._going = False
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 200,
                "queue.buffering.max.messages": 20_000,
                "batch.num.messages": 100,  # many small batches, so that a kill interrupts some
            }
        )
        self._thread = threading.Thread(target=self._run, name="load")
        self._thread.start()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        with self._more:
            if error is not None:
                self.refused.append(str(error))
            else:
                where = (message.partition(), message.offset())
                self.acknowledged[message.value()] = where
            self._more.notify_all()

    def _run(self) -> None:
        while not self._stopping:
            if not self._going:
                self._producer.poll(0.01)
                continue
            try:
                value = b"value-%09d" % self.sent
                self._producer.produce(
                    TOPIC, value, partition=self.sent % 3, on_delivery=self._delivered
                )
                self.sent += 1
                self._producer.poll(0)
            except BufferError:
                self._producer.poll(0.01)
        self._producer.flush(120)

    def go(self) -> None:
        """Start to send as fast as possible."""
        self._going = True

    def rest(self) -> None:
        """Send no new records; those sent before are retried until they are acknowledged."""
        self._going = False

    def wait_until(self, wanted: int) -> None:
        """Wait until that many records are acknowledged."""
        with self._more:
            done = self._more.wait_for(lambda: self.refused or len(self.acknowledged) >= wanted, 60)
        assert not self.refused, self.refused[0]
        assert done, f"only {len(self.acknowledged)} of {wanted} records acknowledged within 60 s"

    def snapshot(self) -> dict[bytes, tuple[int, int]]:
        """The values acknowledged so far, with partition and offset."""
        with self._more:
            return dict(self.acknowledged)

    def stop(self) -> None:
        """Send no more and wait for every answer."""
        self._stopping = True
        self._thread.join()


def check(read: Lines, acknowledged: dict[bytes, tuple[int, int]]) -> int:
    """Check that every acknowledged value is at its offset, and every value is there once; return
    the number of values."""
    served: dict[bytes, tuple[int, int]] = {}
    for partition, lines in read.items():
        for number, text in enumerate(lines):
            offset, value = int(text.split(b"\t", 2)[1]), text.rpartition(b"\t")[2]
            assert offset == number, f"partition {partition}: offset {offset} after {number - 1}"
            assert value not in served, f"{value!r} at {served[value]} and at {(partition, offset)}"
            served[value] = (partition, offset)
    for value, where in acknowledged.items():
        assert value in served, f"{value!r}, acknowledged at {where}, is lost"
        assert served[value] == where, f"{value!r}, acknowledged at {where}, is at {served[value]}"
    return len(served)


def test_ten_kills_lose_nothing_and_double_nothing(
    new_broker: Callable[..., Broker], directory: Path
) -> None:
    broker = new_broker()
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 3, 1)])[TOPIC].result(60)
    load = Load(broker.bootstrap)
    try:
        for kill in range(KILLS):
            load.go()
            load.wait_until(len(load.acknowledged) + ACKNOWLEDGED_A_ROUND + 100 * kill)
            broker.kill()
            load.rest()
            before = load.snapshot()
            assert load.sent > len(before), "nothing was under way"
            broker.start()
            # Read while the producer retries: all that was acknowledged before the kill is there.
            check(readers.read_with_kcat(broker.bootstrap, TOPIC), before)
        load.wait_until(load.sent)
    finally:
        load.stop()
    assert not load.refused
    read = readers.read_with_kcat(broker.bootstrap, TOPIC)
    assert check(read, load.snapshot()) == load.sent
    broker.stop()
