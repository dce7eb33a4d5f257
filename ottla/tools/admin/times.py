"""Dates and durations in the form of Kafka's tools."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from ottla.client.command_line import INT64_MOST

DURATION = re.compile(
    r"^-?P(?:(?P<days>-?\d+)D)?(?:T(?:(?P<hours>-?\d+)H)?(?:(?P<minutes>-?\d+)M)?"
    r"(?:(?P<seconds>-?\d+(?:\.\d+)?)S)?)?$",
    re.IGNORECASE,
)


def milliseconds_of(text: str) -> int:
    """Converts a date with a time, by default in UTC, to milliseconds since 1970. Raises
    ValueError."""
    if "T" not in text:
        raise ValueError(
            "Error parsing timestamp. It does not contain a 'T' according to ISO8601 format"
        )
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def duration_ms(text: str) -> int:
    """Converts an ISO 8601 duration, with days as its largest unit, to milliseconds. Raises
    ValueError."""
    match = DURATION.match(text)
    if match is None or not any(match.groups()):
        raise ValueError("Text cannot be parsed to a Duration")
    parts = {name: float(value) if value else 0.0 for name, value in match.groupdict().items()}
    seconds = ((parts["days"] * 24 + parts["hours"]) * 60 + parts["minutes"]) * 60
    ms = (seconds + parts["seconds"]) * 1000
    if abs(ms) > INT64_MOST // 2:     # the duration is added to a time
        raise ValueError(f"Text cannot be parsed to a Duration: {text} is too long")
    total = int(ms)
    return -total if text.startswith("-") else total
