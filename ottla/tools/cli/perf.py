"""`ottla perf …`: measures how fast a broker is, with Ottla's own codec."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from typing import Any

from ottla.tools.admin import topics
from ottla.tools.cli.bootstrap import connect
from ottla.tools.cli.output import done, show
from ottla.tools.cli.target_topic import existing, to_be_created
from ottla.tools.progress_line import ProgressLine
from ottla.tools.stream.load import FetchLoad, Latencies, ProduceLoad, codec_of, fetch, random_value
from ottla.tools.stream.load import produce as send
from ottla.tools.usage import WrongUsage
from ottla.wire.wording import counted

RECORDS = 100_000


def produce(options: Namespace) -> None:
    records = RECORDS if options.records is None else options.records
    size = 1000 if options.size is None else options.size
    if records < 1 or size < 1:
        raise WrongUsage("--records and --size must both be at least 1")
    acks = options.acks or "all"
    load = ProduceLoad(
        options.topic,
        records,
        [random_value(size)],
        throughput=options.rate or -1,
        acks=-1 if acks == "all" else int(acks),
        codec=codec_of(options.compression or "none"),
        batch_bytes=options.batch_bytes or 65_536,
    )
    with connect(options) as cluster:
        cluster.any()
        if options.dry_run:
            made = to_be_created(cluster, options.topic)
            count = topics.known_partitions(made) if made is not None else len(
                topics.leaders(cluster, [options.topic]))
            where = options.topic
            if count is not None:
                where = f"the {counted(count, 'partition')} of {where}"
            done(options, f"sent {counted(records, 'record')} of {counted(size, 'byte')} each to"
                          f" {where}")
            return
        # If a broker creates the topic now, report it: the name may be mistyped.
        existing(cluster, options.topic)
        found, bar = Latencies(), ProgressLine(records)

        def add(count: int, bytes_of: int, ms: float) -> None:
            found.add(count, bytes_of, ms)
            bar.add(count)

        send(cluster, load, add)
        bar.clear()
        rate, mebibytes = found.rates()
    show(
        options,
        ("topic", "records", "records_s", "mib_s", "ms_avg", "ms_p50", "ms_p99", "ms_max"),
        [
            {
                "topic": options.topic,
                "records": found.records,
                "records_s": round(rate),
                "mib_s": round(mebibytes, 2),
                "ms_avg": round(found.average_ms, 2),
                "ms_p50": found.percentile(0.5),
                "ms_p99": found.percentile(0.99),
                "ms_max": round(found.most_ms, 2),
            }
        ],
    )


def consume(options: Namespace) -> None:
    wanted = RECORDS if options.records is None else options.records
    with connect(options) as cluster:
        bar, size = ProgressLine(wanted), 0
        begun = ended = time.monotonic()

        def add(count: int, bytes_of: int) -> None:
            nonlocal size, ended
            size += bytes_of
            ended = time.monotonic()
            bar.add(count)

        got = fetch(cluster, FetchLoad([options.topic], wanted, idle_ms=2000), add)
        # Without the wait for records that do not come.
        seconds = max(ended - begun, 1e-6)
        bar.clear()
    row: dict[str, Any] = {
        "topic": options.topic,
        "records": got,
        "records_s": round(got / seconds),
        "mib_s": round(size / seconds / (1 << 20), 2),
    }
    show(options, ("topic", "records", "records_s", "mib_s"), [row])
    if got < wanted:
        shortage = f"expected {counted(wanted, 'record')}, but {options.topic} has only {got}"
        print(f"ottla perf consume: {shortage}", file=sys.stderr)
