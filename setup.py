"""Compiles every Cython module; all other settings are in pyproject.toml."""

import os
import re
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

BUILD = "build/cython"
SHARED = "ottla._cython"
"""What typed memoryviews need, once instead of in each module: a quarter of all C code."""
FLAGS = os.environ.get("OTTLA_CFLAGS", "-O2 -g0 -Werror=incompatible-pointer-types").split()
"""What gcc 14 refuses is an error with older compilers too, so that it is noticed."""
HOME = os.environ.get("OTTLA_PROJECT_URL", "")
"""Where the project is published, for the metadata of its packages: who publishes it knows."""


def readme() -> str:
    """README.md as a package index can show it: pictures and links inside the project go."""
    text = Path("README.md").read_text(encoding="utf-8")
    text = re.sub(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n*", "", text)
    return re.sub(r"\[([^\]]*)\]\((?!https?:|#)[^)]*\)", r"\1", text)


os.makedirs(f"{BUILD}/ottla", exist_ok=True)
setup(
    long_description=readme(),
    long_description_content_type="text/markdown",
    project_urls={"Homepage": HOME} if HOME else {},
    ext_modules=cythonize(
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
    ),
)
