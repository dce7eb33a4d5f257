"""Names on a command line, with commas between them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection


def some_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """The names in a text, for argparse's `type`. An unknown one is a wrong command line."""

    def names(text: str) -> list[str]:
        found = text.split(",")
        for name in found:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of: {', '.join(known)}")
        return found

    return names
