"""Runs every example of `ottla pipeline NAME --help`, on flights, and every command of
docs/spark.md. Only addresses and paths are replaced. (spark_reference.md has only signatures;
test_spark_walkthrough.py tests spark_walkthrough.md.)"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from compat_tests.brokers import Broker
from compat_tests.flights import produce, read_flights
from compat_tests.requirements import COMPAT_DIR
from ottla.spark_interop.pipelines import command, steps
from tests.documents import blocks
from tests.spark_interop.histories import good_history

FLIGHTS = 1_500
PLACES = ("--path", "--checkpoint", "--html")


def words(example: str, addresses: dict[str, str], directory: Path) -> list[str]:
    """The arguments of an example, with these addresses, and with its files in `directory`."""
    for name, address in addresses.items():
        example = example.replace(name, address)
    found = shlex.split(example)[1:]
    return [
        str(directory / word) if before in PLACES else word
        for before, word in zip(["", *found], found, strict=False)
    ]


@pytest.mark.long
def test_every_example_of_help_runs_in_the_order_of_the_list(
    spark: SparkSession, new_broker: Callable[..., Broker], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    brokers = {"localhost:9092": new_broker(), "localhost:9192": new_broker()}
    for broker in brokers.values():
        broker.start()
    try:
        [here, there] = brokers.values()
        for broker, topics in (
            (here, ["flights", "flights-good", "flights-bad"]), (there, ["flights"])):
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            wanted = [NewTopic(t, 6, 1, config={"retention.ms": "-1"}) for t in topics]
            for made in admin.create_topics(wanted).values():
                made.result(60)
        produce(here.bootstrap, "flights", "lz4", read_flights(FLIGHTS))
        lines = map(json.dumps, good_history(1))
        (tmp_path / "history.jsonl").write_text("\n".join(lines))
        addresses = {name: broker.bootstrap for name, broker in brokers.items()}
        for step in steps.STEPS:
            status = command.main(words(step.example, addresses, tmp_path))
            shown = capsys.readouterr()
            assert status == 0, (step.name, shown.err)
            if step.name == "slice":     # it prints records, so its summary is beside them
                assert '"records": ' in shown.err, shown.err
            else:
                assert shown.out.strip(), step.name
    finally:
        for broker in brokers.values():
            broker.stop()
    assert "<svg" in (tmp_path / "flights.html").read_text()
    assert list((tmp_path / "flights-archive" / "data").rglob("*.parquet"))


def test_the_commands_of_the_page_about_spark_run(
    spark: SparkSession, new_broker: Callable[..., Broker], tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    broker = new_broker()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTTLA_SPARK_JARS", str(COMPAT_DIR / "ivy"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    broker.start()
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", broker.bootstrap)
    try:
        printed = ""
        for block in blocks("docs/spark.md"):
            text = block.text.replace("localhost:9092", broker.bootstrap)
            if block.language == "python":
                exec(compile(text, block.place, "exec"), {})
            elif block.language == "toml":
                Path("flights.toml").write_text(text)
            elif block.key.startswith("docs/spark.md: ottla pipeline"):
                assert command.main(shlex.split(text)[1:]) == 0     # in the existing Spark session
            elif block.language == "text":
                printed = text
            else:
                subprocess.run(["sh", "-e", "-c", text], check=True)
        shown = capsys.readouterr().out
        assert printed and printed in shown, "what the page shows is what its example prints"
        archived, windows = json.loads(shown[shown.index("\n[") :])
        assert archived["records"] == 4, archived
        assert windows["written"] == 2, "the first day's windows are final"
    finally:
        broker.stop()
