"""`python -m tests.simulation.mutants`: breaks the broker on purpose, and shows that the simulator
notices.

Each mutant changes one or a few places in a copy of the project. With a mutant, the simulator must
find a broken promise within SEEDS_MAX seeds; without mutants, all promises are kept. The seed that
found a mutant last (see the table in mutants/README.md) is tried first, so a renewal of the table
takes only minutes. If no seed finds a mutant, the test that the mutant's file names has to fail.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SEEDS_MAX = 10_000
HOW_MAX = 100
TABLE = Path(__file__).parent / "mutants" / "README.md"
RULE = "| --- | --- | --- | --- | --- | --- |\n"


@dataclass(frozen=True)
class Mutant:
    """A mutant: its name, the promise that it breaks, its changes (a file, a text in the file, the
    replacement), and, if seeds do not find the mutant, the test that fails with it."""

    name: str
    promise: str
    changes: list[tuple[str, str, str]]
    test: str = ""
    brokers: int = 1

    def texts(self) -> dict[str, str]:
        """The new text of each changed file. Raises LookupError if an old text does not occur
        exactly once."""
        texts: dict[str, str] = {}
        for path, old, new in self.changes:
            text = texts.get(path) or (ROOT / path).read_text()
            if text.count(old) != 1:
                raise LookupError(
                    f"mutant {self.name}: this text must be in {path} once, but is there"
                    f" {text.count(old)} times: {old}"
                )
            texts[path] = text.replace(old, new)
        return texts


def mutants() -> list[Mutant]:
    """All mutants. Each file of mutants/ and mutants/cluster/ has one; lines that begin with ====
    separate its parts."""
    found = []
    for path in sorted((Path(__file__).parent / "mutants").glob("**/*.txt")):
        head, *parts = re.split(r"^====.*\n", path.read_text(), flags=re.MULTILINE)
        promise, _, test = head.strip().partition("\ntest: ")
        changes = [
            (place.strip(), old[:-1], new[:-1])
            for place, old, new in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
        ]
        brokers = 3 if path.parent.name == "cluster" else 1
        found.append(Mutant(path.stem, promise, changes, test, brokers))
    return found


@dataclass(frozen=True)
class Found:
    """The outcome for a mutant: the seed that has found it (-1 if none has), how many seeds were
    tried, and the broken promise or the test that fails instead ("" if nothing has found it)."""

    seed: int
    tried: int
    how: str

    def __str__(self) -> str:
        seed = f"seed {self.seed}" if self.seed >= 0 else "no seed"
        return f"{seed}, {self.tried} tried: {self.how or 'MISSED'}"


def try_one(mutant: Mutant, copy: Path, jobs: int, seeds: int, known: int) -> Found:
    """Try to find a mutant in the copy, first with the seed `known` unless it is -1. The copy is
    restored afterwards."""
    texts = mutant.texts()
    for path, text in texts.items():
        put(copy / path, text)
    try:
        build(copy, texts)
        found = run_seeds(mutant, copy, 1, known, known) if known >= 0 else Found(-1, 0, "")
        if found.seed < 0:
            more = run_seeds(mutant, copy, jobs, 1, seeds)
            found = replace(more, tried=found.tried + more.tried)
        if found.seed < 0 and mutant.test and fails(mutant.test, copy):
            found = replace(found, how=f"`{mutant.test}` fails")
        return found
    finally:
        for path in texts:
            put(copy / path, (ROOT / path).read_text())
        build(copy, texts)


def run_seeds(mutant: Mutant, copy: Path, jobs: int, first: int, last: int) -> Found:
    """Run seeds until one of them breaks a promise."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.simulation", "--first", "--seeds",
         f"{first}-{last}", "--jobs", str(jobs), "--brokers", str(mutant.brokers)],
        cwd=copy, capture_output=True, text=True, env=environment(copy),
    )  # fmt: skip
    summary = re.search(r"^(\d+) seeds, ", ran.stdout, flags=re.MULTILINE)
    if summary is None:
        raise RuntimeError(f"mutant {mutant.name}: the simulator has failed: {ran.stderr[-1000:]}")
    broken = re.search(r"^seed (\d+): (.*)", ran.stdout, flags=re.MULTILINE)
    if broken is None:
        return Found(-1, int(summary[1]), "")
    return Found(int(broken[1]), int(summary[1]), broken[2].replace("|", "/")[:HOW_MAX])


def fails(test: str, copy: Path) -> bool:
    """Whether a test of the copy fails."""
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", test],
        cwd=copy, capture_output=True, text=True, env=environment(copy),
    )  # fmt: skip
    if ran.returncode not in (0, 1):
        raise RuntimeError(f"{test} cannot be run: {ran.stdout[-1000:]}")
    return ran.returncode == 1


def environment(copy: Path) -> dict[str, str]:
    """The environment in which this interpreter imports the copy's modules."""
    return {**os.environ, "PYTHONPATH": str(copy), "PYTHONHASHSEED": "0"}


def put(path: Path, text: str) -> None:
    """Write a file, and delete its compiled form. Otherwise Python would use the old compiled form
    if both texts had the same size and were written in the same second."""
    path.write_text(text)
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()


def build(copy: Path, paths: Iterable[str]) -> None:
    """Compile the extension modules if Cython files are among the changed files."""
    if any(path.endswith((".pyx", ".pxd")) for path in paths):
        subprocess.run(
            [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
            cwd=copy, check=True, capture_output=True,
        )  # fmt: skip


def rows(text: str) -> dict[str, str]:
    """The rows of the table in README.md, by mutant."""
    found = re.findall(r"^(\| `(\w+)` \|.*\n)", text[text.index(RULE) :], flags=re.MULTILINE)
    return {name: line for line, name in found}


def known_seed(row: str) -> int:
    """The seed in a row of the table, -1 if there is none."""
    seed = row.split(" | ")[2] if row else ""
    return int(seed) if seed.isdigit() else -1


def write_table(mutant: Mutant, found: Found, commit: str) -> None:
    """Renew a mutant's row, and remove the rows of deleted mutants."""
    text = TABLE.read_text()
    known = rows(text)
    seed = str(found.seed) if found.seed >= 0 else "not found"
    how = found.how or "nothing"
    known[mutant.name] = (
        f"| `{mutant.name}` | {mutant.promise} | {seed} | {found.tried} | {how} | {commit} |\n"
    )
    names = {mutant.name for mutant in mutants()}
    head = text[: text.index(RULE) + len(RULE)]
    TABLE.write_text(head + "".join(known[n] for n in sorted(known) if n in names))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--table", action="store_true", help="renew the table in README.md")
    arguments = parser.parse_args()
    chosen = [m for m in mutants() if not arguments.names or m.name in arguments.names]
    for mutant in chosen:
        mutant.texts()
    if arguments.list:
        print("\n".join(f"{m.name:40} {m.promise}" for m in chosen))
        return 0
    missed = 0
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="ottla-mutants-") as directory:
        copy = Path(directory) / "ottla"
        ignored = shutil.ignore_patterns(".git", ".venv", ".cache", "data", "__pycache__")
        shutil.copytree(ROOT, copy, symlinks=True, ignore=ignored)
        for mutant in chosen:
            known = known_seed(rows(TABLE.read_text()).get(mutant.name, ""))
            began = time.monotonic()
            found = try_one(mutant, copy, arguments.jobs, arguments.seeds, known)
            missed += not found.how
            print(f"{mutant.name}: {found} ({time.monotonic() - began:.0f} s)", flush=True)
            if arguments.table:
                write_table(mutant, found, commit)
    print(f"{len(chosen)} mutants, {missed} missed")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
