"""Keeps the broker's memory, which has keys and passwords, out of core dumps."""

from __future__ import annotations

import contextlib
import resource

NEVER = 1
"""A limit of one byte: the kernel then writes no file, and starts no program that
`core_pattern` names, which it would with a limit of 0 (core(5))."""


def forbid_core_dumps() -> None:
    """No core dumps of this process and its children from now on, whatever `ulimit -c` allows."""
    with contextlib.suppress(ValueError, OSError):
        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        allowed = NEVER if hard == resource.RLIM_INFINITY or hard > NEVER else hard
        resource.setrlimit(resource.RLIMIT_CORE, (allowed, hard))
