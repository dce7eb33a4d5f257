"""The commands that documents tell developers: `make …`, `python -m …`, `pytest …`, scripts.

They stand in indented lines, between backticks, and in paragraphs of their own. Most of them take
minutes or hours, so they are not run. Instead, tests check that the target, the variables, the
files and the options of each command exist. A test runs the quick commands in RUN. The pages in
OTHERS are left out.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from tests.documents import ROOT, tracked_texts, without_blocks

PROGRAMS = {"bash", "make", "pytest", "python", "python3", "compat_tests/setup", ".ci/run"}
STARTS = re.compile(
    rf"(?:[A-Z_]+=\S|\.venv/bin/.|(?:{'|'.join(map(re.escape, sorted(PROGRAMS)))})(?!\S))")
INDENTED = re.compile(r"^ {4,}(?:\$ )?(\S.*)$", re.MULTILINE)
QUOTED = re.compile(r"`([^`\n]+)`")
ASSIGNMENT = re.compile(r"([A-Z_]+)=(.*)", re.DOTALL)
RUN = {f"python -m tests.simulation --seed 77 {option}" for option in ("--trace", "--shorten")}
"""The commands that a test runs, because they take only seconds."""
OTHERS = {
    "docs/compatibility.md": "how other projects run their own suites, in their own checkouts",
}
"""Pages whose commands are not checked, and why."""
ARGUMENTS = {
    "compat_tests.answers.matrix": {"--record"},
}
"""The arguments of modules that have no argument parser."""
WITH_SPARK = {"compat_tests.events"}
"""Modules that import pyspark: compat_tests/test_documents.py reads their lines."""
PLACEHOLDERS = {"N": "1", "n": "1", "TARGET:FILE": "x"}


def developer_commands() -> list[tuple[str, str]]:
    """Each command, after the page that shows it. Its comment and the brackets around an option are
    left out."""
    pages = {str(path.relative_to(ROOT)) for path in tracked_texts() if path.suffix == ".md"}
    return [(page, command) for page in sorted(pages - OTHERS.keys()) for command in quoted(page)]


def quoted(page: str) -> list[str]:
    """The commands of one page."""
    text, found = without_blocks(page), set()
    for line in [*INDENTED.findall(text), *QUOTED.findall(text), *_paragraphs(text)]:
        if STARTS.match(line):
            shown = re.split(r" # | {3,}", line)[0].replace("[", "").replace("]", "")
            found |= {part.strip() for part in shown.split("&&")}
    return sorted(each for each in found if words_of(each)[1] not in ([], ["python"]))


def _paragraphs(text: str) -> Iterator[str]:
    """Yields the lines of paragraphs that begin with a command. (A sentence begins with a
    capital.)"""
    for paragraph in re.split(r"\n\s*\n", text):
        lines = [line.strip().removeprefix("$ ") for line in paragraph.strip().splitlines()]
        if lines and STARTS.match(lines[0]):
            yield from lines


def words_of(command: str) -> tuple[dict[str, str], list[str]]:
    """The variables that are set before a command, and the command's words."""
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(command)]
    variables = {}
    while words and (found := ASSIGNMENT.fullmatch(words[0])):
        variables[found[1]] = found[2]
        del words[0]
    return variables, words


def module_of(command: str) -> str:
    """The module of `python -m MODULE …`; empty for any other command."""
    words = words_of(command)[1]
    return words[2] if words[0].endswith(("python", "python3")) and words[1:2] == ["-m"] else ""


def problems(page: str, command: str) -> Iterator[str]:
    """Yields what is wrong with a command, as far as this can be known without running it."""
    variables, words = words_of(command)
    program = words[0].removeprefix(".venv/bin/")
    for name in variables.keys() - _variables():
        yield f"nothing reads {name}"
    if program == "make":
        yield from _of_make((ROOT / page).parent, words[1:])
    elif module := module_of(command):
        yield from _of_module(module, words[3:])
    elif program == "pytest":
        yield from _of_pytest(words[1:])
    elif program == "python" and [*ROOT.glob(f"examples/**/{words[1]}")]:
        return
    elif program == "bash":
        yield from (f"there is no {word}" for word in words[1:2] if not (ROOT / word).is_file())
    elif not (ROOT / program).is_file():
        yield f"no rule here checks {program}"


def _of_make(folder: Path, words: list[str]) -> Iterator[str]:
    """Yields what is wrong with a `make` command. It is checked against the Makefile in the page's
    folder, or against the project's if that folder has none."""
    folder = folder if (folder / "Makefile").exists() else ROOT
    assigned = [found.groups() for word in words if (found := ASSIGNMENT.fullmatch(word))]
    targets = [word for word in words if not ASSIGNMENT.fullmatch(word)]
    steps = _steps(folder, *targets)
    if steps is None:
        yield f"the Makefile has no target {' '.join(targets)}"
        return
    for name, _ in assigned:
        if _steps(folder, *targets, f"{name}=7919") == steps:
            yield f"make {' '.join(targets)} does not use {name}"


@cache
def _steps(folder: Path, *words: str) -> str | None:
    """The commands that make would run; None if there is no such target."""
    done = subprocess.run(["make", "-n", *words], cwd=folder, capture_output=True, text=True)
    return None if done.returncode else done.stdout


@cache
def _variables() -> set[str]:
    """The names in capitals that programs, the Makefile and scripts use."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "Makefile", "compat_tests/setup", ".ci",
         ":!tests/test_documents.py"],
        cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return {name for path in listed
            for name in re.findall(r"\b[A-Z][A-Z_]+\b", (ROOT / path).read_text(encoding="utf-8"))}


def _of_pytest(words: list[str]) -> Iterator[str]:
    conftests = "".join(path.read_text() for path in ROOT.glob("*tests/**/conftest.py"))
    for word in words:
        if word.startswith("--") and f'"{word}"' not in conftests:
            yield f"no conftest.py adds {word}"
        elif "/" in word and not (ROOT / word).exists():
            yield f"there is no {word}"


def _of_module(module: str, words: list[str]) -> Iterator[str]:
    path = _program(module)
    if not path.is_file():
        yield f"there is no module {module}"
    elif "parse_args(" not in path.read_text(encoding="utf-8"):
        yield from (f"{module} takes no {word}" for word in words
                    if word not in ARGUMENTS.get(module, ()))
    elif module not in WITH_SPARK:
        yield from parsed(module, words)


def _program(module: str) -> Path:
    """The file that `python -m MODULE` runs."""
    path = ROOT / module.replace(".", "/")
    return path / "__main__.py" if path.is_dir() else path.with_suffix(".py")


class Parsed(BaseException):
    """Ends a program once it has parsed its arguments."""


def parsed(module: str, words: list[str]) -> Iterator[str]:
    """Yields an error if a module's argument parser refuses these arguments. The module runs only
    until it has parsed them."""
    parse = argparse.ArgumentParser.parse_args

    def parse_only(parser: argparse.ArgumentParser) -> None:
        parse(parser)
        raise Parsed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
        patch.setattr(sys, "argv", [module, *words])
        program = ModuleType("__main__")
        program.__file__ = str(_program(module))
        patch.setitem(sys.modules, "__main__", program)
        try:
            exec(_program(module).read_text(encoding="utf-8"), vars(program))
        except Parsed:
            return
        except SystemExit as refused:
            yield f"{module} ends with {refused.code} for {' '.join(words)}"
            return
    yield f"{module} did not parse {' '.join(words)}"
