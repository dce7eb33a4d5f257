"""The faults of a cluster. When a fault is over, all processes of the cluster run."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable

from confluent_kafka.admin import AdminClient

from compat_tests.chaos.disks import Disks
from compat_tests.chaos.network import Network
from compat_tests.chaos.workload import PARTITIONS
from ottla.tools.cli.local_cluster import LocalBroker, LocalCluster

SESSION_SECONDS = 9.0
IN_SYNC_SECONDS = 120.0


class Chaos:
    """Faults of one cluster, chosen by a seed."""

    def __init__(
        self, cluster: LocalCluster, seed: int, network: Network | None = None,
        disks: Disks | None = None,
    ) -> None:
        self.network, self.disks = network, disks
        self.cluster, self.chance = cluster, random.Random(f"chaos {seed}")
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        self.left: list[str] = []

    def next(self) -> str:
        """The next kind of fault: each once, in a random order, before any comes again."""
        if not self.left:
            missing = (set() if self.network else CUTS) | (set() if self.disks else OF_DISKS)
            kinds = sorted(set(FAULTS) - missing)
            self.left = self.chance.sample(kinds, len(kinds))
        return self.left.pop()

    def happen(self, name: str) -> None:
        """Cause one fault, and wait until all replicas are in sync again."""
        FAULTS[name](self)
        self.until_in_sync()

    def until_in_sync(self) -> float:
        """Wait until every replica of every partition is in sync; returns how long that took."""
        began = time.monotonic()
        while True:
            behind = self.behind()
            if not behind:
                return time.monotonic() - began
            assert time.monotonic() - began < IN_SYNC_SECONDS, f"not in sync: {behind}"
            time.sleep(0.2)

    def behind(self) -> list[str]:
        """Partitions whose replicas are not all in sync; `metadata` if nobody answers."""
        try:
            topics = self.admin.list_topics(timeout=5).topics
        except Exception:
            return ["metadata"]
        missing = [topic for topic in PARTITIONS if topic not in topics]
        return missing + [
            f"{name}-{index}" for name, topic in topics.items()
            for index, part in topic.partitions.items() if set(part.isrs) != set(part.replicas)
        ]

    # Which broker a fault affects

    def any(self) -> LocalBroker:
        return self.cluster.brokers[self.chance.choice(sorted(self.cluster.brokers))]

    def leader(self) -> LocalBroker:
        topic = self.chance.choice(sorted(PARTITIONS))
        index = self.chance.randrange(PARTITIONS[topic])
        return self.cluster.brokers[self.admin.list_topics(topic, 10).topics[topic]
                                    .partitions[index].leader]

    def controller(self) -> LocalBroker:
        return self.cluster.brokers[self.admin.describe_cluster().result(30).controller.id]

    # Faults

    def kill(self, broker: LocalBroker) -> None:
        """kill -9; the broker starts again soon, or after its ZooKeeper session has expired."""
        broker.kill()
        time.sleep(self.chance.choice((0.1, 2.0, SESSION_SECONDS + 2)))
        broker.start()
        broker.wait_ready()

    def kill_all(self) -> None:
        for broker in self.cluster.brokers.values():
            broker.kill()
        for broker in self.cluster.brokers.values():
            broker.start()
        for broker in self.cluster.brokers.values():
            broker.wait_ready()

    def pause(self, broker: LocalBroker) -> None:
        """SIGSTOP for a while; the broker's connections stay open."""
        assert broker.process is not None
        broker.process.send_signal(signal.SIGSTOP)
        time.sleep(self.chance.choice((1.0, 4.0, SESSION_SECONDS + 4)))
        broker.process.send_signal(signal.SIGCONT)

    def rolling_restart(self) -> None:
        for broker in self.cluster.brokers.values():
            broker.stop()
            broker.start()
            broker.wait_ready()
            self.until_in_sync()

    def kill_zookeeper(self) -> None:
        assert self.cluster.zookeeper is not None
        self.cluster.zookeeper.kill()
        time.sleep(self.chance.choice((1.0, SESSION_SECONDS + 4)))
        self.cluster.zookeeper.start()

    def wipe(self, broker: LocalBroker) -> None:
        """A broker loses its disk; the other brokers have all data."""
        self.until_in_sync()
        broker.kill()
        time.sleep(SESSION_SECONDS + 3)
        if self.disks is None:
            shutil.rmtree(broker.directory / f"broker-{broker.node_id}")
        else:
            self.disks.replace(broker.node_id)
        broker.start()
        broker.wait_ready()

    def fill(self, brokers: list[LocalBroker]) -> None:
        """These brokers' disks are full for a while; nothing is restarted."""
        assert self.disks is not None, NEED_ROOT
        with self.disks.full([broker.node_id for broker in brokers]):
            time.sleep(self.chance.choice((3.0, 15.0)))

    def fail_disk(self, broker: LocalBroker) -> None:
        """Every access to a broker's only disk fails, so the broker ends, or is stopped later. Then
        the disk works again, with the data that were flushed, and the broker starts."""
        assert self.disks is not None and broker.process is not None, NEED_ROOT
        self.until_in_sync()
        self.disks.fail(broker.node_id)
        time.sleep(self.chance.choice((1.0, SESSION_SECONDS + 4)))
        broker.stop()
        self.disks.mend(broker.node_id)
        broker.start()
        broker.wait_ready()

    def cut_power(self, broker: LocalBroker) -> None:
        """A machine loses its power, and all data that were not flushed. As real machines do, it
        boots only after the broker's ZooKeeper session has expired."""
        assert self.disks is not None and broker.process is not None, NEED_ROOT
        self.until_in_sync()
        broker.process.send_signal(signal.SIGSTOP)
        self.disks.fail(broker.node_id)
        broker.kill()
        time.sleep(SESSION_SECONDS + 3)
        self.disks.mend(broker.node_id)
        self.disks.boot(broker.node_id)
        broker.start()
        broker.wait_ready()

    def cut_two(self) -> None:
        """Two brokers cannot reach each other, but all others reach both."""
        assert self.network is not None, "cut connections need root"
        self.network.cut(*self.chance.sample(sorted(self.cluster.brokers), 2))
        time.sleep(self.chance.choice((2.0, SESSION_SECONDS + 4)))
        self.network.heal()

    def silence(self, broker: LocalBroker) -> None:
        """No broker and no client can reach a machine for a while; its broker keeps running."""
        assert self.network is not None, "cut connections need root"
        self.network.silence(broker.node_id)
        time.sleep(self.chance.choice((2.0, SESSION_SECONDS + 4)))
        self.network.heal()


