"""Processes that run seeds: each gets one run at a time, and answers with the run's outcome."""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import IO

from tests.simulation.cluster.options import FAULTS as CLUSTER_FAULTS
from tests.simulation.cluster.options import PREPARED, ClusterOptions
from tests.simulation.options import Options
from tests.simulation.run import outcome, shorten

PROCESSOR_SECONDS_MAX = 60
"""The limit of a run's CPU time, which is many times what a run takes."""
SHORTENING_SECONDS_MAX = 1200
TRACE_LINES = 400
"""How many lines of a shortened run's trace to keep, from its end. A run with --trace prints all
lines."""


@dataclass(frozen=True)
class Kind:
    """The options that all runs of a pool share."""

    brokers: int = 1
    long: bool = False


@dataclass(frozen=True)
class Run:
    """One run: its seed and, if its options come from another seed, that seed (`like`)."""

    seed: int
    like: int = 0
    shortened: bool = False
    """Whether to shorten the run: leave out everything that its violation does not need."""

    def options(self, kind: Kind) -> Options:
        """The options of the run."""
        options = drawn(self.like or self.seed, kind)
        if self.like:
            vary(options, self.seed)
        return options

    def __str__(self) -> str:
        return f"--seed {self.seed}" + (f" --like {self.like}" if self.like else "")


@dataclass
class Ran:
    """The outcome of a run."""

    run: Run
    violation: str = ""
    kind: str = ""
    """The violation without figures and names."""
    marks: dict[str, int] = field(default_factory=dict)
    options: str = ""
    """The remaining options, if the run was shortened."""
    trace: list[str] = field(default_factory=list)


def drawn(seed: int, kind: Kind) -> Options:
    """The options of a seed, for one broker or a cluster; they are those of a long life if
    `kind.long` is set."""
    if kind.brokers == 1:
        return Options.draw(seed, kind.long or None)
    return ClusterOptions.draw(seed, kind.long or None, kind.brokers)


def vary(options: Options, seed: int) -> None:
    """Change the options a little at random: replace a fault, repeat a fault, change the order of
    the faults, or change nothing."""
    chance, faults = Random(f"variation {seed}"), options.faults
    at, how = chance.randrange(len(faults)), chance.random()
    if how < 0.3:
        fits = [each for each in CLUSTER_FAULTS if each not in PREPARED]
        several = isinstance(options, ClusterOptions)
        faults[at] = chance.choice(fits if several else options.possible_faults())
    elif how < 0.5:
        faults.insert(at, faults[at])
    elif how < 0.7:
        chance.shuffle(faults)


class Pool:
    """A number of worker processes, which exist within a `with` block."""

    def __init__(self, kind: Kind, jobs: int) -> None:
        self.kind, self.jobs = kind, jobs
        self.selector = selectors.DefaultSelector()
        self.running: dict[subprocess.Popen[str], Run] = {}

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.running:
            worker.kill()
        for worker in [key.data for key in self.selector.get_map().values()]:
            _stdin(worker).close()
            worker.wait()
            _stdout(worker).close()
        self.selector.close()

    def run(self, runs: Iterator[Run]) -> Iterator[Ran]:
        """Run these runs, and yield the outcome of each. A worker that dies is replaced; its death
        is the outcome of its run."""
        idle = [self._worker() for _ in range(self.jobs)]
        while True:
            while idle and (run := next(runs, None)) is not None:
                worker = idle.pop()
                self.running[worker] = run
                print(json.dumps(vars(run)), file=_stdin(worker), flush=True)
            if not self.running:
                return
            for key, _ in self.selector.select():
                worker = key.data
                line, run = _stdout(worker).readline(), self.running.pop(worker)
                if line:
                    idle.append(worker)
                    yield Ran(run, **json.loads(line))
                else:
                    self.selector.unregister(_stdout(worker))
                    idle.append(self._worker())
                    yield Ran(run, f"its process has ended with {worker.wait()}", "process ended")

    def _worker(self) -> subprocess.Popen[str]:
        worker = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.simulation", "--worker",
             "--brokers", str(self.kind.brokers), *["--long"] * self.kind.long],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )  # fmt: skip
        self.selector.register(_stdout(worker), selectors.EVENT_READ, worker)
        return worker


def _stdin(worker: subprocess.Popen[str]) -> IO[str]:
    assert worker.stdin is not None
    return worker.stdin


def _stdout(worker: subprocess.Popen[str]) -> IO[str]:
    assert worker.stdout is not None
    return worker.stdout


class TooLong(KeyboardInterrupt):
    """A run does not end, possibly because one call does not. This is a KeyboardInterrupt because
    asyncio re-raises those."""


def end_run(*_: object) -> None:
    """The handler of the signal that says that a run takes too long."""
    raise TooLong


def work(kind: Kind) -> None:
    """A worker process: reads runs from standard input, and prints a line for each."""
    signal.signal(signal.SIGVTALRM, end_run)
    gc.freeze()                     # garbage collection after a run then covers only the run
    first = True
    for line in sys.stdin:
        run = Run(**json.loads(line))
        seconds = SHORTENING_SECONDS_MAX if run.shortened else PROCESSOR_SECONDS_MAX
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        try:
            told = answer(run, kind)
        except TooLong:
            text = f"the run has not ended after {seconds} s of processor time"
            told = {"violation": text, "kind": "not ended"}
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if first:
            first = False
            gc.freeze()             # freeze caches and modules that the first run has imported
        print(json.dumps(told), flush=True)


def answer(run: Run, kind: Kind) -> dict[str, object]:
    """The outcome of a run as a worker prints it, without the run itself."""
    options = run.options(kind)
    found = outcome(run.seed, options)
    told: dict[str, object] = {
        "violation": found.violation, "kind": found.kind, "marks": found.marks
    }
    if run.shortened and found.violation:
        options = shorten(run.seed, options, found)
        shorter = outcome(run.seed, options)
        told |= {"violation": shorter.violation, "options": str(options),
                 "trace": shorter.trace[-TRACE_LINES:]}
    return told
