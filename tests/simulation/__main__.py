"""`python -m tests.simulation`: runs seeds, reports those that break a promise, shortens one.

    python -m tests.simulation --seeds 1-1000
    python -m tests.simulation --seed 77 --trace
    python -m tests.simulation --seed 77 --shorten
    python -m tests.simulation --seeds 1-100 --long
    python -m tests.simulation --brokers 3 --seeds 1-100
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import selectors
import signal
import subprocess
import sys
import time

from tests.simulation.cluster.options import ClusterOptions
from tests.simulation.marks import SEEDS_ENOUGH, Reached
from tests.simulation.options import Options
from tests.simulation.run import outcome, shorten

PROCESSOR_SECONDS_MAX = 60
"""Many times what a run takes."""
MARKS = "marks "
"""Begins the last line of a worker process, with what its seeds have reached."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="1-1000", help="first-last")
    parser.add_argument("--seed", type=int, help="one seed only")
    parser.add_argument("--brokers", type=int, default=1, help="how many; a cluster from 2 on")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--trace", action="store_true", help="print what happened in the run")
    parser.add_argument("--shorten", action="store_true", help="leave out what is not needed")
    parser.add_argument("--long", action="store_true", help="long lives only")
    parser.add_argument("--first", action="store_true", help="end with the first broken promise")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of strings are iterated in the order of their hashes.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    if arguments.seed is not None:
        options = drawn(arguments.seed, arguments.brokers, arguments.long)
        return one(arguments.seed, options, arguments.trace, arguments.shorten)
    first, _, last = arguments.seeds.partition("-")
    if arguments.worker:
        seeds = range(int(first), int(last) + 1, arguments.jobs)
        work(seeds, arguments.brokers, arguments.long)
        return 0
    seeds = range(int(first), int(last or first) + 1)
    return many(seeds, arguments.brokers, arguments.long, arguments.jobs, arguments.first)


def drawn(seed: int, brokers: int, long: bool = False) -> Options:
    """The options that a seed gives for one broker, with a long life if that is wanted, or for a
    cluster."""
    if brokers == 1:
        return Options.draw(seed, long or None)
    return ClusterOptions.draw(seed, long or None, brokers)


def one(seed: int, options: Options, trace: bool, shortened: bool) -> int:
    """Run one seed and print its outcome."""
    found = outcome(seed, options)
    if found.violation and shortened:
        options = shorten(seed, options, found)
        found = outcome(seed, options)
        print(f"shortened to {options}")
    if trace:
        print("\n".join(found.trace))
        print("\n".join(f"reached: {mark} ({n})" for mark, n in sorted(found.marks.items())))
    print(f"seed {seed}: {found.violation or 'every promise kept'} ({found.steps} steps)")
    return bool(found.violation)


def many(seeds: range, brokers: int, long: bool, jobs: int, first: bool) -> int:
    """Run seeds in several processes; print one line for each that breaks a promise, and the table
    of marks. Enough seeds have to reach every mark that has no excuse."""
    began, count, broken, reached = time.monotonic(), 0, 0, Reached()
    kind = ["--brokers", str(brokers), *["--long"] * long]
    command = [sys.executable, "-W", "ignore", "-m", "tests.simulation", "--worker"]
    workers = [
        subprocess.Popen(
            [*command, "--seeds", f"{seeds[at]}-{seeds[-1]}", "--jobs", str(jobs), *kind],
            stdout=subprocess.PIPE, text=True,
        )
        for at in range(min(jobs, len(seeds)))
    ]
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.stdout or 0, selectors.EVENT_READ)
        while selector.get_map() and not (first and broken):
            for key, _ in selector.select():
                line = key.fileobj.readline()       # type: ignore[union-attr]
                if not line:
                    selector.unregister(key.fileobj)
                    continue
                if line.startswith(MARKS):
                    reached.merge(*json.loads(line.removeprefix(MARKS)))
                    continue
                count += 1
                if line.strip() == "kept":
                    continue
                print(line.rstrip(), flush=True)
                broken += 1
    for worker in workers:
        worker.kill() if first and broken else worker.wait()
    failed = [worker.returncode for worker in workers if worker.returncode]
    seconds = time.monotonic() - began
    missed = [] if first or len(seeds) < SEEDS_ENOUGH else reached.missed(brokers)
    if not first:
        print("\n".join(reached.table(count, brokers)))
    print("".join(f"not reached by {count} seeds: {mark}\n" for mark in missed), end="")
    print(f"{count} seeds, {broken} broke a promise, {count * 60 / seconds:.0f} a minute")
    return bool(broken or missed or (failed and not first))


class TooLong(KeyboardInterrupt):
    """A run does not end, perhaps within one call; asyncio passes a KeyboardInterrupt on."""


def end_run(*_: object) -> None:
    """A signal handler."""
    raise TooLong


def work(seeds: range, brokers: int, long: bool) -> None:
    """One of the worker processes: it prints a line for each seed."""
    signal.signal(signal.SIGVTALRM, end_run)
    reached = Reached()
    gc.freeze()                     # a collection after each run looks at what the run has left
    for seed in seeds:
        signal.setitimer(signal.ITIMER_VIRTUAL, PROCESSOR_SECONDS_MAX)
        try:
            found = outcome(seed, drawn(seed, brokers, long))
            violation = found.violation
            reached.add(found.marks)
        except TooLong:
            violation = f"the run has not ended after {PROCESSOR_SECONDS_MAX} s of processor time"
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if seed == seeds[0]:
            gc.freeze()             # modules that were imported late, and caches
        text = " ".join(violation.split())
        if len(text) > 600:
            text = f"{text[:400]} … {text[-200:]}"
        print(f"seed {seed}: {text}" if text else "kept", flush=True)
    print(MARKS + json.dumps([reached.seeds, reached.times]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
