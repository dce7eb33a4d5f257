"""Times as people write them: a date with or without a time, or milliseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime

from ottla.client.errors import ClientError


def milliseconds(text: str) -> int:
    """Milliseconds since 1970; without a zone in UTC. ClientError for anything else."""
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ClientError(
            f"{text!r} is not a time: expected 2026-01-31T12:00:00 (UTC unless it has a zone) or "
            "milliseconds since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
