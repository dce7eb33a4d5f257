"""Times and sizes with units, as people write them: 500ms, 5s, 2h, 7d; 64kB, 1MB, 16MiB."""

from __future__ import annotations

import re

MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
BYTES = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}  # fmt: skip
NUMBER = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([a-zA-Z]*)")
TIME_SUFFIXES = {
    ".ms": 1, ".seconds": 1000, ".minutes": 60_000, ".hours": 3_600_000,
}  # fmt: skip
"""Endings of settings' names, and the milliseconds of their units."""
TIME_WORDS = {
    ".ms": "milliseconds", ".seconds": "seconds", ".minutes": "minutes", ".hours": "hours",
}  # fmt: skip
SIZE_SUFFIXES = (".bytes", "_byte_rate", ".size")
COUNT_SUFFIXES = (".max.size", ".backlog.size")
"""Endings of names of settings that count members or connections."""
DECIMAL = re.compile(r"([kmgt])b", re.IGNORECASE)


TIMES = (("day", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1))
SIZES = (
    ("TiB", 1 << 40), ("TB", 10**12), ("GiB", 1 << 30), ("GB", 10**9),
    ("MiB", 1 << 20), ("MB", 10**6), ("KiB", 1 << 10), ("kB", 10**3),
)  # fmt: skip
UNLIMITED = {(1 << 31) - 1, (1 << 63) - 1}
"""Numbers that stand for no limit."""


class InvalidUnit(ValueError):
    """A time or a size has no number or an unknown unit, or is not whole in a setting's unit."""


def duration_ms(text: str, plain: str = "ms") -> float:
    """Parses a time to milliseconds. A number without a unit has the unit `plain`. Raises
    InvalidUnit."""
    match = NUMBER.fullmatch(text.strip())
    unit = (match[2].lower() or plain) if match else ""
    if match is None or unit not in MILLISECONDS:
        raise InvalidUnit(f"{text!r} is not a time: expected a number with ms, s, m, h, d or w")
    return float(match[1]) * MILLISECONDS[unit]


def size_bytes(text: str) -> int:
    """Parses a size to bytes. Raises InvalidUnit."""
    match = NUMBER.fullmatch(text.strip())
    unit = (match[2].lower() or "b") if match else ""
    if match is None or unit not in BYTES:
        raise InvalidUnit(f"{text!r} is not a size: expected a number with kB, MB, GB, KiB, MiB …")
    return int(float(match[1]) * BYTES[unit])


def number_of(name: str, value: str) -> str:
    """The value of one setting as a number in the setting's unit. A value without a unit, or of a
    setting that is neither a time nor a size, stays unchanged. Raises InvalidUnit."""
    match = NUMBER.fullmatch(value.strip())
    if match is None or not match[2]:
        return value
    unit = match[2].lower()
    for suffix, one in TIME_SUFFIXES.items():
        if name.endswith(suffix) and unit in MILLISECONDS:
            whole, rest = divmod(duration_ms(value), one)
            if rest:
                raise InvalidUnit(f"{name}={value} is not a whole number of {TIME_WORDS[suffix]}")
            return str(int(whole))
        if name.endswith(suffix):
            raise InvalidUnit(f"{name}={value}: {unit!r} is not a unit of time; known units:"
                              f" {', '.join(MILLISECONDS)}")
    if _is_size(name):
        if unit not in BYTES:
            raise InvalidUnit(f"{name}={value}: {unit!r} is not a unit of size; known units: kB,"
                              " MB, GB, TB, KiB, MiB, GiB, TiB")
        return str(size_bytes(value))
    return value


def to_write(name: str, value: str) -> str:
    """The end of an error message that asks for a number: which number to write instead of a value
    with a unit. Empty if the value has no unit or cannot be converted."""
    try:
        number = number_of(name, value)
    except InvalidUnit:
        return ""
    return "" if number == value else f"; for {value} write {number}"


def as_typed(name: str, value: str) -> str:
    """The end of an error message about a number that the user typed with a unit: which number the
    `value` is. Empty if the value has no unit."""
    number = number_of(name, value)
    if number == value:
        return ""
    binary = DECIMAL.sub(r"\1iB", value)
    other = "" if binary == value else f", and {binary} is {int(number_of(name, binary)):,}"
    return f"; {value} is {int(number):,}{other}"


def unit_of(name: str) -> str:
    """The end of a message about the value of a setting that is a time or a size: the setting's
    unit, and an example of a value with another unit. Empty for other settings."""
    for suffix, word in TIME_WORDS.items():
        if name.endswith(suffix):
            return f", in {word}, or with a unit, such as 7d"
    return ", in bytes, or with a unit, such as 64MiB" if _is_size(name) else ""


def readable(name: str, value: str) -> str:
    """The value of one setting with units, such as 7 days or 1 GiB. Empty if the setting is neither
    a time nor a size, if the value stands for no limit, or if no larger unit fits."""
    if not value.isdecimal() or len(value) > 19 or int(value) in UNLIMITED:
        return ""
    for suffix, ms in TIME_SUFFIXES.items():
        if name.endswith(suffix):
            text = _time_text(int(value) * ms)
            return "" if text.startswith(f"{value} ") else text
    return _size_text(int(value)) if _is_size(name) else ""


def _is_size(name: str) -> bool:
    return name.endswith(SIZE_SUFFIXES) and not name.endswith(COUNT_SUFFIXES)


def _time_text(ms: int) -> str:
    parts = []
    for unit, size in TIMES:
        number, ms = divmod(ms, size)
        if number:
            parts.append(f"{number} {unit}{'s' * (unit == 'day' and number > 1)}")
    return "about " * (len(parts) > 2) + " ".join(parts[:2])


def _size_text(size: int) -> str:
    for unit, one in SIZES:
        if size >= one and size % one == 0:
            return f"{size // one} {unit}"
    unit, one = next(((unit, one) for unit, one in SIZES[::2] if size >= one), ("", 1))
    return f"about {size / one:.1f} {unit}".replace(".0 ", " ") if unit else ""
