"""`python -m compat_tests.tool_chaos --seeds 1-100`: runs our commands and stock clients, kills
commands, brokers and the readers of pipes meanwhile, and checks what is promised.

The exit status is 0 only if every promise was kept. The outputs of a seed that broke a promise are
kept, and a run with the same seed makes the same choices again.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from compat_tests.named import some_of
from compat_tests.tool_chaos import administration, clients, files, reading, writing
from compat_tests.tool_chaos.seed import Scene, Seed
from compat_tests.tool_chaos.world import World

SCENES: dict[str, tuple[int, Scene]] = {
    "consume": (3, reading.plain),
    "consume in a group": (4, reading.group),
    "a closed reader": (2, reading.closed_reader),
    "two members": (2, reading.two_members),
    "produce": (4, writing.lines),
    "consume | produce": (2, writing.pipeline),
    "perf": (2, writing.performance),
    "mirror": (4, writing.mirror),
    "group reset": (2, administration.group_reset),
    "a topic's life": (2, administration.topics),
    "reassign": (3, administration.reassign),
    "any command": (4, administration.any_command),
    "a wrong command line": (1, administration.wrong_command_line),
    "no broker": (2, administration.unreachable),
    "log dump": (2, files.dump),
    "log verify": (2, files.verify),
    "log import": (2, files.adopt),
    "calls of clients": (3, clients.calls),
}
"""Each scene with its weight: how often it is chosen in relation to the others."""


@dataclass
class Report:
    """The result of a run: seeds and seconds by scene, and what went wrong."""

    scenes: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rows = [
            f"{name:<22} {count:>5} seeds {self.seconds[name] / count:>6.1f} s each"
            for name, count in sorted(self.scenes.items())
        ]
        verdict = self.problems or ["every promise kept"]
        return "\n".join([*rows, f"{self.scenes.total()} seeds", *verdict])


def one(number: int, world: World, folder: Path, names: list[str], report: Report) -> bool:
    """Run a seed; return whether it kept every promise, so that the next seed can use its world."""
    seed = Seed(number, world, folder)
    name = seed.chance.choices(names, [SCENES[each][0] for each in names])[0]
    began = time.monotonic()
    try:
        SCENES[name][1](seed)
        said = "kept"
        shutil.rmtree(folder, ignore_errors=True)
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report").write_text("\n".join([name, *seed.told, text]))
        broken = isinstance(error, AssertionError)
        said = f"{'BROKEN' if broken else 'FAILED'}: {type(error).__name__}: {str(error)[:700]}"
        report.problems.append(f"seed {number}, {name}: {said}\n   " + "; ".join(seed.told))
    took = time.monotonic() - began
    report.scenes[name] += 1
    report.seconds[name] += int(took)
    print(f"seed {number} ({took:.1f} s) {name}: {said}", flush=True)
    if said != "kept":
        print("   " + "\n   ".join(seed.told), flush=True)
    return said == "kept"


def run(
    directory: Path, seeds: Iterable[int], brokers: int, seconds: float = float("inf"),
    names: list[str] | None = None, enough: threading.Event | None = None,
) -> Report:
    """Run one seed after the other, until none is left, the time is over, or `enough` is set. After
    a broken promise, the next seed gets a new world, so that the logs of the old world are kept."""
    report, left = Report(), iter(seeds)
    end = time.monotonic() + seconds
    enough = enough or threading.Event()

    def goes_on() -> bool:
        return time.monotonic() < end and not enough.is_set()

    for turn in itertools.count():
        place = directory / f"world-{turn}"
        with World(place, brokers) as world:
            sound = True
            while sound and goes_on():
                number = next(left, None)
                if number is None:
                    return report
                sound = one(number, world, directory / f"seed-{number}", names or [*SCENES], report)
        if sound:
            return report
    raise AssertionError("unreachable")


def numbers(text: str) -> Iterable[int]:
    """A range such as 1-100, or one number."""
    first, dash, last = text.partition("-")
    return range(int(first), int(last if dash else first) + 1)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m compat_tests.tool_chaos", description=__doc__)
    parser.add_argument("--seeds", default="1-100", help="a number, or a range such as 1-100")
    parser.add_argument("--minutes", type=float, help="how long to run, from the first seed on")
    parser.add_argument("--hours", type=float, help="the same in hours")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument(
        "--scenes", type=some_of(SCENES), help=f"only these, with commas: {', '.join(SCENES)}")
    parser.add_argument("--dir", type=Path, help=(
        "where the outputs and logs go; default: a temporary one, removed if nothing was found"))
    options = parser.parse_args()
    # If a shell starts this program in the background, the program ignores SIGINT, and without this
    # line, every command that it starts would ignore SIGINT, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    enough = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: enough.set())
    directory = options.dir or Path(tempfile.mkdtemp(prefix="ottla-tools-"))
    seeds: Iterable[int] = numbers(options.seeds)
    seconds = float("inf")
    if options.hours is not None or options.minutes is not None:
        seconds = (options.hours or 0) * 3600 + (options.minutes or 0) * 60
        seeds = itertools.count(next(iter(seeds)))
    report = run(
        directory, seeds, options.brokers, seconds, options.scenes, enough)
    print(report)
    if report.problems:
        print(f"the outputs and the brokers' logs: {directory}")
    elif options.dir is None:
        shutil.rmtree(directory)
    return bool(report.problems)


if __name__ == "__main__":
    sys.exit(main())
