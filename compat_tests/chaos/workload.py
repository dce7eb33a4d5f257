"""Stock clients, each in a thread.

With librdkafka: idempotent and transactional producers, consumers with both isolation levels, and
members of a KIP-848 group. With kafka-python: members of a classic group.
"""

from __future__ import annotations

import faulthandler
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from kafka import ConsumerRebalanceListener, KafkaConsumer
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PythonPartition

from compat_tests.chaos.history import History, Process
from compat_tests.chaos.witness import Witness

PLAIN, TRANSACTED = "plain", "transacted"
PARTITIONS = {PLAIN: 6, TRANSACTED: 3}
GROUP, NEW_GROUP = "members", "new-members"
TRANSACTION_SECONDS = 20
DELIVERY_MS = 180_000


class Workload:
    """The clients of a run; `stop` ends them, and `failures` has what they raised."""

    def __init__(
        self, brokers: dict[int, str], history: History, seed: int, pause: float
    ) -> None:
        """`brokers` has each broker's address by node id."""
        self.brokers, self.bootstrap = brokers, ",".join(brokers.values())
        self.history, self.seed, self.pause = history, seed, pause
        self.over = threading.Event()
        self.failures: list[BaseException] = []
        self.threads: list[threading.Thread] = []
        self.consumers: list[Consumer] = []

    def start(self) -> None:
        self._begin("idempotent-0", self.send)
        self._begin("idempotent-1", self.send)
        self._begin("transactional-0", self.transact)
        self._begin("transactional-1", self.transact)
        self._begin("committed", lambda name: self.poll(name, "read_committed"))
        self._begin("uncommitted", lambda name: self.poll(name, "read_uncommitted"))
        # Each broker is a rack of its own. These consumers read every partition from the broker of
        # their rack, which is a follower of two thirds of the partitions (KIP-392).
        self._begin("near-1", lambda name: self.poll(name, "read_committed", rack_of(1)))
        self._begin("near-2", lambda name: self.poll(name, "read_uncommitted", rack_of(2)))
        self._begin("member-0", self.be_member)
        self._begin("member-1", self.be_member)
        self._begin("new-member-0", self.be_new_member)
        self._begin("new-member-1", self.be_new_member)
        self._begin("offsets", lambda name: self.ask_offsets(name, GROUP))
        self._begin("new-offsets", lambda name: self.ask_offsets(name, NEW_GROUP))
        for node, address in self.brokers.items():
            witness = Witness(node, address, PARTITIONS)
            self._begin(f"witness-{node}", lambda _, each=witness: each.watch(
                self.history, self.over
            ))

    def stop(self) -> None:
        """Let every client finish what it has begun."""
        self.over.set()
        for thread in self.threads:
            thread.join(DELIVERY_MS / 1000 + 60)
            if thread.is_alive():
                faulthandler.dump_traceback()       # where each thread waits
                self.failures.append(AssertionError(f"{thread.name} does not end"))
        # After a broken connection, freeing a consumer can block librdkafka 2.16 for ever.
        threading.Thread(target=self.consumers.clear, daemon=True).start()

    def common(self) -> dict[str, Any]:
        """The settings of every librdkafka client; broken connections are expected, not logged."""
        return {"bootstrap.servers": self.bootstrap, "log_level": 2}

    def _begin(self, name: str, work: Callable[[str], None]) -> None:
        def run() -> None:
            try:
                work(name)
            except BaseException as error:
                self.failures.append(error)
                raise

        self.threads.append(threading.Thread(target=run, name=name, daemon=True))
        self.threads[-1].start()

    # Producers

    def send(self, name: str) -> None:
        """Send many records at a time, with idempotence and acks=all; retries last DELIVERY_MS."""
        chance, process, number = random.Random(f"{self.seed} {name}"), Process(self.history), 0
        producer = Producer({
            **self.common(), "enable.idempotence": True, "acks": "all",
            "linger.ms": 5, "delivery.timeout.ms": DELIVERY_MS,
        })
        while not self.over.is_set():
            batch = Batch()
            for _ in range(chance.choice((1, 20, 100))):
                number += 1
                batch.add(PLAIN, chance.randrange(PARTITIONS[PLAIN]), f"{name}.{number}")
            process.invoke("send", batch.mops())
            batch.send(producer)
            producer.flush()
            process.end("ok" if not batch.failed else "info", batch.mops())
            self.history.acked(len(batch.offsets))
            time.sleep(self.pause * chance.expovariate(1))

    def transact(self, name: str) -> None:
        """Send transactions over several partitions; abort one in ten."""
        chance, process, number = random.Random(f"{self.seed} {name}"), Process(self.history), 0
        producer: Producer | None = None
        while not self.over.is_set():
            producer = producer or self._transactional(name)
            if producer is None:
                continue
            batch = Batch()
            for _ in range(chance.choice((1, 3, 20))):
                number += 1
                batch.add(TRANSACTED, chance.randrange(PARTITIONS[TRANSACTED]), f"{name}.{number}")
            process.invoke("txn", batch.mops())
            kind = self._one(producer, batch, chance.random() < 0.9)
            process.end(kind, batch.mops())
            self.history.acked(len(batch.offsets) if kind == "ok" else 0)
            if kind == "info":
                producer = None             # the next one ends the transaction
            time.sleep(self.pause * chance.expovariate(1))

    def _transactional(self, name: str) -> Producer | None:
        producer = Producer({
            **self.common(), "transactional.id": name, "linger.ms": 2,
            "transaction.timeout.ms": TRANSACTION_SECONDS * 1000,
        })
        try:
            producer.init_transactions(60)
        except KafkaException:
            return None
        return producer

    def _one(self, producer: Producer, batch: Batch, commit: bool) -> str:
        """Do one transaction; returns `ok`, `fail` (certainly aborted) or `info` (unknown)."""
        try:
            producer.begin_transaction()
            batch.send(producer)
            if not commit:
                producer.abort_transaction(60)
                return "fail"
            while True:
                try:
                    producer.commit_transaction(60)
                    return "ok"
                except KafkaException as error:
                    if not error.args[0].retriable():
                        raise
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                return "info"
        try:
            producer.abort_transaction(60)
            return "fail"
        except KafkaException:
            return "info"

    # Consumers

    def poll(self, name: str, isolation: str, rack: str = "") -> None:
        """Read every partition from the beginning, from the replica in `rack` if there is one."""
        process = Process(self.history)
        consumer = self.consumer(isolation, settings={"client.rack": rack})
        self.consumers.append(consumer)
        consumer.assign(everything())
        while not self.over.is_set():
            process.invoke("poll", [], isolation=isolation)
            process.end("ok", polls(taken(consumer)))

    def consumer(
        self, isolation: str, group: str = "nobody", settings: dict[str, Any] | None = None
    ) -> Consumer:
        """Makes a consumer, which joins its group only if it subscribes. It is not closed, because
        after a broken connection `close` of librdkafka 2.16 can wait for its coordinator for ever.
        """
        return Consumer({
            **self.common(), "group.id": group, "isolation.level": isolation,
            "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100, **(settings or {}),
        })

    def be_member(self, name: str) -> None:
        """Be a member of a classic group: read from the committed offsets on, and commit."""
        process, moved = Process(self.history), Moved()
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap.split(","), group_id=GROUP, client_id=name,
            auto_offset_reset="earliest", enable_auto_commit=False,
        )
        consumer.subscribe([PLAIN], listener=moved)
        while not self.over.is_set():
            process.invoke("poll", [], isolation="read_uncommitted")
            try:
                polled = consumer.poll(500, max_records=500)
            except KafkaError:
                process.end("info", [])
                continue
            mops = [
                ["poll", key_of(at.topic, at.partition),
                 [[record.offset, record.value.decode()] for record in records]]
                for at, records in polled.items()
            ]
            process.end("ok", mops, rebalance=moved.take())
            if not polled:
                continue
            offsets = {
                at: OffsetAndMetadata(records[-1].offset + 1, "", -1)
                for at, records in polled.items()
            }
            commits = [["commit", GROUP, key_of(at.topic, at.partition), to.offset]
                       for at, to in offsets.items()]
            process.invoke("commit_offsets", commits)
            try:
                consumer.commit(offsets)
                process.end("ok", commits)
            except KafkaError:
                process.end("info", commits)
        consumer.close()

    def be_new_member(self, name: str) -> None:
        """Be a member of a KIP-848 group: read committed records, and commit."""
        process, moved, commits = Process(self.history), Moved(), Commits(self.history)
        consumer = self.consumer("read_committed", NEW_GROUP, {
            "group.protocol": "consumer", "on_commit": commits.answered,
        })
        self.consumers.append(consumer)
        consumer.subscribe([TRANSACTED], on_assign=moved.by, on_revoke=moved.by, on_lost=moved.by)
        while not self.over.is_set():
            process.invoke("poll", [], isolation="read_committed")
            read = taken(consumer)
            process.end("ok", polls(read), rebalance=moved.take())
            if read:
                commits.begin(consumer, [
                    TopicPartition(*at, found[-1][0] + 1) for at, found in read.items()
                ])

    def ask_offsets(self, name: str, group: str) -> None:
        """Ask every half second which offsets a group has committed."""
        topic = PLAIN if group == GROUP else TRANSACTED
        process, asking = Process(self.history), self.consumer("read_committed", group)
        self.consumers.append(asking)
        wanted = [TopicPartition(topic, index) for index in range(PARTITIONS[topic])]
        while not self.over.wait(0.5):
            process.invoke("fetch_offsets", [])
            try:
                found = asking.committed(wanted, 30)
            except KafkaException:
                process.end("info", [])
                continue
            process.end("ok", [
                ["committed", group, key_of(each.topic, each.partition),
                 each.offset if each.offset >= 0 else None]
                for each in found if each.error is None
            ])

    def read_all(self, isolation: str) -> None:
        """Read every partition to its end; these are the final reads of the history."""
        process, consumer = Process(self.history), self.consumer(isolation)
        for at in everything():
            process.invoke("poll", [], isolation=isolation, final=True)
            end = end_of(consumer, at)
            consumer.assign([TopicPartition(at.topic, at.partition, 0)])
            found: list[Any] = []
            deadline = time.monotonic() + 60
            while consumer.position([at])[0].offset < end:
                for message in consumer.consume(1000, 0.5):
                    if message.error() is None:
                        found.append([message.offset(), message.value().decode()])
                assert time.monotonic() < deadline, f"{at} cannot be read to its end {end}"
            process.end("ok", [["poll", key_of(at.topic, at.partition), found]])
            self.history.reads += len(found)


