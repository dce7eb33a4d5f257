"""Chooses other log directories for the partitions of a log directory that is to be emptied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from ottla.tools.admin.offsets import Place


def moved_out(sizes: Mapping[Place, int], free: Mapping[str, int | None]) -> dict[Place, str]:
    """Chooses a directory for each partition. The largest partition comes first, and each goes to
    the directory with the most free space left. `free` has the free bytes of each directory, None
    if unknown.

    Raises ClientError if the partitions do not all fit: then none of them should move.
    """
    room = {path: float("inf") if size is None else float(size) for path, size in free.items()}
    counts = dict.fromkeys(room, 0)
    plan = {}
    for place, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        path = max(room, key=lambda each: (room[each], -counts[each]))
        if size > room[path]:
            raise ClientError(
                f"no other directory would have room for {place[0]}:{place[1]} ({size} bytes) after"
                f" the moves of the larger partitions. {sum(sizes.values())} bytes in total have to"
                " move. Free:"
                f" {', '.join(f'{each or 0} bytes in {path}' for path, each in free.items())}"
            )
        room[path] -= size
        counts[path] += 1
        plan[place] = path
    return plan
