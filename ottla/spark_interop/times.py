"""Converts dates, times and durations, such as 2013-06-01 and 5m, to milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ottla.spark_interop.errors import PipelineError

UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def milliseconds(when: str | datetime | int, time_zone: str = "UTC") -> int:
    """Epoch milliseconds of a datetime, an ISO 8601 text, or an integer of milliseconds.

    A time without its own zone is in `time_zone` (an IANA name). A local time that the
    clocks skip or repeat is refused: give its UTC offset, as in `2013-11-03T01:30-04:00`.
    Raises PipelineError if `when` is not a time.
    """
    if isinstance(when, int):
        return when
    if isinstance(when, str):
        if when.lstrip("-").isdigit() and len(when.lstrip("-")) > 8:
            return int(when)
        try:
            when = datetime.fromisoformat(when)
        except ValueError as error:
            raise PipelineError(
                f"{when!r} is not a time: write 2013-06-01, 2013-06-01T12:30+02:00 or epoch ms"
            ) from error
    if when.tzinfo is None:
        when = _local(when, time_zone)
    return (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _local(when: datetime, time_zone: str) -> datetime:
    try:
        zone = ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise PipelineError(
            f"{time_zone!r} is not a time zone; write e.g. America/New_York"
        ) from error
    early, late = when.replace(tzinfo=zone), when.replace(tzinfo=zone, fold=1)
    if early.utcoffset() != late.utcoffset():
        skipped = early.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != when
        raise PipelineError(
            f"{when.isoformat()} {'does not exist' if skipped else 'occurs twice'} in {time_zone}, "
            f"because clocks change: add the UTC offset, e.g. {early.isoformat()}"
        )
    return early


def duration_ms(text: str) -> int:
    """Milliseconds of a duration like 500ms, 10s, 5m, 2h, 1d. Raises PipelineError for anything
    else."""
    number = text.rstrip("mshd")
    unit = text[len(number) :]
    if unit not in UNITS or not number.isdigit():
        raise PipelineError(f"{text!r} is not a duration: write 500ms, 10s, 5m, 2h or 1d")
    return int(number) * UNITS[unit]
