"""Our tools print the same as Apache Kafka's, as far as scripts can depend on it.

`golden/*.txt` was recorded from the tools of 4.4.0 by compat_tests/record_tools.py. Compared are
stdout and exit status; for stderr, that a failed command prints one line and no traceback.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.tools.commands.table import read
from ottla.tools.kafka_names import streams_reset
from ottla.tools.zookeeper.local import free_port
from tests.tools.kafka_names.comparison import difference, run
from tests.tools.kafka_names.scenario import parse, play
from tests.tools.kafka_names.stage import Stage, place_of, stage_broker

GOLDEN = Path(__file__).parent / "golden"
SCENARIOS = sorted(GOLDEN.glob("*.txt"))
ROOT = Path(__file__).parents[3]
ELSEWHERE = {
    "kafka-dump-log": "compat_tests/test_log_dump.py",
    "kafka-server-start": "tests/tools/kafka_names/test_server_names.py",
    "kafka-server-stop": "tests/tools/kafka_names/test_server_names.py",
    "kafka-mirror-maker": "tests/tools/test_troubles.py",  # 4.x has none to compare with
}
"""Tools that a scenario of lines cannot show, with the file of their tests."""


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_our_tools_answer_as_kafkas_do(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody was there when it was recorded; here somebody may run a broker.
    monkeypatch.setattr(streams_reset, "DEFAULT_ADDRESS", f"localhost:{free_port()}")
    steps = parse(path.read_text())
    commands = [step for step in steps if step.kind == "$"]
    with stage_broker(tmp_path) as broker:
        address = f"127.0.0.1:{broker.port}"
        stage = Stage(address)
        try:
            outputs = play(steps, place_of(address, tmp_path, tmp_path / "data"), run, stage.act)
        finally:
            stage.close()
    wrong = []
    for step, ours in zip(commands, outputs, strict=True):
        if problem := difference(step, ours):
            wrong.append(f"{path.name}:{step.number}: {step.line}\n{problem}")
    assert not wrong, f"{len(wrong)} of {len(commands)} differ\n\n" + "\n\n".join(wrong)


def test_every_tool_of_the_table_is_compared() -> None:
    played = {
        step.words[0] for path in SCENARIOS for step in parse(path.read_text()) if step.kind == "$"
    }
    assert played | {*ELSEWHERE} == {*read("kafka")} and not played & {*ELSEWHERE}
    for name, file in ELSEWHERE.items():
        assert name.removeprefix("kafka-").replace("-", " ").split()[0] in (ROOT / file).read_text()
