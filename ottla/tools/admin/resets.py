"""Computes a group's new offsets for each kind of reset that Kafka's tool offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.tools.admin import offsets
from ottla.tools.admin.offsets import EARLIEST, LATEST, Place

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient


def clamp(
    cluster: ClusterClient, wanted: Mapping[Place, int], warn: list[str] | None = None
) -> dict[Place, int]:
    """The offsets in `wanted`, limited to each partition's range. Adds a line to `warn` for each
    offset outside this range."""
    first = offsets.required(cluster, dict.fromkeys(wanted, EARLIEST))
    last = offsets.required(cluster, dict.fromkeys(wanted, LATEST))
    found = {}
    for place, offset in wanted.items():
        low, high = first[place], last[place]
        found[place] = min(max(offset, low), high)
        if warn is not None and offset > high:
            warn.append(
                f"New offset ({offset}) is higher than latest offset for topic partition "
                f"{place[0]}-{place[1]}. Value will be set to {high}"
            )
        elif warn is not None and offset < low:
            warn.append(
                f"New offset ({offset}) is lower than earliest offset for topic partition "
                f"{place[0]}-{place[1]}. Value will be set to {low}"
            )
    return found


def to_timestamp(
    cluster: ClusterClient, places: Sequence[Place], timestamp: int
) -> tuple[dict[Place, int], list[Place]]:
    """Returns each partition's first offset at or after a time, or the partition's end if it has no
    such record. Also returns the partitions without such a record."""
    found = offsets.required(cluster, dict.fromkeys(places, timestamp))
    late = [place for place in places if found[place] < 0]
    return found | offsets.required(cluster, dict.fromkeys(late, LATEST)), late


def to_end(cluster: ClusterClient, places: Sequence[Place], which: int) -> dict[Place, int]:
    """Each partition's first offset (EARLIEST) or its end offset (LATEST)."""
    return offsets.required(cluster, dict.fromkeys(places, which))


def to_committed(
    cluster: ClusterClient, places: Sequence[Place], committed: Mapping[Place, tuple[int, int]]
) -> dict[Place, int]:
    """The committed offsets; for partitions without a committed offset, their end offsets."""
    missing = [place for place in places if place not in committed]
    last = offsets.required(cluster, dict.fromkeys(missing, LATEST))
    return {
        place: committed[place][0] if place in committed else last[place] for place in places
    }
