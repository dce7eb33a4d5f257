"""How long do `ottla` and the tools under Kafka's names take, compared with Apache Kafka's own?

The commands are: commands that need no broker (`--version`, the `--help` of every command), a list
of the topics of an Ottla broker, and the same list while no broker listens. Every run is a new
process. Each command runs several times, and the figures are its lowest CPU time and its lowest
wall time. Only the lists for which no broker listens run once.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks import report
from benchmarks.load import MEMORY
from compat_tests.brokers import OttlaBroker
from compat_tests.requirements import PEER_DIR
from ottla.tools.commands.table import read
from ottla.tools.zookeeper.local import free_port

OTTLA = str(Path(sys.executable).with_name("ottla"))


class Took(NamedTuple):
    """Seconds of CPU and of wall time."""

    cpu: float
    wall: float


def took(command: list[str], rounds: int, bootstrap: str = "") -> Took:
    """The lowest CPU time and the lowest wall time of some runs of a command."""
    found = []
    for _ in range(rounds):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        environment = os.environ | {"OTTLA_BOOTSTRAP_SERVERS": bootstrap, "BS": bootstrap}
        subprocess.run(command, capture_output=True, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        found.append(Took(cpu, time.monotonic() - began))
    return Took(min(one.cpu for one in found), min(one.wall for one in found))


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    rounds = arguments.parse_args().rounds
    subprocess.run([PEER_DIR / "setup.sh"], check=True, capture_output=True)
    kafka = [str(PEER_DIR / "tool.sh"), "topics"]
    helps = [took([OTTLA, *words.split(), "--help"], rounds)
             for file in ("ottla", "kafka") for words in read(file)]  # fmt: skip
    times = {
        "ottla --version": took([OTTLA, "--version"], rounds),
        f"ottla … --help, the slowest of {len(helps)}": max(helps),
        "kafka-topics --version, Kafka's": took([*kafka, "--version"], rounds),
    }
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        broker = OttlaBroker(Path(directory), port=free_port())
        broker.start()
        try:
            at = ["--bootstrap-server", broker.bootstrap]
            times["ottla topic list"] = took([OTTLA, "topic", "list"], rounds, broker.bootstrap)
            times["kafka-topics --list, Ottla's"] = took(
                [OTTLA, "kafka-topics", *at, "--list"], rounds)
            times["kafka-topics --list, Kafka's"] = took([*kafka, *at, "--list"], rounds)
        finally:
            broker.stop()
    at = ["--bootstrap-server", f"127.0.0.1:{free_port()}"]
    times["ottla topic list, no broker listens"] = took([OTTLA, "topic", "list", *at], 1)
    times["kafka-topics --list, Ottla's, no broker listens"] = took(
        [OTTLA, "kafka-topics", *at, "--list"], 1)
    times["kafka-topics --list, Kafka's, no broker listens"] = took([*kafka, *at, "--list"], 1)
    rows = [[name, f"{one.cpu:.3f}", f"{one.wall:.2f}"] for name, one in times.items()]
    table = report.table(["command", "CPU s", "wall s"], rows)
    measured = {name: one._asdict() for name, one in times.items()}
    report.write("How long does a command take?", "command-times", table, measured)


if __name__ == "__main__":
    main()
