"""What does acks=all with three replicas cost, compared with three Apache Kafka nodes?

The figures are the CPU seconds of the whole cluster (three brokers, with Ottla also ZooKeeper) for
each GB and each million small requests, and the latency of the requests. The load generator
(blaster) writes to partitions that all have the same leader and two followers, with
min.insync.replicas=2. Segments are on tmpfs, and the two clusters take turns. Kafka needs a quiet
machine and a long warm-up: while its code is being compiled, it costs many times as much.

The floor is three times the CPU of `bare`, a C program that receives a batch, checks its CRC and
writes it. It does not include the CPU with which a leader sends each byte to two followers.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import load, machine, report
from benchmarks.produce_cpu import NOTATION
from compat_tests.brokers import KafkaBroker
from ottla.tools.cli.local_cluster import LocalCluster
from ottla.tools.zookeeper.local import free_port

PARTITIONS = 4
ASSIGNMENT = [1, 2, 3]
"""Broker 1 leads every partition, because the load generator connects to one address only."""
BIG = {"conns": 4, "depth": 4, "acks": -1}
LOADS: dict[str, dict[str, Any]] = {
    "60 × 1,000 B": {"records": 60, "size": 1000, **BIG},
    "145 × 100 B": {"records": 145, "size": 100, **BIG},
    "1 × 100 B, 8 connections × 5": {
        "records": 1, "size": 100, "conns": 8, "depth": 5, "acks": -1
    },
    "1 × 100 B, one at a time": {"records": 1, "size": 100, "conns": 1, "depth": 1, "acks": -1},
}  # fmt: skip
TARGETS = {"60 × 1,000 B": 0.5, "145 × 100 B": 0.35, "1 × 100 B, 8 connections × 5": 0.15}
LIMIT = {"partitions": PARTITIONS, "warmup": 0, "max_mb": 2500}
SETTINGS = (*load.SETTINGS, "min.insync.replicas=2", "default.replication.factor=3")


@dataclass
class MeasuredCluster:
    """Three brokers. `port` and `pid` are those of the leader, which gets the load; `pids` are all
    processes whose CPU is measured."""

    bootstrap: str
    port: int
    pid: int
    pids: list[int]


@contextlib.contextmanager
def ottla(directory: Path) -> Iterator[MeasuredCluster]:
    """Run three Ottlas and a ZooKeeper for a block."""
    with LocalCluster(directory, 3, settings=list(SETTINGS)) as running:
        pids = [each.process.pid for each in running.brokers.values() if each.process]
        if running.zookeeper is not None and running.zookeeper.process is not None:
            pids.append(running.zookeeper.process.pid)
        yield MeasuredCluster(running.bootstrap, running.brokers[1].port, pids[0], pids)


class KafkaNode(KafkaBroker):
    """One of three nodes that are both broker and controller, with static voters."""

    def __init__(
        self, directory: Path, node_id: int, voters: dict[int, int], cluster_id: str
    ) -> None:
        super().__init__(directory)
        here, controller = f"127.0.0.1:{self.port}", f"127.0.0.1:{voters[node_id]}"
        listeners = f"PLAINTEXT://{here},CONTROLLER://{controller}"
        everyone = ",".join(f"{node}@127.0.0.1:{port}" for node, port in voters.items())
        self._environment.update({
            "CPORT": str(voters[node_id]), "CLUSTER_ID": cluster_id, "FORMAT": "",
            "CONF": "\n".join([
                *SETTINGS, f"node.id={node_id}", f"listeners={listeners}",
                f"advertised.listeners={listeners}", "controller.quorum.bootstrap.servers=",
                f"controller.quorum.voters={everyone}",
            ]),
        })


@contextlib.contextmanager
def kafka(directory: Path) -> Iterator[MeasuredCluster]:
    """Run three Apache Kafka nodes in KRaft mode for a block."""
    voters = {node: free_port() for node in ASSIGNMENT}
    cluster_id = KafkaBroker.new_cluster_id()
    nodes = [
        KafkaNode(directory / f"node-{node}", node, voters, cluster_id) for node in ASSIGNMENT
    ]
    # All at once, because no node becomes ready before other nodes run.
    starting = [threading.Thread(target=node.start) for node in nodes]
    for thread in starting:
        thread.start()
    for thread in starting:
        thread.join()
    try:
        first = nodes[0]
        bootstrap = ",".join(node.bootstrap for node in nodes)
        yield MeasuredCluster(bootstrap, first.port, first.pid, [node.pid for node in nodes])
    finally:
        for node in nodes:
            with contextlib.suppress(ProcessLookupError):
                node.kill()


@contextlib.contextmanager
def topic(cluster: MeasuredCluster, name: str) -> Iterator[None]:
    """Create a topic that broker 1 leads and that accepts acks=all; delete it after the block."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    made = NewTopic(name, PARTITIONS, replica_assignment=[ASSIGNMENT] * PARTITIONS)
    admin.create_topics([made], operation_timeout=30)[name].result(60)
    few = {"partitions": PARTITIONS, "conns": PARTITIONS, "seconds": 0.2, "warmup": 0, "acks": -1}
    for _ in range(100):
        with contextlib.suppress(load.LoadFailed):
            if load.blast(cluster, "small", name, **few)["requests"] > PARTITIONS:
                break
    yield
    admin.delete_topics([name])[name].result(60)


