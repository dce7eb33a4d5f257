"""Times as people write them: a date with or without a time, or milliseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime

from ottla.client.command_line import INT64_MOST, is_at_most
from ottla.tools.usage import WrongUsage


def milliseconds(text: str) -> int:
    """Parses a time to milliseconds since 1970. A time without a zone is in UTC. A leading @, as in
    --offset, is ignored. Raises WrongUsage."""
    text = text.removeprefix("s@").removeprefix("@")
    if text.isdecimal():
        if not is_at_most(text):
            raise WrongUsage(
                f"{text!r} is not a time: expected at most {INT64_MOST} milliseconds since 1970")
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise WrongUsage(
            f"{text!r} is not a time: expected 2026-01-31T12:00:00 (UTC unless it has a zone) or "
            "milliseconds since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    found = int(moment.timestamp() * 1000)
    if found < 0:
        raise WrongUsage(f"{text!r} is before 1970: expected a time from 1970 on")
    return found
