"""Records what the tools of Apache Kafka 4.4.0 print against this broker.

    .venv/bin/python -m compat_tests.record_tools [NAME…]

rewrites the files `tests/tools/kafka_names/golden/NAME.txt`; without a NAME, all of them. It keeps
the commands, and replaces the recorded answers. Review the diff afterwards.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from compat_tests.kafka_tools import KafkaTools
from compat_tests.requirements import ROOT
from tests.tools.kafka_names.scenario import Output, parse, play, render
from tests.tools.kafka_names.stage import Stage, place_of, stage_broker

GOLDEN = ROOT / "tests" / "tools" / "kafka_names" / "golden"


def outputs_of(tools: KafkaTools, text: str) -> list[Output]:
    """The output of Kafka's tools for a scenario on a new Ottla broker."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with stage_broker(directory) as broker:
            address = f"127.0.0.1:{broker.port}"
            stage = Stage(address)
            place = place_of(address, directory, directory / "data")
            try:
                return play(
                    parse(text),
                    place,
                    lambda words, stdin: Output(*tools.run(words[0], words[1:], stdin)),
                    stage.act,
                )
            finally:
                stage.close()


def record(tools: KafkaTools, path: Path) -> None:
    """Rewrite the answers of one scenario."""
    steps = parse(path.read_text())
    commands = [step for step in steps if step.kind == "$"]
    for step, output in zip(commands, outputs_of(tools, path.read_text()), strict=True):
        step.status, step.stdout = output.status, output.stdout
        step.stderr = first_line(output.stderr)
    path.write_text(render(steps))


def first_line(text: str) -> str:
    """The first line that is not a log line. Stack traces and usage texts are not recorded."""
    lines = [line for line in text.splitlines() if line and not line.startswith("[TIME]")]
    return lines[0] + "\n" if lines else ""


def main(names: list[str]) -> int:
    """Record the named scenarios, or all if no name is given."""
    tools = KafkaTools()
    for path in sorted(GOLDEN.glob("*.txt")):
        if not names or path.stem in names:
            print(path.stem, flush=True)
            record(tools, path)
    tools.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
