"""Times and sizes with units, as people write them: 500ms, 5s, 2h, 7d; 64kB, 1MB, 16MiB."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ottla.tools.usage import WrongUsage

MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
BYTES = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}  # fmt: skip
NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)")
TIME_SUFFIXES = {
    ".ms": 1, ".seconds": 1000, ".minutes": 60_000, ".hours": 3_600_000,
}  # fmt: skip
"""Endings of settings' names, and the milliseconds of their unit."""
SIZE_SUFFIXES = (".bytes", "_byte_rate", ".size")


def duration_ms(text: str, plain: str = "ms") -> float:
    """Parses a time to milliseconds. A number without a unit has the unit `plain`. Raises
    WrongUsage."""
    match = NUMBER.fullmatch(text.strip())
    unit = (match[2].lower() or plain) if match else ""
    if match is None or unit not in MILLISECONDS:
        raise WrongUsage(f"{text!r} is not a time: expected a number with ms, s, m, h, d or w")
    return float(match[1]) * MILLISECONDS[unit]


def size_bytes(text: str) -> int:
    """Parses a size to bytes. Raises WrongUsage."""
    match = NUMBER.fullmatch(text.strip())
    unit = (match[2].lower() or "b") if match else ""
    if match is None or unit not in BYTES:
        raise WrongUsage(f"{text!r} is not a size: expected a number with kB, MB, GB, KiB, MiB …")
    return int(float(match[1]) * BYTES[unit])


def without_units(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings with the numbers that brokers expect: retention.ms=7d is 604800000."""
    return {name: number_of(name, value) for name, value in settings.items()}


def overrides_without_units(words: Sequence[str]) -> list[str]:
    """A command line of `ottla server` with the numbers that brokers expect in its overrides.
    Raises WrongUsage."""
    done: list[str] = []
    for word in words:
        if word.startswith("--override="):
            done.append("--override=" + setting_without_unit(word.partition("=")[2]))
        elif done and done[-1] == "--override":
            done.append(setting_without_unit(word))
        else:
            done.append(word)
    return done


def setting_without_unit(setting: str) -> str:
    """`name=value` without the value's unit; anything else stays unchanged. Raises WrongUsage."""
    name, equals, value = setting.partition("=")
    return name + equals + number_of(name.strip(), value)


def number_of(name: str, value: str) -> str:
    """The value of one setting without its unit. A value without a unit, or of a setting that is
    neither a time nor a size, stays unchanged."""
    match = NUMBER.fullmatch(value.strip())
    if match is None or not match[2]:
        return value
    unit = match[2].lower()
    for suffix, one in TIME_SUFFIXES.items():
        if name.endswith(suffix) and unit in MILLISECONDS:
            whole, rest = divmod(duration_ms(value), one)
            if rest:
                raise WrongUsage(f"{name}={value} is not a whole number")
            return str(int(whole))
        if name.endswith(suffix):
            raise WrongUsage(f"{name}={value}: {unit!r} is not a unit of time; known units:"
                             f" {', '.join(MILLISECONDS)}")
    if name.endswith(SIZE_SUFFIXES):
        if unit not in BYTES:
            raise WrongUsage(f"{name}={value}: {unit!r} is not a unit of size; known units: kB, MB,"
                             " GB, TB, KiB, MiB, GiB, TiB")
        return str(size_bytes(value))
    return value
