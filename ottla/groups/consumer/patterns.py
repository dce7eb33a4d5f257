"""Regular expressions over topic names, by RE2 as in Kafka (KIP-848).

Python's own `re` backtracks: one hostile pattern would hold up every client of the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from ottla.groups.errors import InvalidRegularExpression


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Callable[[str], Any]:
    # Imported at the first use: most brokers never see such a subscription.
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    try:
        matches: Callable[[str], Any] = re2.compile(pattern, options).fullmatch
    except re2.error as error:
        reason = error.args[0].decode() if error.args else "not understood"
        raise InvalidRegularExpression(f"{pattern!r} is no RE2 expression: {reason}") from error
    return matches


def check(pattern: str) -> None:
    """Raise InvalidRegularExpression where RE2 does not understand the pattern."""
    if pattern:
        _compiled(pattern)


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The names that the whole pattern matches; an empty pattern subscribes to nothing."""
    if not pattern:
        return frozenset()
    matches = _compiled(pattern)
    return frozenset(name for name in names if matches(name))
