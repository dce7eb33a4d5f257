"""Flags that users forget: they write `ottla topic grow orders 6` instead of
`ottla topic grow orders --partitions 6`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from shlex import quote

from ottla.tools.cli.offset_text import check_before, check_reset
from ottla.tools.usage import WrongUsage

NEEDS_FLAG = {
    "group reset": "--to",
    "produce": "--file",
    "topic grow": "--partitions",
    "topic trim": "--before",
}
"""Commands, each with a flag that users forget."""

CHECKS: dict[str, Callable[[str], None]] = {"group reset": check_reset, "topic trim": check_before}
"""Commands that check the value of this flag themselves, since the flag's argparse type takes any
text."""


def with_flag(
    command: str, value: str, known: Mapping[str, argparse.Action], topic: str = "TOPIC"
) -> str:
    """Returns "; write it with its flag: --partitions 6" for the value of a forgotten flag. Returns
    "" if the command has no such flag, or if the command would refuse the value. `ottla produce`
    gets the flag only for a file that exists. For any other text, the answer says how to send the
    text to `topic`."""
    if (name := NEEDS_FLAG.get(command, "")) not in known:
        return ""
    try:
        read = known[name].type
        if callable(read):
            read(value)
        if command in CHECKS:
            CHECKS[command](value)
    except (argparse.ArgumentTypeError, TypeError, ValueError, WrongUsage):
        return ""
    if name == "--file" and (os.path.isdir(value) or not os.path.exists(value)):
        return f"; to send a text: echo {quote(value)} | ottla {command} {quote(topic)}"
    return f"; write it with its flag: {name} {quote(value)}"
