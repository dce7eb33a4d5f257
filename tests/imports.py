"""Finds out which modules a program imports, in a Python process of its own."""

from __future__ import annotations

import subprocess
import sys


def imported(program: str, *prefixes: str) -> list[str]:
    """The modules with one of the prefixes that are loaded after a program has run."""
    listing = f"print(*[name for name in sys.modules if name.startswith({prefixes!r})])"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {program}; {listing}"],
        capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
