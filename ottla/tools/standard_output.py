"""Standard output whose reader has gone, or whose disk is full."""

from __future__ import annotations

import os
import sys


def discard_output() -> None:
    """Discards output that could not be written, and all further output, so that the interpreter's
    exit does not fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
