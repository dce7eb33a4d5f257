"""Numbers with their nouns, and durations, for the messages of all packages."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """1 partition, 2 partitions, 1,234 entries."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def duration(ms: float) -> str:
    """A duration as text, such as 45 s, 3.2 s, 5 min 20 s, 2 h 5 min, 3 days."""
    if ms < 1000:
        return f"{max(0, round(ms))} ms"
    if ms < 10_000:
        return f"{ms / 1000:.1f} s".replace(".0 s", " s")
    seconds = round(ms / 1000)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s" if seconds and minutes < 10 else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} days"
