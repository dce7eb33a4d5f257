"""Runs one of our tools in this process, compares its output with Apache Kafka's, and checks its
standard error."""

from __future__ import annotations

import contextlib
import io
import re

import pytest

from ottla.tools.kafka_names.main import main
from tests.tools.kafka_names.scenario import Output, Step


class Input(io.TextIOWrapper):
    """Standard input with these bytes."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8")


def run(words: list[str], stdin: bytes) -> Output:
    """Runs one of our tools in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.stdin", Input(stdin))
            status = main(words[0], words[1:])
    return Output(status, out.getvalue(), err.getvalue())


def comparable(step: Step, text: str) -> object:
    """Returns the part of an output that must be equal; `~` in a scenario says what may differ."""
    lines = [line for line in text.splitlines() if not IGNORED.match(line)]
    while lines and not lines[-1]:
        lines.pop()
    text = "\n".join(lines)
    if "head" in step.loose:
        text = text.partition("\n")[0]
    if "message" in step.loose:  # the rest is the broker's message
        text = re.sub(r"(Exception| ): .*", r"\1", text)
    if "figures" in step.loose:
        text = re.sub(r"-?\d+(\.\d+)?(E-?\d+)?", "N", text)
        text = re.sub(r" +", " ", text)
    if "order" in step.loose:
        return sorted(filter(None, re.split(r"[\s,\[\]{}]+", text)))
    return text


IGNORED = re.compile(
    # What only Kafka's tools print to stdout: stack traces of Java, the first metadata records of
    # KRaft, and warnings about old flags. Our tools print their warnings to stderr.
    r"\s+at |\s+\.\.\. \d+ more|Caused by: |(java|org|com)\.[\w.$]+(Exception|Error):"
    r"|Bootstrap metadata: |WARNING: Positional argument usage"
    r"|(Warning|Option):? --[\w.-]+ (is|has been) deprecated"
)


def difference(step: Step, ours: Output) -> str:
    """Returns what is wrong with our answer; "" if it is right."""
    if "Traceback" in ours.stderr:
        return ours.stderr
    expected, got = comparable(step, step.stdout), comparable(step, ours.stdout)
    if (step.status, expected) != (ours.status, got):
        return (
            f"Kafka: status {step.status}\n{step.stdout}"
            f"ours: status {ours.status}\n{ours.stdout}{ours.stderr}"
        )
    return ""


def refusal(step: Step, ours: Output) -> str:
    """Returns what is wrong with our tool's line on stderr after a failure; "" if it is right."""
    name, said = step.words[0], ours.stderr
    if "unexpected" in said:
        return f"an error that the tool does not know: {said!r}"
    if not ours.status or (len(step.words) == 1 and f"usage: {name} " in said):
        return ""
    if len(said.splitlines()) != 1:
        return f"stderr is not one line: {said!r}"
    if not said.startswith(f"{name}: {step.ours}"):
        return f"stderr does not begin with {name}: {step.ours!r}: {said!r}"
    return ""
