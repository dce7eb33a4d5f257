"""Installs the wheel and the source distribution in a bare environment, and runs them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from compat_tests.requirements import ROOT
from tests.documents import commands

EMPTY = {
    name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_"))
}


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """The output of a command; if it fails, the test fails with the end of the output."""
    done = subprocess.run(
        command, cwd=cwd, env=EMPTY | variables, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout[-4000:]}"
    return done.stdout


def environment(directory: Path) -> Path:
    """Create a new, bare environment; return the path of its Python."""
    run(sys.executable, "-m", "venv", directory, cwd=directory.parent)
    return directory / "bin" / "python"


def forget_what_has_moved(tree: Path) -> None:
    """Delete files in build/lib whose source has moved or is gone, because setuptools would pack
    them, too."""
    for library in tree.glob("build/lib*"):
        for path in [each for each in library.rglob("*") if each.is_file()]:
            source = tree / path.relative_to(library)
            compiled = source.with_name(source.name.partition(".")[0] + ".pyx")
            if path.suffix == ".so":
                source = compiled
            if not source.exists() and not path.name.startswith("_cython."):
                path.unlink()


def keep_what_is_compiled(tree: Path) -> None:
    """Put compiled modules where setuptools looks for them before it compiles. The test of the
    source distribution checks that everything compiles."""
    place = f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    for module in (tree / "ottla").rglob("*.so"):
        target = tree / "build" / place / module.relative_to(tree)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(module, target)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel with the modules that `make` has compiled. It is built in a copy of the tree, because
    other tests build in the tree itself."""
    directory = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns(".git", ".venv", ".cache", "data", "bdist.*")
    tree = shutil.copytree(ROOT, directory / "tree", symlinks=True, ignore=ignored)
    forget_what_has_moved(tree)
    keep_what_is_compiled(tree)
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w",
        directory, tree, cwd=tree, OTTLA_PROJECT_URL="https://example.org/ottla")
    return next(directory.glob("*.whl"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source distribution."""
    directory = tmp_path_factory.mktemp("sdist")
    script = f"import setuptools.build_meta as b; b.build_sdist({str(directory)!r})"
    run(sys.executable, "-c", script, cwd=ROOT)
    return next(directory.glob("*.tar.gz"))


def test_the_sample_project_runs_on_the_wheel_in_a_bare_environment(
    wheel: Path, tmp_path: Path
) -> None:
    python = environment(tmp_path / "venv")
    run(python, "-m", "pip", "install", "-q", wheel, "pytest", "confluent-kafka", cwd=tmp_path)
    version = run(python, "-m", "ottla", "--version", cwd=tmp_path)
    assert version == run(python.with_name("ottla"), "--version", cwd=tmp_path)
    sample = shutil.copytree(
        ROOT / "examples" / "testing", tmp_path / "sample",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    printed = run(python, "-m", "pytest", "-q", cwd=sample)
    assert re.search(r"^50 passed", printed, re.MULTILINE), printed


def test_the_extras_of_the_install_page_bring_what_they_are_for(
    wheel: Path, tmp_path: Path
) -> None:
    [block] = [block for block in commands("docs/install.md") if "[" in block.text]
    python = environment(tmp_path / "env")
    run("sh", "-ec", block.text.replace(".[", f"{wheel}["), cwd=tmp_path)
    run(python, "-c", "import kazoo.client, cryptography, jwt", cwd=tmp_path)
    assert run(tmp_path / "env/bin/ottla", "--version", cwd=tmp_path)


def test_the_wheel_has_what_runs_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(n for n in names if n.endswith("/METADATA"))).decode()
    assert not [name for name in names if name.endswith((".pyx", ".c", ".o"))]
    modules = {name.split(".")[0] for name in names if name.endswith(".so")}
    compiled = {str(p.relative_to(ROOT))[:-4] for p in (ROOT / "ottla").rglob("*.pyx")}
    assert modules == compiled | {"ottla/_cython"}
    assert "Classifier: Programming Language :: Python :: 3.13" in metadata
    assert "Project-URL: Homepage, https://example.org/ottla\n" in metadata
    wanted = re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*$", metadata, re.MULTILINE)
    assert set(wanted) == {
        "confluent-kafka", "google-re2", "lz4", "python-snappy", "starlette", "uvicorn",
        "zstandard",
    }
    description = metadata.partition("\n\n")[2]
    assert description.startswith("# Ottla")
    assert not re.search(r"\]\((?!https?:|#)", description), "links that an index cannot follow"


def test_a_source_distribution_has_every_source_and_nothing_compiled(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert not [name for name in names if name.endswith((".so", ".c", ".pyc"))]
    sources = {
        str(path.relative_to(ROOT)) for path in (ROOT / "ottla").rglob("*")
        if path.suffix in (".py", ".pyx", ".pxd", ".pyi", ".h", ".txt", ".js", ".css")
    }
    assert len(sources) > 500 and not sources - names


@pytest.mark.long
def test_a_source_distribution_compiles_and_serves_in_a_bare_environment(
    sdist: Path, tmp_path: Path
) -> None:
    python = environment(tmp_path / "venv")
    # Without optimisation, because this test checks compilation, not speed.
    run(python, "-m", "pip", "install", "-q", sdist, cwd=tmp_path, OTTLA_CFLAGS="-O0 -g0 -w")
    script = (
        "from ottla.testing import Broker\n"
        "with Broker() as broker: print('made', broker.create_topic('orders'))\n"
    )
    assert run(python, "-c", script, cwd=tmp_path) == "made orders\n"
