"""`python -m tests.simulation.mutants`: breaks the broker on purpose, and shows that the simulator
notices.

Each mutant changes one or a few places in a copy of the project. The simulator must find a broken
promise with it within SEEDS_MAX seeds; without it, all promises are kept.
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
TABLE = Path(__file__).parent / "mutants" / "README.md"
RULE = "| --- | --- | --- | --- |\n"


@dataclass(frozen=True)
class Mutant:
    """A name, the promise that it breaks, and its changes: a file, a text in it, its
    replacement."""

    name: str
    promise: str
    changes: list[tuple[str, str, str]]
    brokers: int = 1

    def texts(self) -> dict[str, str]:
        """The changed files. Raises LookupError if a text is missing, or occurs twice."""
        texts: dict[str, str] = {}
        for path, old, new in self.changes:
            text = texts.get(path) or (ROOT / path).read_text()
            if text.count(old) != 1:
                raise LookupError(f"{self.name}: {text.count(old)} such places in {path}: {old}")
            texts[path] = text.replace(old, new)
        return texts


def mutants() -> list[Mutant]:
    """All mutants, from the files of mutants/ and mutants/cluster/: one in each file, its parts
    after lines of ====."""
    found = []
    for path in sorted((Path(__file__).parent / "mutants").glob("**/*.txt")):
        promise, *parts = re.split(r"^====.*\n", path.read_text(), flags=re.MULTILINE)
        changes = [
            (place.strip(), old[:-1], new[:-1])
            for place, old, new in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
        ]
        brokers = 3 if path.parent.name == "cluster" else 1
        found.append(Mutant(path.stem, promise.strip(), changes, brokers))
    return found


@dataclass(frozen=True)
class Found:
    """The outcome for a mutant: the first seed that has found it, -1 if none has."""

    seed: int
    seconds: float
    how: str


def try_one(mutant: Mutant, copy: Path, jobs: int, seeds: int) -> Found:
    """Check whether a mutant is found; the copy is restored afterwards."""
    texts = mutant.texts()
    for path, text in texts.items():
        put(copy / path, text)
    try:
        build(copy, texts)
        began = time.monotonic()
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.simulation", "--first", "--seeds",
             f"1-{seeds}", "--jobs", str(jobs), "--brokers", str(mutant.brokers)],
            cwd=copy, capture_output=True, text=True, env=environment(copy),
        )  # fmt: skip
        lines = [line for line in ran.stdout.splitlines() if line.startswith("seed ")]
        seed = int(lines[0].split()[1].rstrip(":")) if lines else -1
        how = lines[0][:150] if lines else ran.stderr[-300:]
        return Found(seed, time.monotonic() - began, how)
    finally:
        for path in texts:
            put(copy / path, (ROOT / path).read_text())
        build(copy, texts)


def environment(copy: Path) -> dict[str, str]:
    """The copy's modules, loaded by the interpreter that runs this."""
    return {**os.environ, "PYTHONPATH": str(copy), "PYTHONHASHSEED": "0"}


def put(path: Path, text: str) -> None:
    """Change a file. Its compiled form is deleted: a text of the same size and second would
    be taken for the old one."""
    path.write_text(text)
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()


def build(copy: Path, paths: Iterable[str]) -> None:
    """Compile what changed Cython files need."""
    if any(path.endswith((".pyx", ".pxd")) for path in paths):
        subprocess.run(
            [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
            cwd=copy, check=True, capture_output=True,
        )  # fmt: skip


def rows(text: str) -> dict[str, str]:
    """The rows of the table in README.md, by mutant."""
    found = re.findall(r"^\| `(\w+)` \|.*$", text, flags=re.MULTILINE)
    return {name: line for name in found for line in text.splitlines() if f"`{name}` |" in line}


def write_table(results: dict[str, Found]) -> None:
    """Renew these mutants' rows, and remove those of deleted mutants."""
    text = TABLE.read_text()
    known = rows(text)
    for mutant in mutants():
        result = results.get(mutant.name)
        if result is not None:
            seed = str(result.seed) if result.seed >= 0 else "not found"
            known[mutant.name] = (
                f"| `{mutant.name}` | {mutant.promise} | {seed} | {result.seconds:.0f} |"
            )
    names = {mutant.name for mutant in mutants()}
    head = text[: text.index(RULE) + len(RULE)]
    TABLE.write_text(head + "".join(f"{known[n]}\n" for n in sorted(known) if n in names))


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
    with tempfile.TemporaryDirectory(prefix="ottla-mutants-") as directory:
        copy = Path(directory) / "ottla"
        ignored = shutil.ignore_patterns(".git", ".venv", ".cache", "data", "__pycache__")
        shutil.copytree(ROOT, copy, symlinks=True, ignore=ignored)
        for mutant in chosen:
            found = try_one(mutant, copy, arguments.jobs, arguments.seeds)
            missed += found.seed < 0
            word = "found " if found.seed >= 0 else "MISSED"
            print(f"{word} {mutant.name}: {found.how} ({found.seconds:.0f} s)", flush=True)
            if arguments.table:
                write_table({mutant.name: found})
    print(f"{len(chosen)} mutants, {missed} missed")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
