"""Regular expressions over topic names, by RE2 as in Kafka (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ottla.groups.errors import InvalidRegularExpression
from ottla.wire.patterns import InvalidPattern, Pattern, compiled

REMEMBERED_MAX = 32
"""The number of patterns whose last comparison is kept in memory."""


def _compiled(pattern: str) -> Pattern:
    try:
        return compiled(pattern)
    except InvalidPattern as error:
        raise InvalidRegularExpression(str(error)) from error


def check(pattern: str) -> None:
    """Raise InvalidRegularExpression if RE2 does not accept the pattern."""
    if pattern:
        _compiled(pattern)


class _Compared:
    """The names that a pattern was last compared with, and those that it matches."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self.matches: frozenset[str] = frozenset()


@lru_cache(maxsize=REMEMBERED_MAX)
def _compared(pattern: str) -> _Compared:
    return _Compared()


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The names that match the whole pattern; an empty pattern subscribes to nothing.

    Groups call this at each change of the metadata, and comparing 10,000 names takes 30 ms. So only
    names that are new since the previous call with this pattern are compared.
    """
    if not pattern:
        return frozenset()
    known, fits, present = _compared(pattern), _compiled(pattern).fullmatch, frozenset(names)
    if present != known.names:
        new = frozenset(name for name in present - known.names if fits(name))
        known.matches, known.names = (known.matches & present) | new, present
    return known.matches
