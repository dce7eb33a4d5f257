"""`python -m tests.simulation.mutants`: breaks the broker on purpose, and shows that it is found.

Each mutant changes a text or a few of them, in a copy of the project. The simulator has to break a
promise with it within SEEDS_MAX seeds; without it, all of them are kept.
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
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SEEDS_MAX = 10_000


@dataclass(frozen=True)
class Mutant:
    """A name, the promise that it breaks, and its changes: a file, a text of it, another text."""

    name: str
    promise: str
    changes: list[tuple[str, str, str]]

    def texts(self) -> dict[str, str]:
        """The changed files. Raises LookupError where a place is not there, or there twice."""
        texts: dict[str, str] = {}
        for path, old, new in self.changes:
            text = texts.get(path) or (ROOT / path).read_text()
            if text.count(old) != 1:
                raise LookupError(f"{self.name}: {text.count(old)} such places in {path}: {old}")
            texts[path] = text.replace(old, new)
        return texts


def mutants() -> list[Mutant]:
    """All mutants, from the files of mutants/: one a file, its parts behind lines of ====."""
    found = []
    for path in sorted((Path(__file__).parent / "mutants").glob("*.txt")):
        promise, *parts = re.split(r"^====.*\n", path.read_text(), flags=re.MULTILINE)
        changes = [
            (place.strip(), old[:-1], new[:-1])
            for place, old, new in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
        ]
        found.append(Mutant(path.stem, promise.strip(), changes))
    return found


def try_one(mutant: Mutant, copy: Path, jobs: int, seeds: int) -> tuple[bool, str]:
    """Whether a mutant is found, and how; the copy is as before afterwards."""
    texts = mutant.texts()
    for path, text in texts.items():
        (copy / path).write_text(text)
    try:
        build(copy, texts)
        began = time.monotonic()
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.simulation", "--first", "--seeds",
             f"1-{seeds}", "--jobs", str(jobs)],
            cwd=copy, capture_output=True, text=True, env=environment(copy),
        )  # fmt: skip
        lines = [line for line in ran.stdout.splitlines() if line.startswith("seed ")]
        seconds = time.monotonic() - began
        return bool(lines), f"{lines[0][:150]} ({seconds:.0f} s)" if lines else ran.stderr[-300:]
    finally:
        for path in texts:
            (copy / path).write_text((ROOT / path).read_text())
        build(copy, texts)


def environment(copy: Path) -> dict[str, str]:
    """The copy's modules, in the interpreter that runs this."""
    return {**os.environ, "PYTHONPATH": str(copy), "PYTHONHASHSEED": "0"}


def build(copy: Path, paths: Iterable[str]) -> None:
    """Compile what changed Cython files need."""
    if any(path.endswith((".pyx", ".pxd")) for path in paths):
        subprocess.run(
            [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
            cwd=copy, check=True, capture_output=True,
        )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX)
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    chosen = [m for m in mutants() if not arguments.names or m.name in arguments.names]
    for mutant in chosen:
        mutant.texts()
    if arguments.list:
        print("\n".join(f"{m.name:40} {m.promise}" for m in chosen))
        return 0
    missed = 0
    with tempfile.TemporaryDirectory(prefix="ottla-mutants-") as directory:
        copy = Path(directory) / "ottla"
        ignored = shutil.ignore_patterns(".git", ".venv", ".cache", "data", "__pycache__")
        shutil.copytree(ROOT, copy, symlinks=True, ignore=ignored)
        for mutant in chosen:
            found, how = try_one(mutant, copy, arguments.jobs, arguments.seeds)
            missed += not found
            print(f"{'found ' if found else 'MISSED'} {mutant.name}: {how}", flush=True)
    print(f"{len(chosen)} mutants, {missed} missed")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
