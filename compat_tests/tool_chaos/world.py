"""The brokers of a run: a single broker, or a cluster with a ZooKeeper. In both cases, one more
broker runs beside them, to which mirrors copy."""

from __future__ import annotations

import os
import signal
from functools import cached_property
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.brokers import OttlaBroker
from compat_tests.waiting import wait_until
from ottla.tools.cli.local_cluster import LocalBroker, LocalCluster

SOURCE, PARTITIONS, EACH = "source", 3, 12_000
"""The topic that commands read, the number of its partitions, and the records in each partition."""
RECORD_BYTES = 100
SETTINGS = [
    "offsets.topic.num.partitions=3", "transaction.state.log.num.partitions=3",
    "group.min.session.timeout.ms=1000", "group.initial.rebalance.delay.ms=0",
    "log.segment.bytes=1048576",
]  # fmt: skip
TARGET = 0
"""The number of the broker to which mirrors copy. The other brokers have numbers from 1."""


def text(*words: object) -> bytes:
    """A record's value: these words, padded to RECORD_BYTES."""
    return " ".join(map(str, words)).encode().ljust(RECORD_BYTES, b".")


class World:
    """The broker processes, each with a node number. Between two seeds, all of them run."""

    def __init__(self, directory: Path, brokers: int) -> None:
        self.directory = directory
        self.target = OttlaBroker(directory / "target", SETTINGS)
        self.cluster: LocalCluster | None = None
        self.alone: OttlaBroker | None = None
        if brokers == 1:
            self.alone = OttlaBroker(directory / "alone", SETTINGS)
        else:
            self.cluster = LocalCluster(directory / "cluster", brokers, settings=SETTINGS)
        self.nodes = [*range(1, brokers + 1)]

    def __enter__(self) -> World:
        try:
            self.target.start()
            if self.alone is not None:
                self.alone.start()
            if self.cluster is not None:
                self.cluster.start()
            self._fill()
        except BaseException:
            self.kill_everything()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.target.stop()
            if self.alone is not None:
                self.alone.stop()
            if self.cluster is not None:
                self.cluster.stop()
        except BaseException:
            self.kill_everything()
            raise

    def kill_everything(self) -> None:
        """Kill every process after a failure, so that none stays behind."""
        for broker in (self.target, self.alone):
            if broker is not None and broker.pid:
                broker.kill()
        if self.cluster is not None:
            self.cluster.kill()

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers except the target of mirrors."""
        if self.alone is not None:
            return self.alone.bootstrap
        assert self.cluster is not None
        return self.cluster.bootstrap

    @property
    def replicas(self) -> int:
        """How many replicas a topic gets."""
        return min(3, len(self.nodes))

    @cached_property
    def admin(self) -> AdminClient:
        """An admin client of the brokers at `bootstrap`."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def logs(self) -> Path:
        """The log directory of broker 1."""
        if self.alone is not None:
            return self.alone.directory / "data"
        assert self.cluster is not None
        return self.cluster.directory / "broker-1"

    # Events

    def broker(self, node: int) -> OttlaBroker | LocalBroker:
        """The broker with this node number."""
        if node == TARGET:
            return self.target
        if self.alone is not None:
            return self.alone
        assert self.cluster is not None
        return self.cluster.brokers[node]

    def pid(self, node: int) -> int:
        """The process id of a broker."""
        broker = self.broker(node)
        if isinstance(broker, OttlaBroker):
            return broker.pid
        assert broker.process is not None
        return broker.process.pid

    def kill(self, node: int) -> None:
        """kill -9."""
        self.broker(node).kill()

    def stop(self, node: int) -> None:
        """A clean stop."""
        self.broker(node).stop()

    def start(self, nodes: list[int]) -> None:
        """Start these brokers again, all at once, and wait until they serve requests."""
        brokers = [self.broker(node) for node in nodes]
        for broker in brokers:
            broker.start()
        for broker in brokers:
            if isinstance(broker, LocalBroker):     # OttlaBroker.start has waited
                broker.wait_ready()

    def pause(self, node: int, on: bool) -> None:
        """Suspend a broker's process if `on`, otherwise let it continue."""
        os.kill(self.pid(node), signal.SIGSTOP if on else signal.SIGCONT)

    def until_in_sync(self) -> None:
        """Wait until all replicas are in sync. Otherwise the next kill could hit the only replica
        that is in sync."""

        def in_sync() -> bool:
            try:
                topics = self.admin.list_topics(timeout=5).topics.values()
            except Exception:
                return False
            parts = [part for topic in topics for part in topic.partitions.values()]
            return all(
                part.leader >= 0 and set(part.isrs) == set(part.replicas) for part in parts)

        wait_until(in_sync, "all replicas are in sync", 120)

    # Preparations

    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic with `replicas` replicas."""
        [made] = self.admin.create_topics([NewTopic(topic, partitions, self.replicas)]).values()
        made.result(60)

    def send(self, topic: str, partitions: int, each: int) -> None:
        """Write `each` records to every partition. A value names its partition and its offset."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        failed: list[object] = []
        for offset in range(each):
            for partition in range(partitions):
                producer.produce(
                    topic, text(partition, offset), b"k%d" % (offset % 7), partition,
                    on_delivery=lambda error, _: error and failed.append(error))
            producer.poll(0)
        assert producer.flush(60) == 0 and not failed, failed

    def _fill(self) -> None:
        self.create(SOURCE, PARTITIONS)
        self.until_in_sync()
        self.send(SOURCE, PARTITIONS, EACH)
