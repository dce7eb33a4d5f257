"""Programs of the Python environment that runs Ottla, as a user calls them from a shell."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import join


def in_environment(name: str) -> Path:
    """A file in `bin` of this environment, relative to the working directory if it is below it."""
    path = Path(sys.prefix) / "bin" / name
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def pip_install(*packages: str) -> str:
    """The command that installs packages into this environment, which need not be the one whose
    `pip` is on the PATH. It works in every directory, also if a service printed it."""
    return join([sys.executable, "-m", "pip", "install", *packages])
