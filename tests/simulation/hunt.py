"""`make simulate HOURS=8`: runs new seeds for hours, keeps and shortens the runs that break a
promise, and writes a report.

A hunt continues where the previous one stopped. If a run is the first to reach two rare marks
together, the hunt varies it: it runs other seeds with the options of this run, or with nearly the
same options.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

from tests.simulation.marks import Reached
from tests.simulation.pool import Kind, Pool, Ran, Run

RARE_SHARE = 0.1
"""A mark is rare if less than this share of the runs reaches it."""
VARIATIONS = 3
WAITING_MAX = 100
SHORTENED_MAX = 3
"""The number of violations of one kind that are shortened."""
REPORT_SECONDS = 30.0


class Curiosity:
    """Chooses the next run: by turns a new seed, and a variation of a run that was the first to
    reach two rare marks together."""

    def __init__(self, first: int) -> None:
        self.next_seed, self.count = first, 0
        self.known = Counter[str]()
        self.pairs = set[tuple[str, str]]()
        self.waiting = deque[Run]()
        """The variations that are still to run, the latest first; if there are too many, the oldest
        are dropped."""
        self.turn = False

    def note(self, ran: Ran) -> bool:
        """Note what a run has reached. True if it is the first to reach two rare marks together, so
        that it will be varied."""
        self.count += 1
        self.known.update(ran.marks.keys())
        rare = sorted(mark for mark in ran.marks if self.known[mark] <= self.count * RARE_SHARE)
        new = {*combinations(rare, 2)} - self.pairs
        self.pairs |= new
        if new:
            like = ran.run.like or ran.run.seed
            self.waiting.extendleft(Run(self._seed(), like) for _ in range(VARIATIONS))
            while len(self.waiting) > WAITING_MAX:
                self.waiting.pop()
        return bool(new)

    def next(self) -> Run:
        """The next run."""
        self.turn = not self.turn
        return self.waiting.popleft() if self.turn and self.waiting else Run(self._seed())

    def _seed(self) -> int:
        self.next_seed += 1
        return self.next_seed - 1


class Hunt:
    """One hunt. `directory` keeps what all hunts find."""

    def __init__(self, directory: Path, kind: Kind) -> None:
        self.directory, self.kind = directory, kind
        self.began, self.varied = time.monotonic(), 0
        directory.mkdir(parents=True, exist_ok=True)
        self.place = directory / "next"
        first = int(self.place.read_text()) if self.place.exists() else 1
        self.curiosity, self.reached = Curiosity(first), Reached()
        self.first = first
        self.broken: dict[str, list[Run]] = {}
        self.to_shorten = deque[Run]()

    def run(self, seconds: float, jobs: int) -> None:
        """Begin runs during this time, and wait until all of them have ended."""
        reported = 0.0
        with Pool(self.kind, jobs) as pool:
            for ran in pool.run(self._runs(self.began + seconds)):
                self.note(ran)
                if time.monotonic() - reported > REPORT_SECONDS:
                    self.report()
                    reported = time.monotonic()
        self.report()

    def _runs(self, end: float) -> Iterator[Run]:
        while self.to_shorten or time.monotonic() < end:
            yield self.to_shorten.popleft() if self.to_shorten else self.curiosity.next()

    def note(self, ran: Ran) -> None:
        """Keep the outcome of a run."""
        if ran.run.shortened:
            self._keep(ran)
            return
        self.reached.add(ran.marks)
        self.varied += self.curiosity.note(ran)
        if ran.violation:
            runs = self.broken.setdefault(ran.kind, [])
            runs.append(ran.run)
            self._keep(ran)
            print(f"{ran.run}: {ran.violation}"[:600], flush=True)
            if len(runs) <= SHORTENED_MAX:
                self.to_shorten.append(Run(ran.run.seed, ran.run.like, shortened=True))

    def _keep(self, ran: Ran) -> None:
        name = f"seed-{ran.run.seed}" + (f"-like-{ran.run.like}" if ran.run.like else "")
        text = [f"{ran.run} --brokers {self.kind.brokers}" + " --long" * self.kind.long,
                ran.violation, ran.options and f"shortened to {ran.options}", *ran.trace]
        (self.directory / f"{name}.txt").write_text("\n".join(text) + "\n")

    def report(self) -> None:
        """Write what was found so far, and where the next hunt continues."""
        count, minutes = self.curiosity.count, (time.monotonic() - self.began) / 60
        broken = sum(map(len, self.broken.values()))
        lines = [
            f"# {count} runs of {self.kind.brokers} broker(s), {broken} broke a promise", "",
            f"Seeds from {self.first} on, {minutes:.0f} minutes, {count / minutes:.0f} runs a"
            f" minute. {self.varied} runs reached something new and were varied.", "",
        ]
        for kind, runs in sorted(self.broken.items()):
            told = ", ".join(f"`{run}`" for run in runs[:20])
            lines.append(f"- {len(runs)} × {kind}: {told}")
        table = self.reached.table(count, self.kind.brokers)
        (self.directory / "report.md").write_text("\n".join([*lines, "", "```", *table, "```", ""]))
        self.place.write_text(f"{self.curiosity.next_seed}\n")