class Batch:
    """Values sent together, and their offsets from the acknowledgements."""

    def __init__(self) -> None:
        self.values: list[tuple[str, int, str]] = []
        self.offsets: dict[str, int] = {}
        self.failed = False

    def add(self, topic: str, index: int, value: str) -> None:
        self.values.append((topic, index, value))

    def send(self, producer: Producer) -> None:
        for topic, index, value in self.values:
            while True:
                try:
                    producer.produce(topic, value, partition=index, on_delivery=self.delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)

    def delivered(self, error: Any, message: Message) -> None:
        if error is not None:
            self.failed = True
        else:
            self.offsets[message.value().decode()] = message.offset()

    def mops(self) -> list[Any]:
        return [["send", key_of(topic, index), value, self.offsets.get(value)]
                for topic, index, value in self.values]


class Moved(ConsumerRebalanceListener):     # type: ignore[misc]
    """The partitions that a rebalance has given or taken since the last poll."""

    def __init__(self) -> None:
        self.keys: set[str] = set()

    def on_partitions_revoked(self, revoked: list[PythonPartition]) -> None:
        self.keys |= {key_of(at.topic, at.partition) for at in revoked}

    def on_partitions_assigned(self, assigned: list[PythonPartition]) -> None:
        self.keys |= {key_of(at.topic, at.partition) for at in assigned}

    def by(self, _: Consumer, moved: list[TopicPartition]) -> None:
        """librdkafka calls this with partitions that were assigned, revoked or lost."""
        self.keys |= {key_of(at.topic, at.partition) for at in moved}

    def take(self) -> list[str]:
        keys, self.keys = sorted(self.keys), set()
        return keys


