"""One seed: which command, which moment and which event, and what must hold whatever happened."""

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
"""For a command whose brokers run: none waits longer for anything, and machines may be busy."""
OUR_TRACEBACK = re.compile(r"^Traceback.*/ottla/", re.MULTILINE | re.DOTALL)
"""Python itself prints one where Ctrl-C comes before it has imported anything of ours."""
STATUS = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGKILL: -9}
ENDING = {"term": signal.SIGTERM, "int": signal.SIGINT, "kill": signal.SIGKILL}
PROCESS = ("term", "int", "kill", "term twice")
BROKERS = ("kill a broker", "kill all brokers", "stop a broker", "pause a broker",
           "kill a broker, then term")  # fmt: skip
ALL = ("nothing", *PROCESS, *BROKERS)


@dataclass
class Event:
    """What happens to a command, and when: so many seconds after its start, or at the latest then
    once so many bytes have gone through its pipes."""

    name: str
    seconds: float
    bytes: int
    pause: float
    nodes: list[int] = field(default_factory=list)

    @property
    def hits_brokers(self) -> bool:
        """Whether the cluster was away for a while."""
        return "broker" in self.name

    @property
    def kills(self) -> bool:
        """Whether the command cannot end in order."""
        return self.name in ("kill", "term twice")

    def __str__(self) -> str:
        at = f"{self.bytes} bytes" if self.bytes else f"{self.seconds:.3f} s"
        return f"{self.name} after {at}" + (
            f", brokers {self.nodes} away for {self.pause} s" if self.hits_brokers else "")


class Seed:
    """The choices of a number, and the commands that it runs."""

    def __init__(self, number: int, world: World, folder: Path) -> None:
        self.number, self.world, self.folder = number, world, folder
        self.chance = random.Random(f"tools {number}")
        self.runs = 0
        self.told: list[str] = []

    def name(self, what: str) -> str:
        """A topic or group of this run alone: a number may come twice in a world."""
        return f"{what}-{self.number}-{time.time_ns() // 1_000_000 % 10_000_000}"

    def event(
        self, names: tuple[str, ...] = ALL, bytes_max: int = 0, also: tuple[int, ...] = ()
    ) -> Event:
        """Choose one. `also` are nodes that may be hit besides the brokers."""
        chance = self.chance
        name = chance.choice(names)
        nodes = [chance.choice([*self.world.nodes, *also])]
        if name == "kill all brokers":
            nodes = list(self.world.nodes)
        at = chance.randrange(1, bytes_max) if bytes_max and chance.random() < 0.6 else 0
        seconds = 10 ** chance.uniform(-1.7, 0.5)
        return Event(name, 5.0 if at else seconds, at, chance.choice((0.1, 1.0, 4.0)), nodes)

    def start(self, words: list[str], given: bytes | None = None, hold: int = 0) -> Running:
        """A command of this seed."""
        self.runs += 1
        folder = self.folder / f"{self.runs}"
        return Running(words, folder, self.world.bootstrap, given, hold)

    def run(
        self, words: list[str], event: Event | None = None, given: bytes | None = None
    ) -> Outcome:
        """A command from its start to its end, with an event on the way, and what is promised of
        every command."""
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
        """The event; when it returns all brokers run."""
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
        """The exit status is true, nothing is left, no error is a traceback."""
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
                allowed |= {STATUS[number], -number}    # before it has begun it just dies
                if outcome.words[0] == "bash":
                    allowed |= {128 + number}
        said = outcome.err.strip()
        if event.name == "int" and said.endswith("KeyboardInterrupt"):
            return              # Python was not ready yet
        assert outcome.status in allowed, (
            f"status {outcome.status}, expected {sorted(allowed)}: {said[-600:]}")
        if outcome.status == 1 and event.name != "close the reader":
            assert said, "status 1 without a word"


Scene = Callable[[Seed], None]

