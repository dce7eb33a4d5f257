"""How much CPU does the background scrub of a gigabyte cost, and how long does it hold the loop?

This process runs a broker's scrub over sealed segments, without the scrub's rate limit: once while
the page cache has none of the files (as for most old segments), and once while it has all of them.
Apache Kafka has no scrub, so there is no comparison.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import report
from ottla.log.files.clock import Clock
from ottla.log.files.disk import Disk
from ottla.log.partition.config import LogConfig
from ottla.log.scrub.round import Read, Scrub
from ottla.log.storage.storage import Storage
from ottla.wire.records import Record, build_batch

NO_LIMIT = 1 << 50
SEGMENT_BYTES = 256 << 20
BATCH_RECORDS = {"60 × 1,000 B a batch": (60, 1000), "1 × 100 B a batch": (1, 100)}


def fill(storage: Storage, size: int, records: int, record_size: int) -> None:
    """Write a log with about `size` bytes in sealed segments."""
    log = storage.get_or_create("t", 0, None, LogConfig(segment_bytes=SEGMENT_BYTES))
    value = os.urandom(record_size)
    batch = build_batch([Record(timestamp=1, value=value) for _ in range(records)])
    while log.size_bytes < size:
        for _ in range(1000):
            log.append_bytes(batch, 0)
    log.roll()
    log.append_bytes(batch, 0)
    log.flush()


def evict(path: Path) -> None:
    """Evict the segments from the page cache."""
    for name in path.rglob("*.log"):
        with open(name, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached_bytes(path: Path) -> int:
    """How many bytes of the segments are in the page cache, according to `fincore`."""
    names = [str(name) for name in path.rglob("*.log")]
    listed = os.popen("fincore -b -n -o RES " + " ".join(names)).read().split()
    return sum(map(int, listed))


async def round_of(storage: Storage) -> dict[str, float]:
    """Run one round of the scrub; returns this process's CPU per gigabyte, the rate, and the CPU
    time of the longest step after a read. Such a step holds the loop."""
    loop = asyncio.get_running_loop()
    (Path(storage.directories[0].path) / "ottla-scrub-checkpoint").unlink(missing_ok=True)
    scrub = Scrub(storage, Clock(), NO_LIMIT, 1 << 40, lambda key, damage: print(damage))
    steps = scrub.steps()
    before, began, longest = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter(), 0.0
    step = next(steps)
    while not (isinstance(step, float) and step > 1):
        if isinstance(step, float):
            await asyncio.sleep(0)
        else:
            await loop.run_in_executor(None, step.run)
        looked = time.thread_time()
        was_read = isinstance(step, Read)
        step = next(steps)
        if was_read:
            longest = max(longest, time.thread_time() - looked)
    used = resource.getrusage(resource.RUSAGE_SELF)
    gigabytes = scrub.bytes_read / 1e9
    return {
        "user_s_per_gb": (used.ru_utime - before.ru_utime) / gigabytes,
        "system_s_per_gb": (used.ru_stime - before.ru_stime) / gigabytes,
        "cpu_s_per_gb": (used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime)
        / gigabytes,
        "mb_per_s": scrub.bytes_read / 1e6 / (time.perf_counter() - began),
        "longest_hold_ms": longest * 1000,
    }


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--megabytes", type=int, default=512)
    options = arguments.parse_args()
    results: dict[str, list[dict[str, Any]]] = {}
    for name, (records, size) in BATCH_RECORDS.items():
        with tempfile.TemporaryDirectory(dir=".") as data:
            storage = Storage.open(Disk(), Clock(), [data])
            fill(storage, options.megabytes << 20, records, size)
            for _ in range(options.rounds):
                for place in ("cold", "warm"):
                    evict(Path(data))
                    if place == "warm":
                        for log in Path(data).rglob("*.log"):
                            log.read_bytes()
                    result: dict[str, Any] = asyncio.run(round_of(storage))
                    result["left_in_cache_mb"] = cached_bytes(Path(data)) / 1e6
                    results.setdefault(f"{name}, {place}", []).append(result)
            storage.close()
    figures = ("cpu_s_per_gb", "user_s_per_gb", "longest_hold_ms", "left_in_cache_mb", "mb_per_s")
    rows = [
        [name, *(report.spread([run[f] for run in runs], 0 if f == "mb_per_s" else 3)
                 for f in figures)]
        for name, runs in results.items()
    ]  # fmt: skip
    header = [
        "segments", "CPU-s a GB", "user CPU-s a GB", "longest hold of the loop, CPU-ms",
        "left in the page cache, MB", "MB/s without a limit",
    ]  # fmt: skip
    report.write("What does the scrub cost?", "scrub-cpu", report.table(header, rows), results)


if __name__ == "__main__":
    main()