NEED_ROOT = "disks of their own need root"
OF_DISKS = {"fill a disk", "fill all disks", "fail a disk", "cut the power"}
CUTS = {"cut two off from each other", "silence any", "silence the controller"}
FAULTS: dict[str, Callable[[Chaos], None]] = {
    "kill any": lambda chaos: chaos.kill(chaos.any()),
    "kill a leader": lambda chaos: chaos.kill(chaos.leader()),
    "kill the controller": lambda chaos: chaos.kill(chaos.controller()),
    "kill all": Chaos.kill_all,
    "kill ZooKeeper": Chaos.kill_zookeeper,
    "cut two off from each other": Chaos.cut_two,
    "silence any": lambda chaos: chaos.silence(chaos.any()),
    "silence the controller": lambda chaos: chaos.silence(chaos.controller()),
    "pause any": lambda chaos: chaos.pause(chaos.any()),
    "pause the controller": lambda chaos: chaos.pause(chaos.controller()),
    "rolling restart": Chaos.rolling_restart,
    "fill a disk": lambda chaos: chaos.fill([chaos.any()]),
    "fill all disks": lambda chaos: chaos.fill(list(chaos.cluster.brokers.values())),
    "fail a disk": lambda chaos: chaos.fail_disk(chaos.any()),
    "cut the power": lambda chaos: chaos.cut_power(chaos.any()),
    "wipe a disk": lambda chaos: chaos.wipe(chaos.any()),
}
