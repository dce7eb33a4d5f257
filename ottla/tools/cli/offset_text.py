"""Offsets as people write them: beginning, end, stored, N, -N, +N, @TIME."""

from __future__ import annotations

import re

from ottla.client.command_line import INT64_MOST, is_at_most
from ottla.client.similar_names import similar
from ottla.tools.cli.moments import milliseconds
from ottla.tools.usage import WrongUsage

BEGINNING, END = ("beginning", "earliest", "start"), ("end", "latest")
NUMBER = re.compile("[+-]?[0-9]+")


def check_offset(text: str, flag: str, words: tuple[str, ...], signs: str = "-") -> None:
    """Checks the value of a flag for an offset. Raises WrongUsage, except for these values: one of
    `words`, a word of BEGINNING or END, a time (`@TIME`), and a number up to the highest offset.
    Before the number, the value may have one of the characters in `signs`."""
    if text in words or text in (*BEGINNING, *END):
        return
    if text.startswith(("@", "s@")):
        milliseconds(text.partition("@")[2].strip())
        return
    if NUMBER.fullmatch(text) is None or text[0] in {"+", "-"} - {*signs}:
        numbers = ", ".join(["N", *(f"{sign}N" for sign in signs)])
        raise WrongUsage(f"{flag} {text}: expected {', '.join(words)}, {numbers} or @TIME"
                         f"{similar(text, words)}")
    number_of(text, flag)


def check_reset(text: str, flag: str = "--to") -> None:
    """Checks where `ottla group reset` moves committed offsets. Raises WrongUsage."""
    check_offset(text, flag, ("beginning", "end"), "+-")


def check_before(text: str) -> None:
    """Checks the value of --before of `ottla topic trim`. Raises WrongUsage."""
    if text != "end" and not text.isdecimal():
        raise WrongUsage(f"--before {text}: expected an offset or 'end'")
    if text != "end":
        number_of(text, "--before")


def number_of(text: str, flag: str) -> int:
    """Parses an offset, or a distance between offsets. Raises WrongUsage for a number above the
    highest offset."""
    if not is_at_most(text):
        raise WrongUsage(f"{flag} {text}: the highest offset is {INT64_MOST}")
    return int(text)
