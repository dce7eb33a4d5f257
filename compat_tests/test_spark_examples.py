"""Every example of `ottla pipeline NAME --help` is run as it stands, on flights; so is every
command of docs/spark.md. (spark_reference.md has signatures only; spark_walkthrough.md has a test
of its own.)"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from datetime import datetime
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
    """The example's words, with these addresses, and its files in a directory."""
    for name, address in addresses.items():
        example = example.replace(name, address)
    found = shlex.split(example)[1:]
    return [
        str(directory / word) if before in PLACES else word
        for before, word in zip(["", *found], found, strict=False)
    ]


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
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTTLA_SPARK_JARS", str(COMPAT_DIR / "ivy"))
    begin_ms, end_ms = (
        datetime.fromisoformat(f"2013-06-0{day}T00:00-04:00").timestamp() * 1000 for day in (1, 2))
    flights = [each for each in read_flights() if begin_ms <= each.timestamp_ms < end_ms]
    broker = new_broker()
    broker.start()
    try:
        wanted = NewTopic("flights", 6, 1, config={"retention.ms": "-1"})
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([wanted])["flights"].result(60)
        produce(broker.bootstrap, "flights", "lz4", flights)
        for block in blocks("docs/spark.md"):
            text = block.text.replace("localhost:9092", broker.bootstrap)
            match block.language:
                case "python":
                    exec(compile(text, block.place, "exec"), {})
                case "toml":
                    Path("flights.toml").write_text(text)
                case "sh":
                    assert command.main(shlex.split(text)[1:]) == 0
        shown = capsys.readouterr().out
        carriers = set(re.findall(r"^\| *(\w\w)\| *[0-9.E-]+\|$", shown, re.MULTILINE))
        assert carriers == {each.key.decode() for each in flights}
        archived, _ = json.loads(shown[shown.index("\n[") :])
        assert archived["records"] == len(flights), archived
        assert any(Path("flights-windows").rglob("*.parquet"))
    finally:
        broker.stop()
