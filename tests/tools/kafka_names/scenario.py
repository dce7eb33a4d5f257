"""Command lines of Kafka's tools with what they print, as text that a person can read and review.

    # a remark
    $ kafka-topics --bootstrap-server {} --create --topic t     a command; {} is the broker
    < a line of its stdin
    > a line that it prints to stdout (">\\" if no line end follows)
    ! the first line that it prints to stderr
    % the beginning of our tool's line on stderr, after the tool's name
    ? 1                                                         its exit status, unless 0
    = plan.json                        a file in {dir}; each of its lines follows after a |
    | {"version": 1}
    @ join readers work                                         an action of `Stage`
    ~ order figures message            the parts of the output that may differ

`compat_tests/record_tools.py` records what the tools of Apache Kafka 4.4.0 print.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

PORT = "PPPPP"  # as long as a port: tables keep their columns
CLUSTER_ID = "CLUSTERCLUSTERCLUSTERI"
MEMBER = "UUUUUUUU-UUUU-UUUU-UUUU-UUUUUUUUUUUU"


class Output(NamedTuple):
    """The outcome of a command: exit status, stdout, stderr."""

    status: int
    stdout: str
    stderr: str


@dataclass
class Step:
    """A command with its recorded answer, or another line of the scenario."""

    line: str
    number: int
    lines: list[str] = field(default_factory=list)
    """A command's lines of stdin, or a file's lines."""
    stdout: str = ""
    stderr: str = ""
    ours: str = ""
    status: int = 0
    loose: str = ""

    @property
    def kind(self) -> str:
        return self.line[:1]

    @property
    def words(self) -> list[str]:
        """The command line as a shell would split it."""
        return shlex.split(self.line[2:])

    @property
    def stdin(self) -> bytes:
        return "".join(line + "\n" for line in self.lines).encode()


def parse(text: str) -> list[Step]:
    """The steps of a scenario."""
    steps: list[Step] = []
    for number, line in enumerate(text.splitlines(), 1):
        mark, rest = line[:1], line[2:]
        if mark in "#$=@" or not mark:
            steps.append(Step(line, number))
        elif mark in "<|":
            steps[-1].lines.append(rest)
        elif mark == "~":
            steps[-1].loose = rest
        elif mark == ">":
            steps[-1].stdout += rest if line.startswith(">\\") else rest + "\n"
        elif mark == "!":
            steps[-1].stderr += rest + "\n"
        elif mark == "%":
            steps[-1].ours = rest
        elif mark == "?":
            steps[-1].status = int(rest)
        else:
            raise ValueError(f"line {number} begins with {mark!r}")
    return steps


def render(steps: list[Step]) -> str:
    """Write these steps as text."""
    lines: list[str] = []
    for step in steps:
        lines.append(step.line)
        if step.loose:
            lines.append(f"~ {step.loose}")
        mark = "|" if step.kind == "=" else "<"
        lines += [
            f"{mark} {line}".rstrip(" ") if not line else f"{mark} {line}" for line in step.lines
        ]
        for part in step.stdout.splitlines(keepends=True):
            ended = part.endswith("\n")
            lines.append(f"> {part[:-1]}".rstrip("\n") if ended else f">\\{part}")
        lines += [f"! {part}" for part in step.stderr.splitlines()]
        if step.ours:
            lines.append(f"% {step.ours}")
        if step.status:
            lines.append(f"? {step.status}")
    return "\n".join(lines) + "\n"


@dataclass
class Place:
    """What differs from run to run, and is replaced in a scenario's lines and in the output."""

    address: str
    cluster_id: str
    directory: Path
    data: Path

    def fill(self, text: str) -> str:
        """Insert the broker's address and the directory into a command or a file."""
        return text.replace("{dir}", str(self.directory)).replace("{}", self.address)

    def neutral(self, text: str) -> str:
        """Replace what differs from run to run in the output; columns stay aligned."""
        port = self.address.rpartition(":")[2]
        for known, neutral in (
            (str(self.directory), "{dir}"),
            (str(self.data), "{data}"),
            (self.cluster_id, CLUSTER_ID),
        ):
            text = text.replace(known, neutral)
        text = re.sub(rf"\b{port}\b", PORT, text)
        for pattern, neutral in NEUTRAL:
            text = re.sub(pattern, neutral, text)
        return text


NEUTRAL = (
    (r"(TopicId: |topicId=|topic ID )[\w-]{22}\b", r"\g<1>TTTTTTTTTTTTTTTTTTTTTT"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", MEMBER),
    (r"\b(console-consumer|perf-consumer)-\d+", r"\g<1>-N"),
    (r"(?m)^\[20\d\d-[^\]]*\] ", "[TIME] "),
    (r"(?<![.\d])1[789]\d{11}\b", "MMMMMMMMMMMMM"),  # milliseconds since 1970
    # Ids of members and directories, which have letters of both cases.
    (
        r"(?<![\w.-])(?!LatestCoordinatorEpoch)(?=\S*[A-Z])(?=\S*[a-z])[\w/+-]{22}(?![\w/+(-])",
        "RRRRRRRRRRRRRRRRRRRRRR",
    ),
)


def play(
    steps: list[Step],
    place: Place,
    run: Callable[[list[str], bytes], Output],
    act: Callable[[list[str]], None],
) -> list[Output]:
    """Run the steps; returns the neutral outputs of the commands in order."""
    outputs = []
    for step in steps:
        if step.kind == "=":
            text = "".join(place.fill(line) + "\n" for line in step.lines)
            (place.directory / step.line[2:].strip()).write_text(text)
        elif step.kind == "@":
            act(step.line[2:].split())
        elif step.kind == "$":
            words = [place.fill(word) for word in step.words]
            status, out, err = run(words, step.stdin)
            outputs.append(Output(status, place.neutral(out), place.neutral(err)))
    return outputs
