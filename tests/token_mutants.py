"""Changes single tokens of a folder's modules, and reports which changes its own tests notice.

    python -m tests.token_mutants groups [--count 40] [--seed 1] [--least 36] [--cython]

A mutant replaces an operator, a comparison or a constant, negates a condition, or removes a
statement. The mutants are tried one after the other in a copy of the project. The tests of
`tests/<folder>` run until one fails; test files that import the mutant's module come first.
Asserts, marks, log lines and types are not changed, because no test has to notice such changes.
With `--cython` compiled modules are mutated, too.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import io
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.simulation.mutants import ROOT, build, environment, put

PAIRS = [
    ("<", "<="), (">", ">="), ("==", "!="), ("+", "-"), ("*", "//"), ("and", "or"),
    ("True", "False"), ("break", "continue"), ("+=", "-="), ("<<", ">>"), ("|=", "&="),
]
REPLACEMENTS = {one: other for pair in PAIRS for one, other in (pair, pair[::-1])}
REMOVED = {"not"}
TYPES = re.compile(r"<[\w ]+\*?>|\b(?:cdef|cpdef|cimport)\b.*")
SIMPLE = (ast.Assign, ast.AugAssign, ast.Delete, ast.Raise, ast.Expr)
NOTES = {"reached", "counted", "warning", "info", "debug", "error", "exception", "note"}
"""Calls that change only what people read."""
NEVER = 5
"""pytest's exit code if there are no tests."""


class Site(NamedTuple):
    """A place in a text that a mutant replaces."""

    start: int
    end: int
    new: str


class Outcome(NamedTuple):
    """What the tests did with a mutant: found, missed, or invalid (it cannot be compiled)."""

    word: str
    seconds: float


def sites(text: str, cython: bool = False) -> list[Site]:
    """All places of a module that a mutant may change."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    places = [] if cython else [*statements(ast.parse(text), text, starts)]
    left_out = [] if cython else [*spans_left_out(ast.parse(text), text, starts)]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        start, end = starts[token.start[0] - 1] + token.start[1], 0
        new = replacement(token)
        if new is not None:
            end = starts[token.end[0] - 1] + token.end[1]
            in_type = cython and TYPES.search(token.line) is not None
            if not in_type and not token.line.lstrip().startswith(("assert", "@")):
                places.append(Site(start, end, new))
    return [
        each for each in sorted(set(places))
        if not any(first <= each.start < last for first, last in left_out)
    ]


def replacement(token: tokenize.TokenInfo) -> str | None:
    """What stands in a mutant instead of a token; None for a token that stays."""
    if token.type == tokenize.NUMBER and token.string.isdigit():
        number = int(token.string)
        return str(number + 1 if number < 10 else 0)    # few tests would notice 4097 for 4096
    if token.type in (tokenize.OP, tokenize.NAME):
        return "" if token.string in REMOVED else REPLACEMENTS.get(token.string)
    return None


def statements(tree: ast.AST, text: str, starts: list[int]) -> Iterator[Site]:
    """The places of statements to remove, and of conditions to negate."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for each in ast.walk(node):
                if isinstance(each, SIMPLE) and has_effect(each):
                    yield Site(*span(each, text, starts), "pass")
                elif isinstance(each, ast.If | ast.While):
                    start, end = span(each.test, text, starts)
                    yield Site(start, end, f"not ({text[start:end]})")


def has_effect(node: ast.stmt) -> bool:
    """Whether a statement does more than assign a value to a local name."""
    if isinstance(node, ast.Assign):
        return not any(isinstance(each, ast.Name | ast.Tuple) for each in node.targets)
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call | ast.Await)
    return True


def spans_left_out(tree: ast.AST, text: str, starts: list[int]) -> Iterator[tuple[int, int]]:
    """The places that no mutant changes: asserts, annotations, f-strings, imports for the type
    checker, and calls that change only what people read."""
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        name = getattr(called, "attr", getattr(called, "id", ""))
        annotations = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        if isinstance(node, ast.Assert | ast.JoinedStr) or name in NOTES:
            yield span(node, text, starts)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield span(node, text, starts)
        for each in annotations:
            if isinstance(each, ast.AST):
                yield span(each, text, starts)


