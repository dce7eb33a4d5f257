"""`python -m tests.simulation`: runs seeds, reports those that break a promise, shortens a run.

    python -m tests.simulation --seeds 1-1000
    python -m tests.simulation --seed 77 --trace
    python -m tests.simulation --seed 77 --shorten
    python -m tests.simulation --seeds 1-100 --long
    python -m tests.simulation --brokers 3 --seeds 1-100
    python -m tests.simulation --hours 8
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from tests.simulation.hunt import Hunt
from tests.simulation.marks import SEEDS_ENOUGH, Reached
from tests.simulation.pool import Kind, Pool, Run, work
from tests.simulation.run import outcome, shorten

FOUND = Path("build/simulation")
"""The directory in which hunts keep what they find."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="1-1000", help="first-last")
    parser.add_argument("--seed", type=int, help="one seed only")
    parser.add_argument("--like", type=int, default=0, help="with nearly the options of this seed")
    parser.add_argument("--hours", type=float, help="hunt for so long, and report")
    parser.add_argument("--brokers", type=int, default=1, help="how many; a cluster from 2 on")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--trace", action="store_true", help="print what happened in the run")
    parser.add_argument("--shorten", action="store_true", help="leave out what is not needed")
    parser.add_argument("--long", action="store_true", help="long lives only")
    parser.add_argument("--first", action="store_true", help="end with the first broken promise")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Hashes of strings must be the same in each run: they decide the order within a set.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    kind = Kind(arguments.brokers, arguments.long)
    if arguments.worker:
        work(kind)
        return 0
    if arguments.seed is not None:
        run = Run(arguments.seed, arguments.like)
        return one(run, kind, arguments.trace, arguments.shorten)
    if arguments.hours is not None:
        hunt = Hunt(FOUND / f"brokers-{kind.brokers}", kind)
        hunt.run(arguments.hours * 3600, arguments.jobs)
        print(f"{hunt.curiosity.count} runs; {hunt.directory}/report.md")
        return bool(hunt.broken)
    first, _, last = arguments.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    return many(seeds, kind, arguments.jobs, arguments.first)


def one(run: Run, kind: Kind, trace: bool, shortened: bool) -> int:
    """Run one seed and print its outcome; True if it broke a promise."""
    options = run.options(kind)
    found = outcome(run.seed, options)
    if found.violation and shortened:
        options = shorten(run.seed, options, found)
        found = outcome(run.seed, options)
        print(f"shortened to {options}")
    if trace:
        print("\n".join(found.trace))
        print("\n".join(f"reached: {mark} ({n})" for mark, n in sorted(found.marks.items())))
    print(f"seed {run.seed}: {found.violation or 'every promise kept'} ({found.steps} steps)")
    return bool(found.violation)


def many(seeds: range, kind: Kind, jobs: int, first: bool) -> int:
    """Run seeds in several processes. Print a line for each seed that breaks a promise, and the
    table of marks. True if a seed broke a promise, or if no seed reached a mark that has no excuse,
    although at least SEEDS_ENOUGH seeds ran."""
    began, count, broken, reached = time.monotonic(), 0, 0, Reached()
    with Pool(kind, min(jobs, len(seeds))) as pool:
        for ran in pool.run(map(Run, seeds)):
            count += 1
            reached.add(ran.marks)
            text = " ".join(ran.violation.split())
            if len(text) > 600:
                text = f"{text[:400]} … {text[-200:]}"
            if text:
                print(f"seed {ran.run.seed}: {text}", flush=True)
                broken += 1
                if first:
                    break
    seconds = time.monotonic() - began
    missed = [] if first or count < SEEDS_ENOUGH else reached.missed(kind.brokers)
    if not first:
        print("\n".join(reached.table(count, kind.brokers)))
    print("".join(f"not reached by {count} seeds: {mark}\n" for mark in missed), end="")
    print(f"{count} seeds, {broken} broke a promise, {count * 60 / seconds:.0f} a minute")
    return bool(broken or missed)


if __name__ == "__main__":
    sys.exit(main())
