"""Durations, members and lists in plain English."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.wire.wording import counted

NAMED_MAX = 5


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


def size(number: int) -> str:
    """A number of bytes as text, such as 12 B, 3.4 KiB, 5.6 MiB."""
    value = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def listed(names: Sequence[str]) -> str:
    """Names as a list, such as "a, b and c"; of many names, the first ones and the number of the
    others."""
    if len(names) > NAMED_MAX:
        others = counted(len(names) - NAMED_MAX, "other")
        return f"{', '.join(names[:NAMED_MAX])} and {others}"
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def member(fields: Mapping[str, Any]) -> str:
    """A member with its client and its host, from an event's fields."""
    return f"member {named(fields['member'], fields.get('client'), fields.get('host'))}"


def named(member_id: str, client_id: str | None, host: str | None) -> str:
    """A member's id, its client id unless the member id begins with it, and its host."""
    client = f" (client {client_id})" if client_id and not member_id.startswith(client_id) else ""
    return f"{member_id}{client}" + (f" of {host.lstrip('/')}" if host else "")