def span(node: ast.AST, text: str, starts: list[int]) -> tuple[int, int]:
    """Where a node begins and ends in the text; ast counts columns in bytes of UTF-8."""
    def place(line: int, column: int) -> int:
        begin = text[starts[line - 1]:starts[line]].encode()[:column]
        return starts[line - 1] + len(begin.decode())

    at: ast.expr = node  # type: ignore[assignment]
    return place(at.lineno, at.col_offset), place(at.end_lineno or 0, at.end_col_offset or 0)


def choose(
    root: Path, folder: str, count: int, seed: int, cython: bool
) -> list[tuple[str, Site]]:
    """`count` random mutants of a folder, each with its file. The same seed gives the same
    mutants."""
    places = [
        (path.relative_to(root).as_posix(), site)
        for suffix in ((".py", ".pyx") if cython else (".py",))
        for path in sorted((root / "ottla" / folder).rglob(f"*{suffix}"))
        for site in sites(path.read_text(), suffix == ".pyx")
    ]
    return random.Random(seed).sample(places, min(count, len(places)))


def mutated(text: str, site: Site) -> str:
    """The text of a mutant."""
    return text[:site.start] + site.new + text[site.end:]


def try_one(copy: Path, path: str, site: Site, tests: str, seconds: float) -> Outcome:
    """Run the tests on a mutant in the copy, which is restored afterwards."""
    text, began = (copy / path).read_text(), time.monotonic()
    try:
        put(copy / path, mutated(text, site))
        if path.endswith(".py"):
            compile(mutated(text, site), path, "exec")
        build(copy, [path])
        found = any(fails(copy, files, seconds) for files in nearest_first(copy, path, tests))
        word = "found" if found else "missed"
    except (SyntaxError, subprocess.CalledProcessError):
        word = "invalid"
    finally:
        put(copy / path, text)
        build(copy, [path])
    return Outcome(word, time.monotonic() - began)


def nearest_first(copy: Path, path: str, tests: str) -> list[list[str]]:
    """The test files in two lists: first the files that import the module, because they find most
    mutants, then the others. Empty lists are left out."""
    module = path.rpartition(".")[0].replace("/", ".")
    near: list[str] = []
    others: list[str] = []
    for file in sorted((copy / tests).rglob("test_*.py")):
        (near if module in file.read_text() else others).append(str(file.relative_to(copy)))
    return [files for files in (near, others) if files]


def fails(copy: Path, tests: list[str], seconds: float) -> bool:
    """Whether a test of the copy fails, or does not end in time."""
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
             "--hypothesis-seed=0", *tests],
            cwd=copy, capture_output=True, text=True, env=environment(copy), timeout=seconds,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return True
    if ran.returncode == NEVER:
        raise RuntimeError(f"no tests in {' '.join(tests)}: {ran.stdout[-1000:]}")
    return ran.returncode != 0


def difference(text: str, path: str, site: Site) -> str:
    """A mutant as lines of a diff, without the context."""
    lines = difflib.unified_diff(
        text.splitlines(), mutated(text, site).splitlines(), path, path, lineterm="", n=0
    )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.token_mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", help="a folder of ottla/, such as groups")
    parser.add_argument("--root", type=Path, default=ROOT, help="a checkout of the project")
    parser.add_argument("--count", type=int, default=40, help="how many mutants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--least", type=int, default=0, help="how many have to be found")
    parser.add_argument("--cython", action="store_true", help="also compiled modules")
    options = parser.parse_args()
    tests = f"tests/{options.folder}"
    with tempfile.TemporaryDirectory(prefix="ottla-tokens-") as directory:
        copy = Path(directory) / "ottla"
        ignored = shutil.ignore_patterns(".git", ".venv", ".cache", "data", "__pycache__")
        shutil.copytree(options.root, copy, symlinks=True, ignore=ignored)
        began = time.monotonic()
        if fails(copy, [tests], 3600):
            parser.error(f"{tests} fails without a mutant")
        limit = 3 * (time.monotonic() - began) + 30
        found = tried = 0
        for path, site in choose(
            options.root, options.folder, 2 * options.count, options.seed, options.cython
        ):
            outcome = try_one(copy, path, site, tests, limit)
            print(f"{outcome.word} ({outcome.seconds:.0f} s)",
                  difference((options.root / path).read_text(), path, site), sep="\n", flush=True)
            found, tried = found + (outcome.word == "found"), tried + (outcome.word != "invalid")
            if tried == options.count:
                break
    print(f"{options.folder}: {found} of {tried} mutants found")
    return int(found < options.least)


if __name__ == "__main__":
    sys.exit(main())
