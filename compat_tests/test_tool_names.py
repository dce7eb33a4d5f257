"""Our tools under Kafka's names. On Ottla, Apache Kafka's tools still print the recorded answers.
On Apache Kafka, our tools print the same as Kafka's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from compat_tests.brokers import KafkaBroker
from compat_tests.kafka_tools import KafkaTools
from compat_tests.record_tools import GOLDEN, outputs_of
from ottla.tools.cli.occupancy import is_taken
from tests.tools.kafka_names.comparison import difference, refusal, run
from tests.tools.kafka_names.scenario import Output, Step, parse, play, render
from tests.tools.kafka_names.stage import OVERRIDES, Stage, place_of

ON_KAFKA = (
    "offsets", "consumer-groups", "client-metrics", "configs", "topics", "partitions",
    "active-groups", "streams-reset", "acls", "transactions", "verifiable", "performance",
    "console", "features",
)
"""Scenarios that are played in this order on one Apache Kafka broker."""
ALIKE_ON_BOTH = {"features"}
"""Scenarios in which Kafka's tools print the same on Apache Kafka as on Ottla."""
TOO_EARLY = "kafka-e2e-latency --bootstrap-server {} --topic e2e --num-records 20"
"""Kafka's tool creates this topic and may end with 1, because the topic has no leader yet."""
Run = Callable[[list[str], bytes], Output]


def commands_of(name: str) -> list[Step]:
    return [step for step in parse((GOLDEN / f"{name}.txt").read_text()) if step.kind == "$"]


def asks_the_default_address(step: Step) -> bool:
    """Whether Kafka's tool would use localhost:9092. If a broker runs there, its answer is not the
    recorded one, and a test must leave that broker alone."""
    return (step.kind == "$" and step.words[0] == "kafka-streams-application-reset"
            and "--bootstrap-server" not in step.words and len(step.words) > 1)  # fmt: skip


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.txt")), ids=lambda path: path.stem)
def test_kafkas_tools_print_what_was_recorded(tools: KafkaTools, path: Path) -> None:
    text = path.read_text()
    if is_taken("localhost", 9092):
        text = render([step for step in parse(text) if not asks_the_default_address(step)])
    outputs = outputs_of(tools, text)
    steps = [step for step in parse(text) if step.kind == "$"]
    wrong = [problem for step, output in zip(steps, outputs, strict=True)
             if (problem := difference(step, output))]  # fmt: skip
    assert not wrong, "record them again: python -m compat_tests.record_tools\n" + "\n".join(wrong)


SETTLE_SECONDS = 0.2
CHANGES = {"--create", "--delete", "--alter"}


def patiently(run_one: Run) -> Run:
    """A function that calls `run_one`, and waits after each change, because Apache Kafka's brokers
    apply a change only a moment after they have answered."""

    def waiting(words: list[str], stdin: bytes) -> Output:
        output = run_one(words, stdin)
        if CHANGES & set(words):
            time.sleep(SETTLE_SECONDS)
        return output

    return waiting


def session(directory: Path, run_one: Run) -> dict[str, list[Output]]:
    """Play the scenarios of ON_KAFKA on a new Apache Kafka broker; return their outputs by name."""
    settings = ["node.id=0", *(f"{name}={value}" for name, value in OVERRIDES.items())]
    broker = KafkaBroker(directory / "kafka", settings)
    broker.compile_less()
    broker.start()
    outputs = {}
    try:
        for name in ON_KAFKA:
            (directory / name).mkdir()
            stage = Stage(broker.bootstrap)
            place = place_of(broker.bootstrap, directory / name, directory / "kafka" / "data")
            steps = parse((GOLDEN / f"{name}.txt").read_text())
            outputs[name] = play(steps, place, patiently(run_one), stage.act)
            stage.close()
    finally:
        broker.stop()
    return outputs


@pytest.mark.long
def test_ours_and_kafkas_answer_alike_on_apache_kafka(tools: KafkaTools, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "ours").mkdir()
    with ThreadPoolExecutor(1) as pool:     # `run` redirects output, so only this thread calls it
        others = pool.submit(
            session, tmp_path / "theirs",
            lambda words, stdin: Output(*tools.run(words[0], words[1:], stdin)),
        )  # fmt: skip
        ours = session(tmp_path / "ours", run)
        theirs = others.result()
    wrong = []
    for name in ON_KAFKA:
        for step, expected, got in zip(commands_of(name), theirs[name], ours[name], strict=True):
            if name in ALIKE_ON_BOTH and (problem := difference(step, expected)):
                wrong.append(f"{name}: {step.line}\non Apache Kafka:\n{problem}")
            step.status, step.stdout = expected.status, expected.stdout
            if expected.status and TOO_EARLY in step.line:
                continue
            if problem := difference(step, got) or refusal(step, got):
                wrong.append(f"{name}: {step.line}\n{problem}")
    assert not wrong, "\n".join(wrong)
