"""Chooses new brokers for the replicas of brokers that retire. No other replica moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.client.errors import ClientError
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from ottla.tools.admin.offsets import Place

Assignment = Mapping["Place", Sequence[int]]


def moved_off(
    assigned: Assignment, racks: Mapping[int, str | None], leaving: Collection[int]
) -> dict[Place, list[int]]:
    """The partitions with a replica on a `leaving` broker, each with its new replicas.

    `racks` has the racks of all live brokers. A new replica takes the replaced replica's position
    in the list of replicas. Only brokers in the racks with the fewest replicas of the partition are
    considered. The replica in the first position is the preferred leader: the broker that is
    preferred leader of the fewest partitions gets it. The broker with the fewest replicas gets a
    replica in any other position. Raises ClientError if too few brokers remain.
    """
    staying = {node: rack for node, rack in racks.items() if node not in leaving}
    replicas = Counter(node for nodes in assigned.values() for node in nodes)
    preferred = Counter(nodes[0] for nodes in assigned.values())
    plan = {}
    for place, before in sorted(assigned.items()):
        after = list(before)
        for at, node in enumerate(before):
            if node not in leaving:
                continue
            free = staying.keys() - {*after}
            if not free:
                raise ClientError(
                    f"{place[0]}:{place[1]} has {counted(len(before), 'replica')},"
                    " too many for the remaining brokers:"
                    f" {','.join(map(str, sorted(staying))) or 'none'}"
                )
            kept = [each for each in after if each not in leaving]
            used = Counter(racks.get(each) for each in kept)
            after[at] = min(free, key=lambda each: (
                used[racks[each]], preferred[each] if at == 0 else 0, replicas[each], each,
            ))
            replicas[after[at]] += 1
        if after != before:
            preferred[after[0]] += after[0] != before[0]
            plan[place] = after
    return plan