class Commits:
    """Commits of a librdkafka member, one after the other. They are asynchronous, because a commit
    that waits can wait for ever if librdkafka 2.16 has lost its coordinator."""

    def __init__(self, history: History) -> None:
        self.process = Process(history)
        self.open: list[Any] = []

    def begin(self, consumer: Consumer, offsets: list[TopicPartition]) -> None:
        """Commit. If the previous commit has no answer yet, its outcome is recorded as unknown."""
        self.end("info")
        self.open = self.mops(offsets)
        self.process.invoke("commit_offsets", self.open)
        try:
            consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException:
            self.end("info")

    def answered(self, error: Any, offsets: list[TopicPartition]) -> None:
        """The callback `on_commit`, which later polls call."""
        if self.open and self.open == self.mops(offsets):
            failed = error is not None or any(each.error for each in offsets)
            self.end("info" if failed else "ok")

    def end(self, kind: str) -> None:
        """End the operation that is open, if one is."""
        if self.open:
            mops, self.open = self.open, []
            self.process.end(kind, mops)

    @staticmethod
    def mops(offsets: list[TopicPartition]) -> list[Any]:
        """These commits as the history has them."""
        return sorted(["commit", NEW_GROUP, key_of(each.topic, each.partition), each.offset]
                      for each in offsets)


Read = dict[tuple[str, int], list[Any]]
"""Offsets and values, by topic and partition."""


def taken(consumer: Consumer) -> Read:
    """The records that a librdkafka consumer gets within half a second."""
    read: Read = {}
    for message in consumer.consume(500, 0.5):
        if message.error() is None:
            read.setdefault((message.topic(), message.partition()), []).append(
                [message.offset(), message.value().decode()]
            )
    return read


def polls(read: Read) -> list[Any]:
    """These records as the history has them."""
    return [["poll", key_of(*at), found] for at, found in read.items()]


def end_of(consumer: Consumer, at: TopicPartition) -> int:
    """The end of a partition. Repeats the question, because the leader may just be changing."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return int(consumer.get_watermark_offsets(at, 10)[1])
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def rack_of(node: int) -> str:
    return f"rack-{node}"


def key_of(topic: str, index: int) -> str:
    return f"{topic}-{index}"


def everything() -> list[TopicPartition]:
    return [TopicPartition(topic, index, 0)
            for topic, count in PARTITIONS.items() for index in range(count)]
