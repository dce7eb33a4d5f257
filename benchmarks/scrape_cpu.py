"""What does a scrape of /metrics cost on a broker with many partitions, and what does it delay?

10,000 partitions with a record each, and for each the committed offset of a group, which lags by
one record. CPU is that of the broker's process, all threads. Delays are those of the probe of
`fairness`, a small produce every 3 ms, just before and while the broker is scraped.
"""

from __future__ import annotations

import argparse
import http.client
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import many_partitions, report
from benchmarks.fairness import percentile, prefer, probe
from benchmarks.load import MEMORY
from benchmarks.many_partitions import Layout
from benchmarks.raw_client import RawClient
from compat_tests.brokers import OttlaBroker, free_port
from ottla.client.cluster import Cluster
from ottla.client.errors import check
from ottla.wire.messages import OffsetCommitRequest

GROUPS = 10
COMMIT = 2
TOPIC_PARTITIONS = 100


def cpu_ms(pid: int) -> float:
    """What a process has used so far: unlike /proc/PID/stat not in steps of 10 ms."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6


def commit_all(port: int, layout: Layout) -> None:
    """Each group commits the first offset of every partition of its share of the topics."""
    made = OffsetCommitRequest.Topic
    names = layout.names()
    with Cluster(f"127.0.0.1:{port}") as cluster:
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

            cluster.patiently(commit)


def scrape(port: int) -> bytes:
    """The text of /metrics."""
    client = http.client.HTTPConnection("127.0.0.1", port)
    client.request("GET", "/metrics")
    body = client.getresponse().read()
    client.close()
    return body


def cost(broker: OttlaBroker, http_port: int, layout: Layout, scrapes: int) -> dict[str, float]:
    """CPU ms and bytes of a scrape; the first one, which reads the batches' headers, apart."""
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


def delays(broker: OttlaBroker, http_port: int, seconds: float, every: float) -> dict[str, float]:
    """The probe's 99th percentile in ms, alone and while the broker is scraped."""
    with probe(broker.port) as alone:
        time.sleep(seconds)
    with probe(broker.port) as scraped:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            scrape(http_port)
            time.sleep(max(0.0, every - (time.monotonic() - began)))
    return {
        "alone_p99_ms": percentile(alone, 0.99),
        "scraped_p99_ms": percentile(scraped, 0.99),
        "scraped_max_ms": max(scraped),
        "ratio": percentile(scraped, 0.99) / percentile(alone, 0.99),
    }


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--partitions", type=int, default=10_000)
    arguments.add_argument("--scrapes", type=int, default=20)
    arguments.add_argument("--seconds", type=float, default=15)
    arguments.add_argument("--every", type=float, default=5, help="seconds between two scrapes")
    options = arguments.parse_args()
    layout = Layout(options.partitions // TOPIC_PARTITIONS, TOPIC_PARTITIONS)
    http_port = free_port()
    settings = [f"ottla.http.listener=127.0.0.1:{http_port}", "num.partitions=1"]
    results: list[dict[str, Any]] = []
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
            for _ in range(options.rounds):
                result = cost(broker, http_port, layout, options.scrapes)
                results.append(result | delays(broker, http_port, options.seconds, options.every))
        finally:
            broker.stop()
    rows = {
        "cpu_ms": ("CPU of a scrape, ms", 1), "first_cpu_ms": ("the round's first one, ms", 1),
        "megabytes": ("its text, MB", 1), "alone_p99_ms": ("produce without scrapes, p99 ms", 2),
        "scraped_p99_ms": (f"with one every {options.every:g} s, p99 ms", 2),
        "scraped_max_ms": ("the longest, ms", 2), "ratio": ("p99 with to without", 2),
    }  # fmt: skip
    table = [[text, report.spread([one[name] for one in results], digits)]
             for name, (text, digits) in rows.items()]  # fmt: skip
    question = f"What does a scrape of {layout.total:,} partitions and as many lags cost?"
    report.write(question, "scrape-cpu", report.table(["", "Ottla"], table), {"runs": results})


if __name__ == "__main__":
    main()
