"""--print-metrics of the perf tools prints the same table as Kafka's, and its figures add up."""

from __future__ import annotations

import re
from pathlib import Path

from tests.tools.kafka_names.comparison import run
from tests.tools.kafka_names.stage import stage_broker


def metrics(text: str) -> dict[str, float]:
    """The rows after the table's head, by the metric's name."""
    head, _, rows = text.partition("Metric Name")
    assert head.endswith("\n\n") and rows.splitlines()[0].endswith("   Value")
    found = [re.fullmatch(r"[\w-]+:([\w-]+):\{client-id=[\w-]+\} +: (\d+\.\d{3})", row)
             for row in rows.splitlines()[1:]]  # fmt: skip
    return {one[1]: float(one[2]) for one in found if one is not None}


def test_the_figures_of_both_tools_add_up(tmp_path: Path) -> None:
    with stage_broker(tmp_path) as broker:
        at = ["--bootstrap-server", f"127.0.0.1:{broker.port}", "--topic", "measured"]
        load = [*at, "--num-records", "2000", "--print-metrics"]
        sent = run(["kafka-producer-perf-test", *load, "--record-size", "50", "--throughput", "-1",
                    "--transactional-id", "measuring"], b"")  # fmt: skip
        shown = metrics(sent.stdout)
        assert shown["record-send-total"] == 2000 and shown["outgoing-byte-total"] == 100_000
        per_request = shown["records-per-request-avg"]
        assert abs(shown["request-total"] * per_request - 2000) < 1
        read = run(["kafka-consumer-perf-test", *load], b"")
        assert metrics(read.stdout)["records-consumed-total"] == 2000
