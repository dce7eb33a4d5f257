"""Converts dates, times and durations, such as 2013-06-01 and 5m, to milliseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ottla.spark_interop.errors import PipelineError
from ottla.wire import units

WORDS = {"ms": "millisecond", "s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week"}
"""Short units of Ottla's commands, and Spark's names for them."""
SHORT = {word: unit for unit, word in WORDS.items()}
PART = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)(\s*)([a-zA-Z]+)")
PARTS = re.compile(rf"\s*(?:{PART.pattern}\s*)+")


def milliseconds(when: str | datetime | int, time_zone: str = "UTC") -> int:
    """Epoch milliseconds of a datetime, an ISO 8601 text, or an integer of milliseconds.

    A time without its own zone is in `time_zone` (an IANA name). A local time that the
    clocks skip or repeat is refused: give its UTC offset, as in `2013-11-03T01:30-04:00`.
    Raises PipelineError if `when` is not a time.
    """
    if isinstance(when, int):
        return when
    if isinstance(when, str):
        when = when.removeprefix("@")       # as the other commands of Ottla write a time
        if when == "0" or (when.lstrip("-").isdigit() and len(when.lstrip("-")) > 8):
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
    """Milliseconds of a duration like 500ms, 1h30m or `2 days`. Raises PipelineError for anything
    else."""
    found = _parts(text)
    if found is None:
        raise PipelineError(
            f"{text!r} is not a duration: write a number and a unit ({', '.join(WORDS)}),"
            " such as 90s or 1h")
    return int(sum(Decimal(number) * units.MILLISECONDS[unit] for number, unit, _ in found))


def interval(text: str) -> str:
    """An interval in Spark's words: 5m becomes `5 minutes`, and 1.5h becomes `90 minutes`. Anything
    else stays unchanged, above all what Spark accepts: tables have recorded it. Raises
    PipelineError for a fraction of a millisecond."""
    found = _parts(text)
    if found is None or all(as_spark for _, _, as_spark in found):
        return text
    if any(Decimal(number) * units.MILLISECONDS[unit] % 1 for number, unit, _ in found):
        raise PipelineError(f"{text!r} is not a whole number of milliseconds: write e.g. 1ms")
    return " ".join(_in_words(number, unit) for number, unit, _ in found)


def _in_words(number: str, unit: str) -> str:
    """A number of a unit in Spark's words, in which only seconds may have a fraction."""
    if not number.isdecimal():
        size = Decimal(number) * units.MILLISECONDS[unit]
        unit = next((one for one in reversed(WORDS) if size % units.MILLISECONDS[one] == 0), "ms")
        number = str(int(size / units.MILLISECONDS[unit]))
    return f"{number} {WORDS[unit]}{'' if number == '1' else 's'}"


def _parts(text: str) -> list[tuple[str, str, bool]] | None:
    """The parts of a duration like 1h30m: each number, its short unit, and whether Spark accepts
    the part as it is written. None for anything else."""
    found = []
    if not PARTS.fullmatch(text):
        return None
    for number, space, written in PART.findall(text):
        word = written.lower()
        unit = word if word in WORDS else SHORT.get(word.removesuffix("s"), "")
        if not unit:
            return None
        whole = number.isdecimal() or (unit == "s" and space)   # Spark needs a space in 1.5 seconds
        found.append((number, unit, bool(word not in WORDS and whole)))
    return found
