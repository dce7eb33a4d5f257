"""Regular expressions over topic names, by RE2 as in Kafka (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.groups.errors import InvalidRegularExpression
from ottla.wire.patterns import InvalidPattern, Pattern, compiled


def _compiled(pattern: str) -> Pattern:
    try:
        return compiled(pattern)
    except InvalidPattern as error:
        raise InvalidRegularExpression(str(error)) from error


def check(pattern: str) -> None:
    """Raise InvalidRegularExpression if RE2 does not accept the pattern."""
    if pattern:
        _compiled(pattern)


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The names that match the whole pattern; an empty pattern subscribes to nothing."""
    if not pattern:
        return frozenset()
    matches = _compiled(pattern).fullmatch
    return frozenset(name for name in names if matches(name))
