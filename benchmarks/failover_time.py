"""How long does it take until acks=all produces succeed again after a leader is killed or hangs?

Three brokers and ZooKeeper run on this machine. A topic has three replicas, of which two must be in
sync. librdkafka sends records to every partition all the time. A round kills or suspends one
broker, the victim. For each partition that the victim led, the figure is the time from the signal
to the first acknowledgement of a record that was sent after the signal. Partitions that other
brokers lead are not measured, because they continue without a pause. With `--partitions`, the
benchmark measures instead how long it takes until each of many partitions has another leader.
"""

from __future__ import annotations

import argparse
import signal
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import report
from benchmarks.report import Figures
from compat_tests.waiting import wait_until
from ottla.tools.cli.local_cluster import LocalBroker, LocalCluster

TOPIC = "failover"
PARTITIONS = 6
LIMIT_SECONDS = 60.0
PARTITIONS_A_TOPIC = 1000
MOVED = {
    "moved_s": (
        "from kill -9 until another broker's Metadata shows a live leader of every partition, s", 2
    ),
    "victims_partitions": ("partitions that the killed broker led", 0),
}


class Writer:
    """Sends to each partition, and keeps the times of the partition's last acknowledged record."""

    def __init__(self, bootstrap: str) -> None:
        self.producer = Producer({
            "bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all",
            "linger.ms": 0, "socket.timeout.ms": 1000, "request.timeout.ms": 1000,
            "retry.backoff.ms": 20, "retry.backoff.max.ms": 50,
            "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "log_level": 2,
        })
        self.acked = [(0.0, 0.0)] * PARTITIONS       # when sent, when acknowledged
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self) -> None:
        while not self.over.is_set():
            for index in range(PARTITIONS):
                sent = time.monotonic()

                def acked(error: object, message: Message, sent: float = sent) -> None:
                    if error is None:
                        self.acked[message.partition()] = sent, time.monotonic()

                self.producer.produce(TOPIC, b"x", partition=index, on_delivery=acked)
            self.producer.poll(0.005)
            time.sleep(0.005)
        self.producer.flush(60)

    def until_acked(self, indexes: list[int], since: float) -> list[float]:
        """Seconds from `since` until each partition acknowledged a record sent after `since`."""
        while any(self.acked[index][0] <= since for index in indexes):
            if time.monotonic() > since + LIMIT_SECONDS:
                raise TimeoutError(f"no acknowledgement within {LIMIT_SECONDS:g} s: {self.acked}")
            time.sleep(0.001)
        return [self.acked[index][1] - since for index in indexes]


def led_by(admin: AdminClient, node_id: int) -> list[int]:
    """The partitions that a broker leads."""
    found = admin.list_topics(TOPIC, 10).topics[TOPIC].partitions
    return [index for index, part in found.items() if part.leader == node_id]


def in_sync(admin: AdminClient) -> bool:
    found = admin.list_topics(TOPIC, 10).topics[TOPIC].partitions.values()
    return all(len(part.isrs) == 3 for part in found) and {part.leader for part in found} == {
        1, 2, 3
    }


def wait_in_sync(admin: AdminClient) -> None:
    deadline = time.monotonic() + 120
    while not in_sync(admin):
        if time.monotonic() > deadline:
            raise TimeoutError("the replicas do not come in sync")
        time.sleep(0.1)
    time.sleep(1)


def measure(rounds: int, silent_rounds: int) -> Figures:
    """Kills brokers in turn, then suspends brokers (their connections stay open); returns the
    seconds of each partition."""
    figures: Figures = {"killed_s": [], "silent_s": []}
    with tempfile.TemporaryDirectory() as directory, LocalCluster(Path(directory), 3) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(60)
        writer = Writer(cluster.bootstrap)
        for at in range(rounds + silent_rounds):
            wait_in_sync(admin)
            broker = cluster.brokers[at % 3 + 1]
            indexes, kill = led_by(admin, broker.node_id), at < rounds
            began = time.monotonic()
            if kill:
                broker.kill()
            else:
                silence(broker, signal.SIGSTOP)
            try:
                figures["killed_s" if kill else "silent_s"] += writer.until_acked(indexes, began)
            finally:
                if kill:
                    broker.start()
                    broker.wait_ready()
                else:
                    silence(broker, signal.SIGCONT)
        wait_in_sync(admin)
        writer.over.set()
        writer.thread.join()
    return figures


def measure_many(partitions: int, rounds: int) -> Figures:
    """Kills brokers in turn; measures the time until another broker's Metadata has a live leader
    for each of many partitions."""
    figures: Figures = {"moved_s": [], "victims_partitions": []}
    with tempfile.TemporaryDirectory() as directory, LocalCluster(Path(directory), 3) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        names = [f"many-{number}" for number in range(-(-partitions // PARTITIONS_A_TOPIC))]
        for name in names:
            count = min(PARTITIONS_A_TOPIC, partitions)
            admin.create_topics([NewTopic(name, count, 3)])[name].result(120)
        for at in range(rounds):
            wait_until(
                lambda: all(len(isr) == 3 for _, isr in states(admin, names)), "all in sync", 300
            )
            victim = cluster.brokers[at % 3 + 1]
            other = cluster.brokers[(at + 1) % 3 + 1]
            led = sum(leader == victim.node_id for leader, _ in states(admin, names))
            watching = AdminClient({"bootstrap.servers": f"localhost:{other.port}"})
            states(watching, names)
            began = time.monotonic()
            victim.kill()
            wait_until(
                lambda: all_moved(watching, names, victim.node_id),     # noqa: B023
                "another leader for each partition", 60,
            )
            figures["moved_s"].append(time.monotonic() - began)
            figures["victims_partitions"].append(led)
            victim.start()
            victim.wait_ready()
    return figures


def all_moved(admin: AdminClient, names: list[str], victim: int) -> bool:
    """Whether each partition has a leader that is not the victim. The Metadata request fails after
    one second, because librdkafka may have sent it to the victim, and would then go on waiting for
    the victim's reply instead of asking another broker."""
    try:
        return all(leader not in (-1, victim) for leader, _ in states(admin, names, seconds=1))
    except KafkaException:
        return False


def states(
    admin: AdminClient, names: list[str], seconds: float = 30
) -> list[tuple[int, list[int]]]:
    """The leader and the in-sync replicas of each partition, as a Metadata reply has them."""
    topics = admin.list_topics(timeout=seconds).topics
    return [
        (part.leader, part.isrs) for name in names for part in topics[name].partitions.values()
    ]


def silence(broker: LocalBroker, number: int) -> None:
    assert broker.process is not None
    broker.process.send_signal(number)


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=20)
    arguments.add_argument("--silent-rounds", type=int, default=3)
    arguments.add_argument("--partitions", type=int, default=0, help="so many move instead")
    chosen = arguments.parse_args()
    if chosen.partitions:
        figures = measure_many(chosen.partitions, chosen.rounds)
        print(figures)
        text = report.figures_table({"ottla": figures}, MOVED, with_ratio=False)
        report.write(
            f"{chosen.partitions} partitions: how long after a broker is killed do all have a"
            " leader?",
            "failover-many", text, {"ottla": figures})
        return
    measured = {"ottla": measure(chosen.rounds, chosen.silent_rounds)}
    names = {
        "killed_s": ("kill -9 of the leader's process, s", 2),
        "silent_s": ("SIGSTOP of that process (session timeout 9 s), s", 2),
    }
    text = report.figures_table(measured, names, with_ratio=False)
    report.write("How long until another leader acknowledges?", "failover-time", text, measured)


if __name__ == "__main__":
    main()
