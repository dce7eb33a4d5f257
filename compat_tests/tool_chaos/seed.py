"""A seed: its choices of events and moments, and the checks that hold for every command."""

from __future__ import annotations

import random
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from compat_tests.tool_chaos.running import Outcome, Running
from compat_tests.tool_chaos.world import World

LIMIT_SECONDS = 90.0
"""The time limit of a command. No command waits this long for anything, even on a busy machine,
because brokers that an event takes away are back after seconds."""
OUR_TRACEBACK = re.compile(r"^Traceback.*/ottla/", re.MULTILINE | re.DOTALL)
"""A traceback that passes through our code. Python itself prints a traceback if Ctrl-C comes before
it has imported any of our code; that is no fault."""
STATUS = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGKILL: -9}
ENDING = {"term": signal.SIGTERM, "int": signal.SIGINT, "kill": signal.SIGKILL}
PROCESS = ("term", "int", "kill", "term twice")
BROKERS = ("kill a broker", "kill all brokers", "stop a broker", "pause a broker",
           "kill a broker, then term")  # fmt: skip
ALL = ("nothing", *PROCESS, *BROKERS)


@dataclass
class Event:
    """What happens to a command or to brokers, and when.

    If `bytes` is not 0, the event happens when that many bytes have gone through the command's
    input or output, but no later than `seconds` after its start. Otherwise it happens after
    `seconds`. The brokers `nodes` are away for `pause` seconds.
    """

    name: str
    seconds: float
    bytes: int
    pause: float
    nodes: list[int] = field(default_factory=list)

    @property
    def hits_brokers(self) -> bool:
        """Whether the event takes brokers away for a while."""
        return "broker" in self.name

    @property
    def kills(self) -> bool:
        """Whether the event gives the command no time to end cleanly."""
        return self.name in ("kill", "term twice")

    def __str__(self) -> str:
        at = f"{self.bytes} bytes" if self.bytes else f"{self.seconds:.3f} s"
        return f"{self.name} after {at}" + (
            f", brokers {self.nodes} away for {self.pause} s" if self.hits_brokers else "")


class Seed:
    """The choices that follow from a seed's number, and the commands that run with them."""

    def __init__(self, number: int, world: World, folder: Path) -> None:
        self.number, self.world, self.folder = number, world, folder
        self.chance = random.Random(f"tools {number}")
        self.runs = 0
        self.told: list[str] = []

    def name(self, what: str) -> str:
        """A new name for a topic or group. It contains the time, because a seed may run more than
        once in the same world."""
        return f"{what}-{self.number}-{time.time_ns() // 1_000_000 % 10_000_000}"

    def event(
        self, names: tuple[str, ...] = ALL, bytes_max: int = 0, also: tuple[int, ...] = ()
    ) -> Event:
        """Choose an event, its moment and its brokers. If `bytes_max` is not 0, a number
        of bytes below it may determine the moment (`Event.bytes`). An event for one broker hits a
        node of `World.nodes` or of `also`."""
        chance = self.chance
        name = chance.choice(names)
        nodes = [chance.choice([*self.world.nodes, *also])]
        if name == "kill all brokers":
            nodes = list(self.world.nodes)
        at = chance.randrange(1, bytes_max) if bytes_max and chance.random() < 0.6 else 0
        seconds = 10 ** chance.uniform(-1.7, 0.5)
        return Event(name, 5.0 if at else seconds, at, chance.choice((0.1, 1.0, 4.0)), nodes)

    def start(self, words: list[str], given: bytes | None = None, hold: int = 0) -> Running:
        """Start a command; `given` is its input. `Running` explains `hold`."""
        self.runs += 1
        folder = self.folder / f"{self.runs}"
        return Running(words, folder, self.world.bootstrap, given, hold)

    def run(
        self, words: list[str], event: Event | None = None, given: bytes | None = None
    ) -> Outcome:
        """Run a command to its end, with an event meanwhile, and check what every command promises;
        returns how the command ended."""
        event = event or Event("nothing", 0.0, 0, 0.0)
        self.told.append(f"{' '.join(words)[:120]}: {event}")
        running = self.start(words, given, event.bytes)
        try:
            if event.name != "nothing":
                running.until_held(event.seconds)
                self.happen(event, running)
            running.read_rest()
            outcome = running.wait(LIMIT_SECONDS)
        finally:
            running.kill()
        self.told.append(f"status {outcome.status}")
        if event.hits_brokers:
            self.world.until_in_sync()
        self.check(outcome, event)
        return outcome

    def happen(self, event: Event, running: Running) -> None:
        """Make the event happen. When this returns, all brokers run."""
        name, world = event.name, self.world
        if name in ENDING:
            running.send(ENDING[name])
        elif name == "term twice":
            running.send(signal.SIGTERM)
            time.sleep(event.pause / 10)
            running.send(signal.SIGTERM)
        elif name == "close the reader":
            running.close_reader()
        elif name == "pause a broker":
            world.pause(event.nodes[0], True)
            running.read_rest()
            time.sleep(event.pause)
            world.pause(event.nodes[0], False)
        elif event.hits_brokers:
            for node in event.nodes:
                (world.stop if name == "stop a broker" else world.kill)(node)
            running.read_rest()
            time.sleep(event.pause / 2)
            if "term" in name:
                running.send(signal.SIGTERM)
            time.sleep(event.pause / 2)
            world.start(event.nodes)

    def check(self, outcome: Outcome, event: Event) -> None:
        """Check that the exit status fits the event, that no process is left behind, and that no
        error is a traceback."""
        assert not OUR_TRACEBACK.search(outcome.err), f"a traceback: {outcome.err[-1500:]}"
        assert "unexpected " not in outcome.err, f"an unexpected error: {outcome.err[-1500:]}"
        assert not outcome.left_behind, "a process that it started goes on"
        kafka = outcome.words[0].startswith("kafka-")
        allowed = {0}
        if event.hits_brokers:
            allowed |= {1}
        if event.name == "close the reader":
            allowed |= {0 if kafka else 1}
        for word, number in ENDING.items():
            if word in event.name:
                allowed |= {STATUS[number], -number}    # -number: before our handler is set
                if outcome.words[0] == "bash":
                    allowed |= {128 + number}
        said = outcome.err.strip()
        if event.name == "int" and said.endswith("KeyboardInterrupt"):
            return              # before any of our code was imported
        assert outcome.status in allowed, (
            f"status {outcome.status}, expected {sorted(allowed)}: {said[-600:]}")
        if outcome.status == 1 and event.name != "close the reader":
            assert said, "status 1 without a word"


Scene = Callable[[Seed], None]

