"""The three tables of `kafka-consumer-groups --describe`: offsets, members, state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.addresses import show_address
from ottla.tools.admin import groups, offsets
from ottla.tools.kafka_names.common import padded

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.tools.admin.groups import Group
    from ottla.tools.admin.offsets import Place

NOTHING = "-"


def dash(value: object) -> object:
    """The value, or a dash if there is no value."""
    return NOTHING if value is None or value == "" else value


def offsets_rows(cluster: ClusterClient, group: Group) -> list[tuple[object, ...]]:
    """A row for each partition: topic, partition, leader epoch, committed offset, end offset, lag,
    member, host, client."""
    committed = groups.committed(cluster, group.id)
    owners: dict[Place, groups.Member] = {
        (topic, index): member
        for member in group.members
        for topic, indexes in member.assigned.items()
        for index in indexes
    }
    places = sorted({*committed, *owners})
    ends = offsets.ends(cluster, places)
    rows: list[tuple[object, ...]] = []
    for place in places:
        offset, epoch = committed.get(place, (None, None))
        end = ends[place].known
        lag = end - offset if end is not None and offset is not None else None
        member = owners.get(place)
        who = (member.id, member.host, member.client_id) if member else (None, None, None)
        rows.append((*place, epoch if epoch != -1 else None, offset, end, lag, *who))
    with_member = sorted((row for row in rows if row[6]), key=lambda row: str(row[6]))
    return with_member + [row for row in rows if not row[6]]


def offsets_table(rows: list[tuple[object, ...]], group_id: str, verbose: bool) -> None:
    group_width = max(15, len(group_id))
    topic_width = max([15, *(len(str(row[0])) for row in rows)])
    member_width = max([15, *(len(str(row[6])) for row in rows if row[6])])
    epoch: tuple[tuple[object, int], ...] = (("LEADER-EPOCH", 15),) if verbose else ()
    print(
        "\n"
        + padded(
            ("GROUP", group_width),
            ("TOPIC", topic_width),
            ("PARTITION", 10),
            *epoch,
            ("CURRENT-OFFSET", 15),
            ("LOG-END-OFFSET", 15),
            ("LAG", 15),
            ("CONSUMER-ID", member_width),
            ("HOST", 15),
            ("CLIENT-ID", 0),
        )
    )
    for topic, index, leader_epoch, offset, end, lag, member, host, client in rows:
        shown: tuple[tuple[object, int], ...] = ((dash(leader_epoch), 15),) if verbose else ()
        print(
            padded(
                (group_id, group_width),
                (topic, topic_width),
                (index, 10),
                *shown,
                (dash(offset), 15),
                (dash(end), 15),
                (dash(lag), 15),
                (dash(member), member_width),
                (dash(host), 15),
                (dash(client), 0),
            )
        )


def show_offsets(cluster: ClusterClient, group: Group, verbose: bool) -> None:
    rows = offsets_rows(cluster, group)
    if rows:
        offsets_table(rows, group.id, verbose)


def spread(assigned: dict[str, list[int]] | None) -> object:
    """An assignment as `topic:0,1;other:2`."""
    if not assigned:
        return NOTHING
    return ";".join(
        f"{topic}:{','.join(map(str, parts))}" for topic, parts in sorted(assigned.items())
    )


def members(group: Group, verbose: bool) -> None:
    """Prints the members of a group."""
    group_width = max(15, len(group.id))
    id_width = max([15, *(len(member.id) for member in group.members)])
    client_width = max([15, *(len(member.client_id) for member in group.members)])
    current = max([20, *(len(str(spread(member.assigned))) for member in group.members)])
    targets = [str(spread(member.target)) for member in group.members]
    target_width = max([19, *map(len, targets)])
    named = any(member.instance_id for member in group.members)
    instance_width = max([17, *(len(member.instance_id or "") for member in group.members)])
    host_width = max([15, *(len(member.host) for member in group.members)])
    instance: tuple[tuple[object, int], ...] = (
        (("GROUP-INSTANCE-ID", instance_width),) if named else ()
    )
    header: list[tuple[object, int]] = [
        ("GROUP", group_width),
        ("CONSUMER-ID", id_width),
        *instance,
        ("HOST", host_width),
        ("CLIENT-ID", client_width),
        ("#PARTITIONS", 15),
    ]
    if verbose:
        header += [
            ("CURRENT-EPOCH", 15),
            ("CURRENT-ASSIGNMENT", current),
            ("TARGET-EPOCH", 15),
            ("TARGET-ASSIGNMENT", target_width),
        ]
    print("\n" + padded(*header) + " ")
    for member, target in zip(group.members, targets, strict=True):
        static: tuple[tuple[object, int], ...] = (
            ((dash(member.instance_id), instance_width),) if named else ()
        )
        row: list[tuple[object, int]] = [
            (group.id, group_width),
            (member.id, id_width),
            *static,
            (member.host, host_width),
            (member.client_id, client_width),
            (sum(map(len, member.assigned.values())), 15),
        ]
        if verbose:
            row += [
                (dash(member.epoch), 15),
                (spread(member.assigned), current),
                (dash(group.target_epoch), 15),
                (target, target_width),
            ]
        print(padded(*row) + " ")


def state(cluster: ClusterClient, group: Group, verbose: bool) -> None:
    """Prints the state of a group, and its coordinator."""
    connection = cluster.coordinator(group.id)
    [node_id] = [one for one, address in cluster.brokers.items() if address == connection.address]
    coordinator = f"{show_address(connection.address)}  ({node_id})"
    width = max(25, len(coordinator))
    group_width = max(15, len(group.id))
    first: tuple[tuple[object, int], ...] = (
        ("GROUP", group_width),
        ("COORDINATOR (ID)", width),
        ("ASSIGNMENT-STRATEGY", 20),
        ("STATE", 20),
    )
    second: tuple[tuple[object, int], ...] = (
        (group.id, group_width),
        (coordinator, width),
        (dash(group.assignor), 20),
        (group.state, 20),
    )
    if verbose:
        first += (("GROUP-EPOCH", 15), ("TARGET-ASSIGNMENT-EPOCH", 25))
        second += ((dash(group.epoch), 15), (dash(group.target_epoch), 25))
    print("\n" + padded(*first, ("#MEMBERS", 0)))
    print(padded(*second, (len(group.members), 0)))
