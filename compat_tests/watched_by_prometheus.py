"""A real Prometheus scrapes a broker under load, and evaluates the expressions of Grafana's boards.

`python -m compat_tests.watched_by_prometheus --minutes 10` prints every expression with the number
of series in its answer, and how many scrapes there were and how many succeeded. The exit status is
1 if an expression has no answer or a scrape failed. The expressions are those of Grafana's board
7589 (kafka_exporter), the Kafka rows of Strimzi's strimzi-kafka.json, our own board, and the alerts
of docs/monitoring.md.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.brokers import OttlaBroker
from compat_tests.requirements import ROOT, program
from compat_tests.waiting import wait_until
from ottla.tools.zookeeper.local import free_port

TOPIC, GROUP = "orders", "billing"
SCRAPE_SECONDS = 1
START_SECONDS = 120
BOARD_7589 = (
    'sum(rate(kafka_topic_partition_current_offset{instance="$instance", topic=~"$topic"}[1m]))'
    " by (topic)",
    'sum(kafka_consumergroup_lag{instance="$instance",topic=~"$topic"}) by (consumergroup, topic)',
    "sum(delta(kafka_topic_partition_current_offset{instance=~'$instance', topic=~\"$topic\"}[5m])"
    "/5) by (topic)",
    "sum(delta(kafka_consumergroup_current_offset{instance=~'$instance',topic=~\"$topic\"}[5m])/5)"
    " by (consumergroup, topic)",
    "sum by(topic) (kafka_topic_partitions{instance=~'$instance',topic=~\"$topic\"})",
)
STRIMZI_LABELS = {
    "namespace": "kafka", "strimzi_io_cluster": "mine", "kubernetes_pod_name": "mine-kafka-0",
}
OF_STRIMZI = (
    'namespace="kafka",kubernetes_pod_name=~"mine-kafka-.*",strimzi_io_cluster="mine"')
STRIMZI = (
    "sum(kafka_controller_kafkacontroller_activecontrollercount{%s}) > 0",
    "sum(kafka_server_replicamanager_leadercount{%s})",
    "sum(kafka_server_replicamanager_partitioncount{%s})",
    "sum(kafka_server_replicamanager_underreplicatedpartitions{%s})",
    "sum(kafka_cluster_partition_underminisr{%s})",
    "sum(kafka_cluster_partition_atminisr{%s})",
    "sum(kafka_controller_kafkacontroller_offlinepartitionscount{%s})",
    "sum(irate(kafka_controller_controllerstats_uncleanleaderelections_total{%s}[5m]))",
    "sum(irate(kafka_server_replicamanager_isrshrinks_total{%s}[5m]))",
    "sum(irate(kafka_server_replicamanager_isrexpands_total{%s}[5m]))",
    'sum(irate(kafka_server_brokertopicmetrics_bytesin_total{%s,topic=~"orders",topic!=""}[5m]))',
    'sum(irate(kafka_server_brokertopicmetrics_bytesout_total{%s,topic=~"orders",topic!=""}[5m]))',
    'sum(irate(kafka_server_brokertopicmetrics_messagesin_total{%s,topic!=""}[5m])) by (topic)',
    'sum(irate(kafka_server_brokertopicmetrics_totalproducerequests_total{%s,topic!=""}[5m]))',
    'sum(irate(kafka_server_brokertopicmetrics_failedproducerequests_total{%s,topic!=""}[5m]))',
    'sum(irate(kafka_server_brokertopicmetrics_totalfetchrequests_total{%s,topic!=""}[5m]))',
    'sum(irate(kafka_server_brokertopicmetrics_failedfetchrequests_total{%s,topic!=""}[5m]))',
    "sum(kafka_server_socket_server_metrics_connection_count{%s}) by (listener)",
    "sum(kafka_log_log_size{%s}) by (topic)",
    "sum(irate(kafka_network_requestmetrics_requests_total{%s}[5m]))",
    'kafka_network_requestmetrics_totaltimems{%s,quantile="0.99"}',
)
ALERT = re.compile(r"^\| `(.+?) [=><!]+ [\d.]+` \|", re.MULTILINE)
RARE = ("kafka_network_requestmetrics_errors_total", "kafka_server_sessionexpirelistener")
"""Metrics that have a series only after an error, or only in a cluster. An expression with such a
metric may have an empty answer."""


def expressions(instance: str) -> dict[str, list[str]]:
    """The expressions to evaluate, by the board or document that has them."""
    board = json.loads((ROOT / "packaging" / "grafana" / "ottla.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    alerts = ALERT.findall((ROOT / "docs" / "monitoring.md").read_text())
    return {
        "Grafana 7589": [text.replace("$instance", instance).replace("$topic", TOPIC)
                         for text in BOARD_7589],
        "Strimzi": [text % OF_STRIMZI for text in STRIMZI],
        "packaging/grafana/ottla.json": [text.replace("$__rate_interval", "1m") for text in asked],
        "alerts of docs/monitoring.md": alerts,
    }  # fmt: skip


class Load:
    """A producer, and a consumer in a group, which work in threads until `stop`."""

    def __init__(self, bootstrap: str, records_a_second: int) -> None:
        self.bootstrap, self.rate = bootstrap, records_a_second
        self.ended = threading.Event()
        self.sent = self.received = 0
        self.threads = [threading.Thread(target=one) for one in (self._send, self._receive)]
        for thread in self.threads:
            thread.start()

    def _send(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        while not self.ended.wait(0.05):
            for _ in range(self.rate // 20):
                producer.produce(TOPIC, b"x" * 200)
                self.sent += 1
            producer.poll(0)
        producer.flush(30)

    def _receive(self) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": GROUP,
                             "auto.offset.reset": "earliest",
                             "auto.commit.interval.ms": 500})  # fmt: skip
        consumer.subscribe([TOPIC])
        while not self.ended.is_set():
            self.received += len(consumer.consume(10_000, 0.2))
        consumer.close()

    def stop(self) -> None:
        """End both threads."""
        self.ended.set()
        for thread in self.threads:
            thread.join()


class Prometheus:
    """A Prometheus process that scrapes one target."""

    def __init__(self, directory: Path, target: str) -> None:
        labels = "".join(f"\n          {name}: {text}" for name, text in STRIMZI_LABELS.items())
        config = directory / "prometheus.yml"
        config.write_text(
            f"global:\n  scrape_interval: {SCRAPE_SECONDS}s\nscrape_configs:\n"
            f"  - job_name: ottla\n    static_configs:\n      - targets: [\"{target}\"]\n"
            f"        labels:{labels}\n"
        )
        self.url = f"http://127.0.0.1:{free_port()}"
        with (directory / "prometheus.log").open("wb") as log:
            self.process = subprocess.Popen(
                [program("prometheus"), f"--config.file={config}",
                 f"--storage.tsdb.path={directory / 'tsdb'}",
                 f"--web.listen-address={self.url.removeprefix('http://')}"],
                stdout=log, stderr=log,
            )  # fmt: skip

    def ask(self, expression: str) -> list[Any]:
        """The series in the answer to an expression; raises if the expression is wrong."""
        question = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{question}", timeout=60) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return list(found["data"]["result"])

    def wait(self) -> None:
        """Wait until a scrape has succeeded."""

        def scraped() -> bool:
            try:
                return bool(self.ask("up == 1"))
            except OSError:
                return False

        wait_until(scraped, "Prometheus has scraped", START_SECONDS)

    def stop(self) -> None:
        """End the process."""
        self.process.terminate()
        self.process.wait(30)


@contextmanager
def watched(directory: Path, records_a_second: int) -> Iterator[tuple[Prometheus, Load, str]]:
    """A broker under load and a Prometheus that scrapes it, for a block; yields the Prometheus, the
    load, and the address that is scraped."""
    port = free_port()
    broker = OttlaBroker(
        directory / "broker",
        [f"ottla.http.listener=127.0.0.1:{port}", "group.initial.rebalance.delay.ms=0"])
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 6, 1)])[TOPIC].result(60)
        load = Load(broker.bootstrap, records_a_second)
        prometheus = Prometheus(directory, f"127.0.0.1:{port}")
        try:
            prometheus.wait()
            yield prometheus, load, f"127.0.0.1:{port}"
        finally:
            prometheus.stop()
            load.stop()
    finally:
        broker.stop()


def unanswered(prometheus: Prometheus, instance: str) -> list[str]:
    """Evaluate and print every expression; returns the expressions without an answer, except those
    on RARE metrics."""
    empty = []
    for where, asked in expressions(instance).items():
        assert asked, where
        for expression in asked:
            count = len(prometheus.ask(expression))
            print(f"{count:5} series  {where}: {expression}")
            if not count and not any(name in expression for name in RARE):
                empty.append(f"{where}: {expression}")
    return empty


def main() -> int:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--minutes", type=float, default=10)
    arguments.add_argument("--rate", type=int, default=5000, help="records a second")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-prometheus-") as name:
        with watched(Path(name), given.rate) as (prometheus, load, instance):
            time.sleep(given.minutes * 60)
            empty = unanswered(prometheus, instance)
            window = f"[{max(1, int(given.minutes * 60))}s]"
            [scrapes] = prometheus.ask(f"count_over_time(up{window})")
            [good] = prometheus.ask(f"sum_over_time(up{window})")
            [longest] = prometheus.ask(f"max_over_time(scrape_duration_seconds{window})")
            print(f"scrapes {scrapes['value'][1]}, good {good['value'][1]}, "
                  f"the longest {float(longest['value'][1]) * 1000:.1f} ms")  # fmt: skip
            print(f"records sent {load.sent}, received {load.received}")
    for expression in empty:
        print(f"no answer: {expression}", file=sys.stderr)
    return int(bool(empty) or scrapes["value"][1] != good["value"][1])


if __name__ == "__main__":
    raise SystemExit(main())
