"""Sizes, members and lists in plain English."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.wire.wording import counted

NAMED_MAX = 5


def size(number: int) -> str:
    """A number of bytes as text, such as 12 B, 3.4 KiB, 5.6 MiB."""
    value = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def listed(names: Sequence[str]) -> str:
    """Names as a list, such as "a, b and c". A long list is shortened to its first NAMED_MAX
    entries and the number of the others, such as "a, b, c, d, e and 3 others"."""
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
