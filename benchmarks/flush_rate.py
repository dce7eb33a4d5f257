"""How does the rate of produces with acks=all compare with the rate of the device itself?

One connection keeps five produce requests in flight, to a topic of 1 partition or of 100 partitions
on the ordinary disk. Ottla flushes before each acknowledgement. The device is measured by a plain
loop without a broker. It writes batches of the same size, and flushes after every batch or after
every fifth batch.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import load, report
from compat_tests.brokers import OttlaBroker

LOAD = {"records": 60, "size": 1000, "acks": -1, "conns": 1, "depth": 5, "warmup": 0.5}
BATCH_BYTES, IN_FLIGHT, SECONDS = 60_000, 5, 4.0


def device(directory: Path, batches_per_flush: int) -> dict[str, float]:
    """Flushes and megabytes a second of a loop of pwrite and fdatasync."""
    path, data = directory / "device", os.urandom(BATCH_BYTES)
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    began, flushes, position = time.monotonic(), 0, 0
    try:
        while time.monotonic() - began < SECONDS:
            for _ in range(batches_per_flush):
                os.pwrite(descriptor, data, position)
                position += BATCH_BYTES
            os.fdatasync(descriptor)
            flushes += 1
    finally:
        os.close(descriptor)
        path.unlink()
    seconds = time.monotonic() - began
    return {"flushes_per_s": flushes / seconds, "mb_per_s": position / seconds / 1e6}


def measure(rounds: int) -> dict[str, list[dict[str, Any]]]:
    """The results of the broker and of the device, which are measured in turn in each round."""
    results: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        broker = OttlaBroker(directory / "ottla")
        with load.running(broker):
            for number in range(rounds):
                for partitions in (1, 100):
                    with load.topic(broker, f"flush-{partitions}-{number}", partitions) as topic:
                        result = load.blast(
                            broker, "produce", topic, partitions=partitions, seconds=SECONDS, **LOAD
                        )
                        results.setdefault(f"Ottla, partitions: {partitions}", []).append(result)
                for batches in (1, IN_FLIGHT):
                    key = f"device, batches per flush: {batches}"
                    results.setdefault(key, []).append(device(directory, batches))
    return results


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    results = measure(arguments.parse_args().rounds)
    rows = []
    for name, runs in results.items():
        columns = [report.spread([r["mb_per_s"] for r in runs], 0)]
        for key, digits in (("p50_us", 0), ("p99_us", 0), ("broker_cpu_s_per_gb", 2)):
            columns.append(report.spread([r[key] for r in runs], digits) if key in runs[0] else "")
        flushes = [r.get("flushes_per_s", 0.0) for r in runs]
        rows.append([name, *columns, report.spread(flushes, 0) if any(flushes) else ""])
    header = ["", "MB/s", "p50, µs", "p99, µs", "broker CPU-s a GB", "flushes a second"]
    report.write(
        "Is acks=all bound by the device?", "flush-rate", report.table(header, rows), results
    )


if __name__ == "__main__":
    main()
