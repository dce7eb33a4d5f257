"""Compiles every Cython module; all other settings are in pyproject.toml."""

import os

from Cython.Build import cythonize
from setuptools import setup

setup(
    ext_modules=cythonize(
        "ottla/**/*.pyx",
        build_dir="build/cython",
        nthreads=os.cpu_count() or 1,
        compiler_directives={"language_level": 3},
    )
)
