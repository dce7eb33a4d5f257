"""Compiles every Cython module; all other settings are in pyproject.toml."""

import contextlib
import fcntl
import io
import os
import re
import sys
import sysconfig
import threading
import time
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

BUILD = "build/cython"
SHARED = "ottla._cython"
"""What typed memoryviews need, once instead of in each module: a quarter of all C code."""
FLAGS = os.environ.get(
    "OTTLA_CFLAGS",
    "-O2 -g0 -Werror=incompatible-pointer-types -Wno-unused-function"
    " -Wno-maybe-uninitialized",
).split()
"""What gcc 14 refuses is an error with older compilers too, so that it is noticed. The two warnings
are about C that Cython writes."""
COMPILED = f"{BUILD}/{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
"""Compiled modules are kept here: the next build compiles what has changed."""
SECONDS = 5.0
HOME = os.environ.get("OTTLA_PROJECT_URL", "")
"""Where the project is published, for the metadata of its packages: who publishes it knows."""


def readme() -> str:
    """README.md as a package index can show it: pictures and links inside the project go."""
    text = Path("README.md").read_text(encoding="utf-8")
    text = re.sub(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n*", "", text)
    return re.sub(r"\[([^\]]*)\]\((?!https?:|#)[^)]*\)", r"\1", text)


class Progress(io.TextIOBase):
    """Shows how far a step of the build is: on a terminal in one line, else a line every few
    seconds."""

    told = 0.0

    def show(self, done: int, count: int, what: str) -> None:
        """Show that `done` of `count` modules are finished."""
        if sys.stderr.isatty():
            end = "\n" if done == count else ""
            sys.stderr.write(f"\r[{done:>3}/{count}] {what}\033[K{end}")
        elif done == count or time.monotonic() - self.told > SECONDS:
            self.told = time.monotonic()
            sys.stderr.write(f"[{done:>3}/{count}] {what}\n")
        sys.stderr.flush()

    def write(self, text: str) -> int:
        """Take what Cython prints, such as `[ 7/76] Cythonizing ottla/wire/batch.pyx`."""
        found = re.match(r"\[ *(\d+)/(\d+)\] Cythonizing (.*)", text)
        if found:
            self.show(int(found[1]), int(found[2]), f"step 1 of 2, to C: {found[3]}")
        return len(text)


class Compile(build_ext):
    """Shows the progress, and compiles only what has changed. setuptools would build an editable
    installation in a temporary directory, and so compile everything every time."""

    def initialize_options(self) -> None:
        """Compile two modules at a time; `-j` says otherwise."""
        super().initialize_options()
        self.parallel = 2

    def run(self) -> None:
        """Compile into COMPILED, then copy to where setuptools wants the modules."""
        self.done, self.lock, self.progress = 0, threading.Lock(), Progress()
        wanted, self.build_lib = self.build_lib, COMPILED
        super().run()
        compiled = [self.get_ext_fullpath(ext.name) for ext in self.extensions]
        self.build_lib = wanted
        for path, ext in zip(compiled, self.extensions, strict=True):
            target = Path(self.get_ext_fullpath(ext.name))
            if not self.inplace:
                target.parent.mkdir(parents=True, exist_ok=True)
                self.copy_file(path, str(target))

    def build_extension(self, ext: Extension) -> None:
        super().build_extension(ext)        # in one of several threads
        with self.lock:
            self.done += 1
            what = f"step 2 of 2, compiled: {ext.name}"
            self.progress.show(self.done, len(self.extensions), what)


os.makedirs(f"{BUILD}/ottla", exist_ok=True)
LOCK = os.open(f"{BUILD}/.lock", os.O_RDWR | os.O_CREAT)
"""Held until this process ends: two builds at a time would write the same files."""
try:
    fcntl.flock(LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("Another build is at work in this directory; this one waits.", file=sys.stderr)
    fcntl.flock(LOCK, fcntl.LOCK_EX)
with contextlib.redirect_stdout(Progress()):
    MODULES = cythonize(
        [
            Extension(SHARED, [f"{BUILD}/ottla/_cython.c"], extra_compile_args=FLAGS),
            Extension("*", ["ottla/**/*.pyx"], extra_compile_args=FLAGS),
        ],
        build_dir=BUILD,
        nthreads=os.cpu_count() or 1,
        shared_utility_qualified_name=SHARED,
        # Nothing pickles these classes, and gcc 14 does not compile what Cython makes for it
        # where a field is an array of arrays.
        compiler_directives={
            "language_level": 3, "emit_code_comments": False, "auto_pickle": False,
        },
    )
setup(
    cmdclass={"build_ext": Compile},
    long_description=readme(),
    long_description_content_type="text/markdown",
    project_urls={"Homepage": HOME} if HOME else {},
    ext_modules=MODULES,
)
