"""Regular expressions over topic names, by RE2 as in Kafka (KIP-848).

Python's own `re` backtracks: one hostile pattern could block the broker for all clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from ottla.groups.errors import InvalidRegularExpression


@lru_cache(maxsize=128)                # of up to half a MiB each
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
        raise InvalidRegularExpression(f"{pattern!r} is not valid for RE2: {reason}") from error
    return matches


def check(pattern: str) -> None:
    """Raise InvalidRegularExpression if RE2 does not accept the pattern."""
    if pattern:
        _compiled(pattern)


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The names that match the whole pattern; an empty pattern subscribes to nothing."""
    if not pattern:
        return frozenset()
    matches = _compiled(pattern)
    return frozenset(name for name in names if matches(name))
