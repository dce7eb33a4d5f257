"""`python -m compat_tests.chaos --minutes N` runs stock clients on three brokers while faults
occur, and checks the history of what the clients did.

The exit status is 0 only if the history breaks no rule, no client failed, and all replicas are
equal at the end. The file of the history is kept; `ottla pipeline check-history` checks it again.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.chaos import disks as loop_disks
from compat_tests.chaos.disks import Disks
from compat_tests.chaos.faults import FAULTS, Chaos
from compat_tests.chaos.history import History
from compat_tests.chaos.network import Network, why_not
from compat_tests.chaos.workload import PARTITIONS, Workload, rack_of
from compat_tests.named import some_of
from ottla.spark_interop import history_rules
from ottla.tools.cli.local_cluster import LocalCluster

CALM_SECONDS = 2.0
PAUSE_SECONDS = 0.02


@dataclass
class Report:
    """The outcome of a run."""

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    acked: int = 0
    longest_gap: float = 0.0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} x {name}" for name, count in sorted(self.faults.items()))
        text = (
            f"seed {self.seed}: {self.acked} sends acknowledged, {self.faults.total()} faults"
            f" ({kinds}), longest time without an acknowledgement {self.longest_gap:.1f} s"
        )
        return "\n".join([text, *(self.problems or ["every promise kept"])])


def run(
    directory: Path,
    seconds: float,
    seed: int,
    faults: list[str] | None = None,
    enough: threading.Event | None = None,
    pause: float = PAUSE_SECONDS,
    first: list[str] | None = None,
) -> Report:
    """Run exactly these `faults`, if given. Otherwise run those of `first`, and then others until
    `seconds` are over or `enough` is set. Returns the outcome."""
    enough = enough or threading.Event()
    report, history = Report(seed), History(directory / "history.jsonl")
    settings = [
        "offsets.topic.num.partitions=3", "transaction.state.log.num.partitions=3",
        "log.segment.bytes=1048576", "group.min.session.timeout.ms=1000",
        "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector",
    ]
    cluster = LocalCluster(directory / "cluster", 3, settings=settings)
    for node, broker in cluster.brokers.items():
        broker.settings.append(f"broker.rack={rack_of(node)}")
    with contextlib.ExitStack() as world:
        network = None
        if missing := why_not():
            print(f"without cut connections: {missing}", flush=True)
        else:
            network = world.enter_context(Network(3))
            network.host_brokers(cluster)
        disks = None
        if missing := loop_disks.why_not():
            print(f"without full and failing disks and power cuts: {missing}", flush=True)
        else:
            disks = world.enter_context(Disks(cluster))
        with cluster:
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
            made = admin.create_topics([NewTopic(name, n, 3) for name, n in PARTITIONS.items()])
            for each in made.values():
                each.result(60)
            chaos = Chaos(cluster, seed, network, disks)
            addresses = {node: each.address for node, each in cluster.brokers.items()}
            work = Workload(addresses, history, seed, pause)
            chaos.until_in_sync()
            work.start()
            end, left = time.monotonic() + seconds, list(faults or first or [])
            time.sleep(CALM_SECONDS)
            while left or not (faults or enough.is_set() or time.monotonic() >= end):
                name = left.pop(0) if left else chaos.next()
                print(f"{max(0.0, end - time.monotonic()):.0f} s left: {name}", flush=True)
                chaos.happen(name)
                report.faults[name] += 1
                time.sleep(CALM_SECONDS)
            work.stop()
            chaos.until_in_sync()
            for isolation in ("read_committed", "read_uncommitted"):
                work.read_all(isolation)
        report.problems += differing(directory / "cluster")
    report.acked, report.longest_gap = history.sends, history.longest_gap
    report.problems += [f"a client failed: {error!r}" for error in work.failures]
    with tempfile.TemporaryDirectory(dir=directory) as spool:
        verdict = history_rules.check(history.events(), directory=Path(spool))
    for rule, count in verdict.counts.items():
        report.problems.append(f"{count} x {rule}: {history_rules.RULES[rule]}")
        report.problems += [f"   {each.where}: {each.what}" for each in verdict.examples[rule][:5]]
    report.problems += [f"doubt: {text}" for text in verdict.doubts]
    return report


def differing(cluster: Path) -> list[str]:
    """Partitions whose replicas' logs, read from the files of stopped brokers, are not equal."""
    found = []
    for topic, count in PARTITIONS.items():
        for index in range(count):
            logs = [
                b"".join(each.read_bytes() for each in sorted(at.glob("*.log")))
                for at in sorted(cluster.glob(f"broker-*/{topic}-{index}"))
            ]
            if len(logs) != 3 or len(set(logs)) != 1:
                sizes = [len(log) for log in logs]
                found.append(f"the replicas of {topic}-{index} differ: {sizes} bytes")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=PAUSE_SECONDS, help=(
        "mean seconds between a producer's batches; more of them keep a long history small"))
    parser.add_argument(
        "--faults", type=some_of(FAULTS), help="exactly these, with commas between them")
    parser.add_argument(
        "--dir", type=Path, help="where the history and the logs go; default: a temporary one")
    arguments = parser.parse_args()
    directory = arguments.dir or Path(tempfile.mkdtemp(prefix="ottla-chaos-"))
    directory.mkdir(parents=True, exist_ok=True)
    enough = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: enough.set())
    report = run(
        directory, arguments.minutes * 60, arguments.seed, arguments.faults, enough,
        arguments.pause)
    print(report)
    print(f"the history and the logs: {directory}")
    return bool(report.problems)


if __name__ == "__main__":
    sys.exit(main())
