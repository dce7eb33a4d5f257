"""Keeps the broker's memory, which has keys and passwords, out of core dumps."""

from __future__ import annotations

import contextlib
import resource

PR_SET_DUMPABLE = 4
NEVER = 1
"""A size limit of one byte for core dumps. With this limit the kernel neither writes a file nor
starts the program that `core_pattern` names. With a limit of 0 it would start the program
(core(5))."""


def forbid_core_dumps() -> None:
    """Prevent core dumps of this process and its children from now on, whatever `ulimit -c`
    allows."""
    with contextlib.suppress(ValueError, OSError):
        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        if hard == 0:
            _forbid_the_program()
            return
        resource.setrlimit(resource.RLIMIT_CORE, (NEVER, hard))


def _forbid_the_program() -> None:
    """Mark the process as not dumpable (prctl(2)), which also prevents tracing. This is needed if
    the hard limit is 0 and so cannot be raised to NEVER (`docker run --ulimit core=0`, systemd's
    LimitCORE=0). With a limit of 0, the program in `core_pattern` would still get the broker's
    memory."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
