"""Our tools print the same as Apache Kafka's, as far as scripts can depend on it.

compat_tests/record_tools.py recorded `golden/*.txt` from the tools of 4.4.0. The tests compare
stdout and exit status. On stderr, a failed command prints one line; `refusals.txt` and
`by_hand.txt` have the beginning of this line.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.tools.commands.table import read
from ottla.tools.kafka_names import streams_reset
from ottla.tools.kafka_names.grammar import Options, UsageError
from ottla.tools.zookeeper.local import free_port
from tests.tools.command_lines import CLUSTER, line_of
from tests.tools.kafka_names.comparison import difference, refusal, run
from tests.tools.kafka_names.scenario import Step, parse, play
from tests.tools.kafka_names.stage import Stage, place_of, stage_broker

GOLDEN = Path(__file__).parent / "golden"
BY_HAND = Path(__file__).with_name("by_hand.txt")
SCENARIOS = [*sorted(GOLDEN.glob("*.txt")), BY_HAND]
TOOLS = read("kafka")
ROOT = Path(__file__).parents[3]
ELSEWHERE = {
    "kafka-delegation-tokens": "compat_tests/test_delegation_tokens.py",
    "kafka-dump-log": "compat_tests/test_log_dump.py",
    "kafka-server-start": "tests/tools/kafka_names/test_server_names.py",
    "kafka-server-stop": "tests/tools/kafka_names/test_server_names.py",
    "kafka-mirror-maker": "tests/tools/test_troubles.py",  # Kafka 4.x has no such tool
}
"""Tools whose commands all fail in the scenarios, and for each the file with its other tests."""


def commands_of(path: Path) -> list[Step]:
    return [step for step in parse(path.read_text()) if step.kind == "$"]


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_our_tools_answer_as_kafkas_do(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The answers were recorded where no other broker ran; brokers may be running here.
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(streams_reset, "DEFAULT_ADDRESS", f"localhost:{free_port()}")
    steps = parse(path.read_text())
    commands = commands_of(path)
    with stage_broker(tmp_path) as broker:
        address = f"127.0.0.1:{broker.port}"
        stage = Stage(address)
        try:
            outputs = play(steps, place_of(address, tmp_path, tmp_path / "data"), run, stage.act)
        finally:
            stage.close()
    wrong = []
    for step, ours in zip(commands, outputs, strict=True):
        if problem := difference(step, ours) or refusal(step, ours):
            wrong.append(f"{path.name}:{step.number}: {step.line}\n{problem}")
    assert not wrong, f"{len(wrong)} of {len(commands)} differ\n\n" + "\n\n".join(wrong)


def test_every_tool_of_the_table_is_compared() -> None:
    steps = [step for path in SCENARIOS for step in commands_of(path)]
    assert {step.words[0] for step in steps} == {*TOOLS}
    assert {*TOOLS} - {step.words[0] for step in steps if not step.status} == {*ELSEWHERE}
    for name, file in ELSEWHERE.items():
        assert name.removeprefix("kafka-").replace("-", " ").split()[0] in (ROOT / file).read_text()


def test_the_words_of_every_tools_refusals_are_kept() -> None:
    refusals = [*commands_of(GOLDEN / "refusals.txt"), *commands_of(BY_HAND)]
    assert {step.words[0] for step in refusals} == {*TOOLS}
    assert all(step.status for step in refusals)
    assert not [step.line for step in refusals if step.words[1:] and not step.ours], "% is missing"


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_any_tool_says_what_is_wrong_with_its_flags(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tools once printed "unexpected UsageError" before the reason."""

    def refuse(_: Options) -> int:
        raise UsageError("--one is missing")

    monkeypatch.setattr(f"{TOOLS[name].target}.run", refuse)
    ran = run(line_of(name, CLUSTER), b"")
    assert ran == (1, "", f"{name}: --one is missing; see {name} --help\n")
