"""The table of marks: how many of a thousand seeds reach each rare branch.

A mark is a call `reached("what happens here")` (`ottla/wire/marks.pyx`) in the broker or in the
simulator. Each text occurs once; the list of marks is read from the sources. `unreached.toml` lists
the marks that a thousand runs with one broker, or with several, need not reach, with the reasons.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXCUSES = Path(__file__).parent / "unreached.toml"
CALL = re.compile(r'\breached\(\s*"([^"\n]+)"\s*\)')
SEEDS_ENOUGH = 1000
"""If the command runs at least this many seeds, it fails if they miss a mark."""


@cache
def marks() -> dict[str, str]:
    """Each mark and the file that it is in. Raises ValueError if a text occurs twice."""
    found: dict[str, str] = {}
    for folder in ("ottla", "tests/simulation"):
        for path in sorted((ROOT / folder).rglob("*.py*")):
            if path.suffix not in (".py", ".pyx") or path.name.startswith(("test_", "marks.")):
                continue
            name = str(path.relative_to(ROOT))
            for mark in CALL.findall(path.read_text()):
                if mark in found:
                    raise ValueError(f"the mark {mark!r} is in {found[mark]} and in {name}")
                found[mark] = name
    return found


@cache
def excuses(brokers: int) -> dict[str, str]:
    """The marks that runs need not reach, and files or folders whose marks they need not reach,
    each with its reason."""
    found, told = {}, tomllib.loads(EXCUSES.read_text())
    for group in (*told["one_broker" if brokers == 1 else "several_brokers"], *told["both"]):
        found |= dict.fromkeys(group["marks"], group["because"])
    return found


def excuse(mark: str, brokers: int) -> str:
    """Why a mark need not be reached; "" if it must be reached."""
    known, path = excuses(brokers), marks()[mark]
    found = [text for name, text in known.items() if name == mark or path.startswith(name)]
    return found[0] if found else ""


class Reached:
    """The marks that a number of seeds have reached."""

    def __init__(self) -> None:
        self.seeds = Counter[str]()
        """How many seeds have reached each mark."""
        self.times = Counter[str]()
        """How often all seeds together have reached each mark."""

    def add(self, times: dict[str, int]) -> None:
        """Add the marks that one seed has reached; `times` says how often it reached each mark."""
        self.seeds.update(times.keys())
        self.times.update(times)

    def missed(self, brokers: int) -> list[str]:
        """Marks that were not reached and have no excuse."""
        return [m for m in marks() if not self.seeds[m] and not excuse(m, brokers)]

    def table(self, count: int, brokers: int) -> list[str]:
        """A line for each mark that these runs can reach: how many of a thousand seeds reach it,
        how often all seeds reached it, and its text. The rarest mark comes first."""
        shown = [m for m in marks() if self.seeds[m] or not excuse(m, brokers)]
        lines = [f"{'seeds of 1000':>13} {'times':>9}  mark"]
        for mark in sorted(shown, key=lambda m: (self.seeds[m], m)):
            share = self.seeds[mark] * 1000 / max(count, 1)
            lines.append(f"{share:13.1f} {self.times[mark]:9}  {mark}")
        return lines
