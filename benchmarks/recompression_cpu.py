"""How much CPU does a topic's own codec cost, and how long would it delay other clients?

The load generator (blaster, Produce v9) sends uncompressed batches in a closed loop to topics with
each compression.type, at its default level. Segments are on tmpfs, and the brokers take turns in
the same run. The second table has the CPU time that this process needs to recompress one batch of
1 MB. The broker leaves this work to threads; otherwise it would hold the event loop for that time.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import load, report
from ottla.broker.api.records.preparation import room_on_loop
from ottla.broker.settings.topic import log_config
from ottla.wire.batch import BatchLimits, check, recompress
from ottla.wire.compression import Codec
from ottla.wire.records import Record, build_batch

PARTITIONS = 4
CODECS = ("uncompressed", "lz4", "snappy", "zstd", "gzip")
SIZES = {"60 × 1,000 B": 60, "1,000 × 1,000 B": 1000}
LIMIT = {"partitions": PARTITIONS, "seconds": 3, "warmup": 1, "max_mb": 1500, "conns": 4}
LEVELS: dict[str, tuple[int | None, ...]] = {
    "lz4": (9, 12), "snappy": (None,), "zstd": (3, 9, 19), "gzip": (-1, 1, 9)
}  # fmt: skip
GB = "broker_cpu_s_per_gb"


def text_batch(records: int, codec: Codec = Codec.NONE) -> bytes:
    """A batch of flights as JSON lines, whose compressed size is a tenth to a fifth of its size."""
    chance = random.Random(1)
    values = []
    for number in range(records):
        lines = b""
        while len(lines) < 1000:
            lines += (
                b'{"flight": %d, "carrier": "%s", "origin": "%s", "delay": %d, "distance": %d}\n'
                % (
                    number, chance.choice([b"UA", b"AA", b"DL", b"B6"]),
                    chance.choice([b"JFK", b"EWR", b"LGA"]), chance.randrange(-20, 300),
                    chance.randrange(100, 5000),
                )
            )  # fmt: skip
        values.append(lines[:1000])
    return build_batch([Record(value=v, timestamp=0) for v in values], codec=codec)


def measure(rounds: int) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """The result of each round, by load and broker."""
    results: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with (
        load.both_brokers() as brokers,
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory,
    ):
        file = Path(directory) / "batch"
        for number in range(-1, rounds):  # the first round warms Kafka up and is not kept
            for size, records in SIZES.items():
                file.write_bytes(text_batch(records))
                for codec in CODECS:
                    for kind, broker in brokers.items():
                        name = f"recompress-{records}-{codec}-{number}"
                        with load.topic(broker, name, PARTITIONS, compression_type=codec) as topic:
                            result = load.blast(
                                broker, "produce", topic, records=records, size=1000, acks=1,
                                depth=4, batch=file, **LIMIT,
                            )  # fmt: skip
                        if number >= 0:
                            kept = results.setdefault(f"{size} to {codec}", {})
                            kept.setdefault(kind, []).append(result)
    return results


def holds() -> dict[str, dict[str, float]]:
    """By codec and level: the CPU milliseconds that one batch of 1 MB needs, and the largest batch
    that the loop recompresses itself."""
    batch, found = text_batch(1000), {}
    for codec, levels in LEVELS.items():
        for level in levels:
            limits = BatchLimits(codec=int(Codec[codec.upper()]), level=level)
            best = min(_once(batch, limits) for _ in range(5))
            texts = {"compression.type": codec}
            if level is not None:
                texts[f"compression.{codec}.level"] = str(level)
            found[codec if level is None else f"{codec}, level {level}"] = {
                "ms": best * 1000, "on_loop": room_on_loop(log_config(texts, {}))
            }  # fmt: skip
    return found


def _once(batch: bytes, limits: BatchLimits) -> float:
    copy = bytearray(batch)
    before = time.process_time()
    check(copy, limits)
    recompress(copy, limits)
    return time.process_time() - before


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    results = measure(arguments.parse_args().rounds)
    rows = [
        [
            name,
            *(report.spread([r[GB] for r in by[kind]]) for kind in ("ottla", "kafka")),
            report.ratio([r[GB] for r in by["ottla"]], [r[GB] for r in by["kafka"]]),
            *(report.spread([r["mb_per_s"] for r in by[kind]], 0) for kind in ("ottla", "kafka")),
        ]
        for name, by in results.items()
    ]
    header = ["load", "Ottla CPU-s a GB", report.PEER, "ratio", "Ottla MB/s", "Kafka MB/s"]
    alone = holds()
    held = [[name, f"{f['ms']:.1f}", f"{f['on_loop']:,.0f}"] for name, f in alone.items()]
    text = report.table(header, rows) + "\n\n" + report.table(
        ["a batch of 1 MB recompressed to", "ms of CPU",
         "largest batch that the loop recompresses itself, bytes"], held
    )
    report.write("What does recompression cost?", "recompression-cpu", text,
                 {"loads": results, "alone": alone})


if __name__ == "__main__":
    main()