def run(
    cluster: MeasuredCluster, name: str, options: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """Run one load; in the results, `cluster_*` are sums over all processes of the cluster."""
    before = [machine.cpu_seconds(pid) for pid in cluster.pids]
    result = load.blast(cluster, "produce", name, seconds=seconds, **LIMIT, **options)
    spent = [
        machine.cpu_seconds(pid) - used for pid, used in zip(cluster.pids, before, strict=True)
    ]
    result["cluster_cpu_s"] = sum(spent)
    result["cpu_s_of_each"] = spent
    result["cluster_cpu_s_per_gb"] = sum(spent) / (result["bytes"] / 1e9)
    result["cluster_cpu_s_per_mreq"] = sum(spent) / (result["requests"] / 1e6)
    return result


def floor(directory: Path, options: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The load on `bare`, whose CPU is taken three times: once for each replica."""
    files = [directory / f"partition-{index}" for index in range(PARTITIONS)]
    with load.Bare("floor", files) as bare:
        produced = load.blast(bare, "produce", "floor", seconds=seconds, **LIMIT, **options)
    for file in files:
        file.unlink()
    return {**produced, "cluster_cpu_s_per_gb": 3 * produced["broker_cpu_s_per_gb"],
            "cluster_cpu_s_per_mreq": 3 * produced["broker_cpu_s_per_mreq"]}


def measure(
    rounds: int, seconds: float, warm_up: float, names: list[str]
) -> dict[str, dict[str, Any]]:
    """The result of each round, by load and cluster; a first round warms up and is not kept."""
    results: dict[str, dict[str, Any]] = {name: {} for name in names}
    load.build(load.BLASTER)
    directory = Path(tempfile.mkdtemp(prefix="ottla-bench-", dir=load.MEMORY))
    try:
        with ottla(directory / "ottla") as ours, kafka(directory / "kafka") as theirs:
            for number in range(-1, rounds):
                for which, name in enumerate(names):
                    for kind, cluster in (("ottla", ours), ("kafka", theirs)):
                        at = f"replicated-{which}-{number + 1}"
                        with topic(cluster, at):
                            lasts = seconds if number >= 0 else max(seconds, warm_up)
                            found = run(cluster, at, LOADS[name], lasts)
                        if number >= 0:
                            results[name].setdefault(kind, []).append(found)
                    if number >= 0:
                        results[name].setdefault("floor", []).append(
                            floor(directory, LOADS[name], seconds)
                        )
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return results


def row(name: str, results: dict[str, Any]) -> list[str]:
    """The row of a load."""
    small = LOADS[name]["records"] == 1
    key = "cluster_cpu_s_per_mreq" if small else "cluster_cpu_s_per_gb"
    ours, theirs, least = (
        [each[key] for each in results[kind]] for kind in ("ottla", "kafka", "floor")
    )
    latency = [
        report.spread([each[at] / 1000 for each in results[kind]])
        for at in ("p50_us", "p99_us") for kind in ("ottla", "kafka")
    ]
    digits = 1 if small else 2
    return [
        name, "a million requests" if small else "a GB", report.spread(ours, digits),
        report.spread(theirs, digits), report.ratio(ours, theirs), str(TARGETS.get(name, "")),
        report.spread(least, digits), *latency,
    ]


HEADER = [
    "load", "CPU-s for", "Ottla", report.PEER, "ratio", "target of the ratio", "floor",
    "Ottla p50, ms", "Kafka p50, ms", "Ottla p99, ms", "Kafka p99, ms",
]


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=4.0, help="of each load")
    arguments.add_argument("--warm-up", type=float, default=20.0, help="of each load, before")
    arguments.add_argument("--only", help="loads whose name has this in it")
    chosen = arguments.parse_args()
    names = [name for name in LOADS if not chosen.only or chosen.only in name]
    results = measure(chosen.rounds, chosen.seconds, chosen.warm_up, names)
    rows = report.table(HEADER, [row(name, found) for name, found in results.items()])
    text = f"{NOTATION}\n\n{rows}"
    report.write("What does replication cost?", "replication-cpu", text, results)


if __name__ == "__main__":
    main()
