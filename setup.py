"""Compiles every Cython module; all other settings are in pyproject.toml."""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        Extension("*", ["ottla/**/*.pyx"], extra_compile_args=["-O2", "-g0"]),
        build_dir="build/cython",
        nthreads=os.cpu_count() or 1,
        compiler_directives={"language_level": 3},
    )
)
