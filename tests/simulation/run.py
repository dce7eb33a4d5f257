"""Runs one seed, and shortens a run that breaks a promise."""

from __future__ import annotations

import copy
import gc
import os
import re
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ottla.wire.marks import count_in
from tests.simulation.cluster.options import ClusterOptions
from tests.simulation.options import Options
from tests.simulation.story import Story
from tests.simulation.world import Patches, World

ROOT = Path(__file__).resolve().parents[2]
SWITCHES = (
    "small", "narrow", "members", "contenders", "abandons", "slow_loads", "slow_images",
    "impatient", "guarded", "wide", "directory_moves", "settings_change", "deletions",
    "follower_reads", "snapshots", "slow_verdicts",
)
"""Options that `shorten` may set to false. It may set those of SHARES to 0."""
SHARES = ("slow_share", "slow_network", "slow_threads", "cold_share", "pieces_share", "rivals")


@dataclass
class Outcome:
    """The outcome of a run. If it has no violation, every promise was kept."""

    seed: int
    steps: int
    violation: str = ""
    trace: list[str] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    """How often each mark was reached."""

    @property
    def kind(self) -> str:
        """The violation without its figures and names."""
        return re.sub(r"'[^']*'|[abc]\(\d+\)-\d+|\d+", "#", self.violation)[:60]


def outcome(seed: int, options: Options) -> Outcome:
    """Run a seed from start to end. Any exception is a violation, which shows a defect of the
    broker or of the simulator."""
    world = world_of(seed, copy.deepcopy(options))
    found = Outcome(seed, 0)
    with Patches(world):
        count_in(found.marks)
        gc.disable()                # a collection could run finalizers at varying moments
        try:
            world.run(story_of(world))
        except Exception as error:
            found.violation = f"{error}" if isinstance(error, AssertionError) else repr(error)
            found.violation = found.violation or repr(error)
        finally:
            found.steps, found.trace = world.steps, world.trace
            world.close()
            count_in(None)
            gc.enable()
            gc.collect()
    return found


def run_alone(seed: int, brokers: int = 1, long: bool = False) -> subprocess.CompletedProcess[str]:
    """Run one seed in a process of its own, for tests; standard output has the trace, and the exit
    status is 1 after a violation.

    A world replaces clocks and random numbers of the whole process. In the process of the tests, a
    thread that another test has left running would use them, too.
    """
    return python_alone(
        "-m", "tests.simulation", "--trace", "--seed", str(seed), "--brokers", str(brokers),
        *["--long"] * long,
    )  # fmt: skip


def python_alone(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own. Hashes of strings are the same in each such process."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        cwd=ROOT, capture_output=True, check=False, text=True, timeout=300,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )  # fmt: skip


def world_of(seed: int, options: Options) -> World:
    """The world of a run: one machine, or a cluster."""
    if isinstance(options, ClusterOptions):
        from tests.simulation.cluster.world import ClusterWorld

        return ClusterWorld(seed, options)
    return World(seed, options)


def story_of(world: World) -> Coroutine[Any, Any, None]:
    """The story of the run."""
    if isinstance(world.options, ClusterOptions):
        from tests.simulation.cluster.story import ClusterStory
        from tests.simulation.cluster.world import ClusterWorld

        return ClusterStory(cast(ClusterWorld, world)).run()
    return Story(world).run()


def shorten(seed: int, options: Options, found: Outcome) -> Options:
    """Leave out faults, clients and other features as long as the same kind of violation remains;
    returns the remaining options."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in without(options):
            if outcome(seed, candidate).kind == found.kind:
                options, smaller = candidate, True
                break
    return options


def without(options: Options) -> Iterator[Options]:
    """Variants of the options; each lacks one thing, such as a fault, a client or a feature."""
    for at in range(len(options.faults)):
        less = copy.deepcopy(options)
        del less.faults[at]
        yield less
    if options.thorough and not isinstance(options, ClusterOptions):
        less = copy.deepcopy(options)
        less.thorough = False
        yield less
    for at in range(0 if isinstance(options, ClusterOptions) else len(options.endings)):
        less = copy.deepcopy(options)
        del less.endings[at]
        yield less
    for name in ("groups", "transactions", "readers", "producers", "admins", "lookers"):
        if getattr(options, name):
            less = copy.deepcopy(options)
            setattr(less, name, getattr(options, name) - 1)
            yield less
    for name in SWITCHES:
        if getattr(options, name, False):
            less = copy.deepcopy(options)
            setattr(less, name, False)
            yield less
    for name in SHARES:
        if getattr(options, name):
            less = copy.deepcopy(options)
            setattr(less, name, 0.0)
            yield less
    for at, (_, hours) in enumerate(getattr(options, "clock_jumps", ())):
        if hours:
            less = copy.deepcopy(options)
            less.clock_jumps[at] = (0, 0)           # type: ignore[attr-defined]
            yield less
    if options.rounds_seconds > 0.1:
        less = copy.deepcopy(options)
        less.rounds_seconds /= 2
        yield less
