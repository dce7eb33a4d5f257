"""Parses lists of names, separated by commas, on a command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection


def some_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """A function for argparse's `type`: it splits a text into names, and refuses unknown names."""

    def names(text: str) -> list[str]:
        found = text.split(",")
        for name in found:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of: {', '.join(known)}")
        return found

    return names
