"""What rates do the perf tools of Ottla and of Apache Kafka measure, on either broker?

Each tool sends or reads the same number of records of 1,000 bytes, in one partition, with acks=all.
Brokers and tools take turns. Data are on tmpfs. Ottla runs with `ottla.acks.all.flush=false`: with
acks=all it answers before it flushes, as Kafka does. Tool and broker share the machine. A tool that
needs less CPU leaves more of it to the broker, so the rate that it measures depends less on the
tool itself.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks import load, machine, report

OTTLA = str(Path(sys.executable).with_name("ottla"))
TOOL = str(Path(__file__).with_name("peers") / "kafka" / "tool.sh")
SIZE = 1000
Rate = Callable[[str], float]


class Tool(NamedTuple):
    """A perf tool: its command line, and a function that finds records a second in its output."""

    command: list[str]
    rate: Rate


def ours_native(printed: str) -> float:
    """Records a second in the output of `ottla perf … -o json`."""
    return float(json.loads(printed)[0]["records_s"])


def sent(printed: str) -> float:
    """Records a second in the last line of kafka-producer-perf-test, Kafka's or ours."""
    return float(re.findall(r"([\d.]+) records/sec", printed)[-1])


def received(printed: str) -> float:
    """Records a second, without the time to join a group, in the last line of
    kafka-consumer-perf-test, Kafka's or ours."""
    return float(printed.strip().splitlines()[-1].split(",")[-1])


def producers(bootstrap: str, topic: str, records: int) -> dict[str, Tool]:
    """The tools that send, ours first."""
    flags = ["--topic", topic, "--num-records", str(records), "--record-size", str(SIZE),
             "--throughput", "-1", "--command-property", f"bootstrap.servers={bootstrap}",
             "acks=all"]  # fmt: skip
    native = [OTTLA, "perf", "produce", topic, "-b", bootstrap, "--records", str(records),
              "--size", str(SIZE), "-o", "json"]  # fmt: skip
    return {
        "ottla perf produce": Tool(native, ours_native),
        "kafka-producer-perf-test, Ottla's": Tool(
            [OTTLA, "kafka-producer-perf-test", *flags], sent),
        "kafka-producer-perf-test, Kafka's": Tool([TOOL, "producer-perf", *flags], sent),
    }


def consumers(bootstrap: str, topic: str, records: int) -> dict[str, Tool]:
    """The tools that read, ours first."""
    flags = ["--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records),
             "--timeout", "60000"]  # fmt: skip
    native = [OTTLA, "perf", "consume", topic, "-b", bootstrap, "--records", str(records),
              "-o", "json"]  # fmt: skip
    ours = [OTTLA, "kafka-consumer-perf-test", *flags]
    return {
        "ottla perf consume": Tool(native, ours_native),
        "kafka-consumer-perf-test, Ottla's": Tool(ours, received),
        "kafka-consumer-perf-test, Kafka's": Tool([TOOL, "consumer-perf", *flags], received),
    }


def measure(tool: Tool, broker: load.AnyBroker) -> dict[str, float]:
    """Run a tool; returns the rate that it reports, the CPU seconds of tool and broker, and the
    wall time."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    used = machine.cpu_seconds(broker.pid)
    done = subprocess.run(
        tool.command, capture_output=True, text=True, timeout=300,
        env=os.environ | {"PORT": "0", "CPORT": "0"},
    )  # fmt: skip
    if done.returncode != 0:
        raise load.LoadFailed(done.stderr or done.stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "records_s": tool.rate(done.stdout),
        "tool_cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "broker_cpu_s": machine.cpu_seconds(broker.pid) - used,
        "wall_s": time.monotonic() - began,
    }


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--records", type=int, default=300_000)
    given = arguments.parse_args()
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    with load.both_brokers("ottla.acks.all.flush=false") as brokers:
        for turn in range(-1, given.rounds):        # the first turn warms up and is not kept
            for kind, broker in brokers.items():
                with load.topic(broker, f"perf-{turn + 1}", 1) as name:
                    tools = producers(broker.bootstrap, name, given.records)
                    tools |= consumers(broker.bootstrap, name, given.records)
                    for title, tool in tools.items():
                        one = measure(tool, broker)
                        if turn >= 0:
                            found.setdefault(title, {}).setdefault(kind, []).append(one)
                        print(kind, title, one, flush=True)
    rows = []
    for title, by_broker in found.items():
        for kind, runs in by_broker.items():
            figures = [report.spread([one[name] for one in runs], digits)
                       for name, digits in (("records_s", 0), ("tool_cpu_s", 2),
                                            ("broker_cpu_s", 2), ("wall_s", 1))]  # fmt: skip
            rows.append([title, report.BROKERS[kind], *figures])
    table = report.table(
        ["tool", "broker", "records a second", "tool CPU s", "broker CPU s", "wall s"], rows)
    report.write("What do the perf tools measure?", "perf-tools", table, found)


if __name__ == "__main__":
    main()
