"""What does a scrape of /metrics cost with many partitions, and how much does it delay clients?

The broker has 10,000 partitions, in 100 topics or in 10,000 topics. Each partition has one record,
and a group whose committed offset is one record behind the end. The CPU is that of all threads of
the broker.

The delayed client is the probe of `fairness`, which sends a small produce every 3 ms. Its 99th
percentile is measured in periods of 15 s with one scrape, as with a usual `scrape_interval` of
Prometheus, and in periods without a scrape. The periods alternate, so that both kinds meet the same
conditions. The scraper reads the text and does not parse it, because Prometheus would run on
another machine. The worst case is measured too: scrapes that follow each other without a pause.
"""

from __future__ import annotations

import argparse
import http.client
import tempfile
import time
from pathlib import Path

from benchmarks import many_partitions, report
from benchmarks.fairness import percentile, prefer, probe
from benchmarks.load import MEMORY
from benchmarks.many_partitions import Layout
from benchmarks.raw_client import RawClient
from compat_tests.brokers import OttlaBroker
from ottla.client.cluster import ClusterClient
from ottla.client.errors import check
from ottla.tools.zookeeper.local import free_port
from ottla.wire.messages import OffsetCommitRequest

GROUPS = 10
COMMIT = 2
WORST_SECONDS = 3.0
KINDS = {
    "alone": "produce without scrapes", "scraped": "produce with one scrape in each period",
    "always": "produce while one scrape follows another",
}


def cpu_ms(pid: int) -> float:
    """The CPU milliseconds that the running threads of a process have used so far. /proc/PID/stat
    would count in steps of 10 ms."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6


def commit_all(port: int, layout: Layout) -> None:
    """Each group has a share of the topics, and commits offset 0 of every partition of them."""
    made = OffsetCommitRequest.Topic
    names = layout.names()
    with ClusterClient(f"127.0.0.1:{port}") as cluster:
        for number in range(GROUPS):
            topics = [
                made(
                    name=name,
                    partitions=[
                        made.Partition(
                            partition_index=index, committed_offset=0, committed_metadata=""
                        )
                        for index in range(layout.partitions)
                    ],
                )
                for name in names[number::GROUPS]
            ]
            request = OffsetCommitRequest(
                group_id=f"group-{number}", generation_id_or_member_epoch=-1, topics=topics
            )

            def commit(request: OffsetCommitRequest = request) -> None:
                answer = cluster.coordinator(request.group_id).call(request, COMMIT)
                for topic in answer.topics:
                    for partition in topic.partitions:
                        check(partition.error_code)

            cluster.with_retries(commit)


def scrape(port: int) -> bytes:
    """The text of /metrics."""
    client = http.client.HTTPConnection("127.0.0.1", port)
    client.request("GET", "/metrics")
    body = client.getresponse().read()
    client.close()
    return body


def cost(broker: OttlaBroker, http_port: int, layout: Layout, scrapes: int) -> dict[str, float]:
    """The CPU milliseconds and the megabytes of a scrape, and separately the CPU milliseconds of
    the first scrape, which reads the batches' headers."""
    before = cpu_ms(broker.pid)
    text = scrape(http_port)
    first = cpu_ms(broker.pid) - before
    lags = text.count(b"\nkafka_consumergroup_lag{")
    assert lags == layout.total, f"{lags} lags"
    before = cpu_ms(broker.pid)
    for _ in range(scrapes):
        scrape(http_port)
    used = (cpu_ms(broker.pid) - before) / scrapes
    return {"cpu_ms": used, "first_cpu_ms": first, "megabytes": len(text) / 1e6}


def scrape_all(port: int, seconds: float, pause: float) -> int:
    """Scrape for `seconds`, with a pause before each scrape; returns the number of scrapes."""
    count, end = 0, time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        time.sleep(max(0.0, min(pause, left)))
        if pause >= left:
            return count
        scrape(port)
        count += 1


def delays(
    broker: OttlaBroker, http_port: int, options: argparse.Namespace
) -> dict[str, list[float]]:
    """The probe's milliseconds in all periods of each kind, and for each round the ratio of the
    p99 with a scrape to the p99 without a scrape."""
    found: dict[str, list[float]] = {"alone": [], "scraped": [], "always": [], "ratios": []}
    for number in range(options.rounds):
        p99 = {}
        for kind in ("alone", "scraped") if number % 2 else ("scraped", "alone"):
            with probe(broker.port) as latencies:
                if kind == "alone":
                    time.sleep(options.seconds)
                else:
                    scrape_all(http_port, options.seconds, options.seconds / 2)
            found[kind] += latencies
            p99[kind] = percentile(latencies, 0.99)
        found["ratios"].append(p99["scraped"] / p99["alone"])
        with probe(broker.port) as latencies:
            scrape_all(http_port, WORST_SECONDS, 0.0)
        found["always"] += latencies
        print("p99 with scrapes / without:", *(f"{ratio:.2f}" for ratio in found["ratios"]),
              flush=True)
    return found


def measure(layout: Layout, options: argparse.Namespace) -> dict[str, str]:
    """The figures of one layout, as text."""
    http_port = free_port()
    settings = [f"ottla.http.listener=127.0.0.1:{http_port}", "num.partitions=1"]
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        broker = OttlaBroker(Path(directory), settings, port=free_port())
        broker.start()
        try:
            prefer(broker.pid)
            client = RawClient(broker.port)
            many_partitions.create(client, layout)
            many_partitions.produce_to_all(client, layout, acks=1)
            client.close()
            commit_all(broker.port, layout)
            costs = [cost(broker, http_port, layout, options.scrapes) for _ in range(3)]
            found = delays(broker, http_port, options)
        finally:
            broker.stop()
    rows = {
        "CPU of a scrape, ms (50 allowed)": report.spread([each["cpu_ms"] for each in costs], 1),
        "CPU of the first scrape, ms": f"{costs[0]['first_cpu_ms']:.1f}",
        "text of a scrape, MB": f"{costs[0]['megabytes']:.1f}",
    }
    for kind, title in KINDS.items():
        figures = (f"{percentile(found[kind], share):.2f}" for share in (0.5, 0.99, 1.0))
        rows[f"{title}: p50, p99 and longest, ms"] = " / ".join(figures)
    pooled = percentile(found["scraped"], 0.99) / percentile(found["alone"], 0.99)
    rows["p99 with scrapes / without, over all periods (1.10 allowed)"] = f"{pooled:.2f}"
    rows["this ratio for each two neighbouring periods: median (range)"] = report.spread(
        found["ratios"])
    return rows


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=6)
    arguments.add_argument("--partitions", type=int, default=10_000)
    arguments.add_argument("--topics", type=int, nargs="*", default=[100, 10_000])
    arguments.add_argument("--scrapes", type=int, default=20)
    arguments.add_argument("--seconds", type=float, default=15, help="length of a period")
    options = arguments.parse_args()
    columns = {
        f"{count:,} topics": measure(Layout(count, options.partitions // count), options)
        for count in options.topics
    }
    titles = list(next(iter(columns.values())))
    table = [[title, *(rows[title] for rows in columns.values())] for title in titles]
    question = (f"What does a scrape of {options.partitions:,} partitions and as many consumer"
                " lags cost?")
    periods = (f"Each period lasts {options.seconds:g} s. Periods with one scrape alternate with"
               " periods without a scrape.")
    text = f"{periods}\n\n{report.table(['', *columns], table)}"
    report.write(question, "scrape-cpu", text, columns)


if __name__ == "__main__":
    main()
