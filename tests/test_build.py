"""A newcomer's first minutes: what a build prints, and whether Python finds the package."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def package_of_one(directory: Path) -> None:
    """A package of one module, with the project's own setup.py."""
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, directory)
    package = directory / "ottla"
    package.mkdir()
    (package / "__init__.py").write_text('__version__ = "0"\n')
    (package / "one.pyx").write_text("ONE = 1\n")


def test_a_build_says_which_of_its_steps_it_is_at_and_warns_of_nothing(tmp_path: Path) -> None:
    package_of_one(tmp_path)
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=tmp_path,
        env=os.environ | {"OTTLA_CFLAGS": "-O0"}, capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, done.stderr
    first, *others, last = done.stderr.splitlines()
    assert all(line.startswith("[  1/2] step 2 of 2, compiled: ottla.") for line in others)
    assert first == "[  1/1] step 1 of 2, to C: ottla/one.pyx"
    assert last.startswith("[  2/2] step 2 of 2, compiled: ottla."), "the other one is shared C"


def test_a_second_build_waits_for_the_first_one(tmp_path: Path) -> None:
    package_of_one(tmp_path)
    (tmp_path / "build" / "cython").mkdir(parents=True)
    with (tmp_path / "build" / "cython" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = subprocess.Popen(
            [sys.executable, "setup.py", "-q", "clean"], cwd=tmp_path, stderr=subprocess.PIPE,
            text=True,
        )
        assert second.stderr is not None
        assert second.stderr.readline().startswith("Another build is at work in this directory;")
        assert second.poll() is None
    assert second.wait(60) == 0
    second.stderr.close()


def test_make_help_lists_what_there_is_to_make() -> None:
    done = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "make run\n    builds into .venv, serves on localhost:9092" in done.stdout
    assert "make test\n    builds, runs tests/" in done.stdout and "`" not in done.stdout


def test_no_module_has_a_number_of_which_compilers_warn() -> None:
    """C has no literal for the least int64, because `-0x8000000000000000` is unsigned: use
    INT64_MIN."""
    number = re.compile(r"-(0x[0-9a-fA-F]+|\d+)\b")
    for path in (each for each in (ROOT / "ottla").rglob("*") if each.suffix in (".pyx", ".pxd")):
        for found in number.finditer(path.read_text(encoding="utf-8")):
            assert int(found[1], 0) < 1 << 63, f"{path}: {found[0]}"


def test_beside_the_clone_the_package_is_found_and_not_its_folder(tmp_path: Path) -> None:
    """`git clone` makes a folder `ottla`. Without PACKAGE_FIRST of the Makefile, Python would
    import this folder as a namespace package."""
    if not (Path(sysconfig.get_path("purelib")) / "ottla").exists():
        pytest.skip("only `make build` and a wheel put a package into site-packages")
    (tmp_path / "ottla" / "ottla").mkdir(parents=True)
    program = tmp_path / "program.py"
    program.write_text("from ottla.testing import Broker\nimport ottla\nprint(ottla.__file__)")
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("ottla/__init__.py")
