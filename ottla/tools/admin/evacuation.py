"""Which log directories get the partitions of one that is to be emptied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from ottla.tools.admin.offsets import Place


def moved_out(sizes: Mapping[Place, int], free: Mapping[str, int | None]) -> dict[Place, str]:
    """A directory for each partition: the largest partition first, in the directory with the most
    free space left. `free` are the free bytes of each directory; None if unknown.

    Raises ClientError if they do not all fit: otherwise some would have to move back.
    """
    room = {path: float("inf") if size is None else float(size) for path, size in free.items()}
    counts = dict.fromkeys(room, 0)
    plan = {}
    for place, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        path = max(room, key=lambda each: (room[each], -counts[each]))
        if size > room[path]:
            raise ClientError(
                f"{sum(sizes.values())} bytes have to move, more than the other directories have"
                " free:"
                f" {', '.join(f'{size or 0} are free in {path}' for path, size in free.items())}"
            )
        room[path] -= size
        counts[path] += 1
        plan[place] = path
    return plan
