"""How much CPU do a produced gigabyte and a small produce request cost?

The load generator (blaster, Produce v9) runs in a closed loop. Segments are on tmpfs, and the
brokers take turns in the same run. The floor is the CPU of a server that checks the CRC, writes the
batch, and does nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import load, memory, report
from ottla.wire.compression import Codec
from ottla.wire.records import Record, build_batch

PARTITIONS = 4
PER_GB, PER_MILLION = "broker_cpu_s_per_gb", "broker_cpu_s_per_mreq"
BIG = {"conns": 4, "depth": 4}
LOADS: dict[str, dict[str, Any]] = {
    "60 × 1,000 B, acks=1": {"records": 60, "size": 1000, "acks": 1, **BIG},
    "60 × 1,000 B, acks=all": {"records": 60, "size": 1000, "acks": -1, **BIG},
    "1,000 × 1,000 B, acks=1": {"records": 1000, "size": 1000, "acks": 1, **BIG},
    "145 × 100 B, acks=1": {"records": 145, "size": 100, "acks": 1, **BIG},
    "1,000 × 100 B, acks=1": {"records": 1000, "size": 100, "acks": 1, **BIG},
    "60 × 1,000 B, lz4, idempotent, acks=all": {
        "records": 60, "size": 1000, "acks": -1, "idempotent": True, **BIG
    },
    "1 × 100 B, one at a time, one core": {
        "records": 1, "size": 100, "acks": 1, "conns": 1, "depth": 1, "core": 0
    },
    "1 × 100 B, 8 connections × 5": {"records": 1, "size": 100, "acks": 1, "conns": 8, "depth": 5},
}  # fmt: skip
LIMIT = {"partitions": PARTITIONS, "seconds": 4, "warmup": 1, "max_mb": 1500}
MEMORY_MAX = 14  # GiB, for the topics of two rounds: those of the earlier are still being deleted
LIBRARY_WORDS = 2_000


def compressed_batch(records: int, size: int) -> bytes:
    """A batch of text, which lz4 has compressed to a little over half the size of the text."""
    chance = random.Random(1)
    words = [bytes(chance.choices(range(97, 123), k=8)) for _ in range(LIBRARY_WORDS)]
    values = (b" ".join(chance.choices(words, k=size // 9 + 1))[:size] for _ in range(records))
    return build_batch([Record(value=value, timestamp=0) for value in values], codec=Codec.LZ4)


def figure(name: str) -> str:
    """The figure of a load: the CPU per gigabyte of values, or per million small requests."""
    return PER_MILLION if LOADS[name]["records"] == 1 else PER_GB


def measure(rounds: int, names: list[str]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """The result of each round, by load and broker."""
    results: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(memory.kept(min(4 * rounds, MEMORY_MAX) << 30))
        brokers = stack.enter_context(load.both_brokers(kafkas_flush=True))
        files = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=load.MEMORY)))
        for number in range(-1, rounds):  # the first round warms Kafka up and is not kept
            for which, name in enumerate(names):
                options = dict(LOADS[name])
                if "lz4" in name:
                    options["batch"] = files / "batch"
                    (files / "batch").write_bytes(compressed_batch(60, 1000))
                kept = results.setdefault(name, {})
                for kind, broker in brokers.items():
                    if kind == load.KAFKAS_FLUSH and options["acks"] != -1:
                        continue
                    with load.topic(broker, f"produce-{which}-{number}", PARTITIONS) as topic:
                        result = load.blast(broker, "produce", topic, **LIMIT, **options)
                    if number >= 0:
                        kept.setdefault(kind, []).append(result)
                if number >= 0:
                    kept.setdefault("floor", []).append(floor(files, options))
    return results


def floor(directory: Path, options: dict[str, Any]) -> dict[str, Any]:
    """The result of the load on `bare`, which checks the CRC and writes, but parses no batch."""
    options = {key: value for key, value in options.items() if key != "idempotent"}
    files = [directory / f"partition-{index}" for index in range(PARTITIONS)]
    with load.Bare("produce", files) as bare:
        result = load.blast(bare, "produce", "produce", **LIMIT, **options)
    for file in files:
        file.unlink()
    return result


def row(name: str, by_broker: dict[str, list[dict[str, Any]]]) -> list[list[str]]:
    """The rows of a load: of Ottla, and of Ottla without the flush if that was measured."""
    key = figure(name)
    unit, digits = ("a million requests", 1) if key == PER_MILLION else ("a GB", 2)
    rate = "req_per_s" if key == PER_MILLION else "mb_per_s"
    values = {kind: [r[key] for r in results] for kind, results in by_broker.items()}
    theirs = values["kafka"]
    lines = []
    for kind, title in (("ottla", name), (load.KAFKAS_FLUSH, f"{name}, no flush")):
        if kind in values:
            lines.append(
                [
                    title,
                    unit,
                    report.spread(values[kind], digits),
                    report.spread(theirs, digits),
                    report.ratio(values[kind], theirs),
                    report.spread(values["floor"], digits) if "floor" in values else "",
                    report.user_share(by_broker[kind]),
                    report.spread([r[rate] for r in by_broker[kind]], 0),
                    report.spread([r[rate] for r in by_broker["kafka"]], 0),
                ]
            )
    return lines


HEADER = [
    "load", "CPU-s for", "Ottla", report.PEER, "ratio", "floor",
    "user time in Ottla's CPU", "Ottla MB/s or req/s", "Kafka MB/s or req/s",
]  # fmt: skip

NOTATION = (
    "*60 × 1,000 B*: each request has a batch of 60 records with values of 1,000 B."
    " *8 connections × 5*: 8 connections, each with 5 requests in flight."
)
"""What the names of loads mean."""


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--only", help="loads whose name has this in it")
    chosen = arguments.parse_args()
    names = [name for name in LOADS if not chosen.only or chosen.only in name]
    results = measure(chosen.rounds, names)
    rows = [line for name, by_broker in results.items() for line in row(name, by_broker)]
    text = f"{NOTATION}\n\n{report.table(HEADER, rows)}"
    report.write("What does producing cost?", "produce-cpu", text, results)


if __name__ == "__main__":
    main()
