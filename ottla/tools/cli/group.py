"""`ottla group …`."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from ottla.client.command_line import INT32_MOST, is_number
from ottla.client.errors import ClientError, Refused, check, no_partition
from ottla.client.similar_names import similar
from ottla.tools.admin import groups, offsets, resets, topics
from ottla.tools.admin.offsets import EARLIEST, LATEST, Place
from ottla.tools.cli.bootstrap import connect
from ottla.tools.cli.moments import milliseconds
from ottla.tools.cli.offset_text import BEGINNING, END, check_reset
from ottla.tools.cli.output import cell, confirm, done, show, table
from ottla.tools.usage import WrongUsage, check_topic_name
from ottla.wire.errors import ErrorCode
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
HIDDEN = {ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
"""The codes for groups that a user may list but not describe."""


def lag_of(cluster: ClusterClient, group: groups.Group) -> list[dict[str, Any]]:
    """A row for each partition that is assigned to a member or has a committed offset. The other
    partitions of the same topics have a row, too."""
    committed = groups.committed(cluster, group.id)
    owners = {
        (topic, index): member
        for member in group.members
        for topic, indexes in member.assigned.items()
        for index in indexes
    }
    known = {*committed, *owners}
    places = sorted(known | groups.without_commit(cluster, known))
    ends = offsets.ends(cluster, places)
    rows = []
    for place in places:
        offset = committed[place][0] if place in committed else None
        end = ends[place].known
        member = owners.get(place)
        rows.append(
            {
                "group": group.id,
                "topic": place[0],
                "partition": place[1],
                "offset": offset,
                "end": end,
                "lag": end - offset if offset is not None and end is not None else None,
                "member": member.id if member else None,
                "client": member.client_id if member else None,
                "host": member.host if member else None,
            }
        )
    return rows


def uncommitted(rows: list[dict[str, Any]]) -> int:
    """The number of partitions without a committed offset. Their lag is unknown, because
    auto.offset.reset decides where a consumer begins. Like Kafka's tool, Ottla shows "-" for
    it. The total lag omits it."""
    return sum(row["offset"] is None for row in rows)


def list_all(options: Namespace) -> None:
    with connect(options) as cluster:
        rows = []
        hidden: list[Refused] = []
        for one in groups.list_groups(cluster):
            row: dict[str, Any] = {
                "group": one.id,
                "type": one.type,
                "state": one.state,
                "protocol": one.protocol_type,
            }
            if options.output != "name":
                row |= dict.fromkeys(("lag", "uncommitted"))
            if options.output != "name" and one.type in ("classic", "consumer"):
                try:
                    found = lag_of(cluster, groups.describe(cluster, one.id))
                    total = groups.total_lag(part["lag"] for part in found)
                    row |= {"lag": total, "uncommitted": uncommitted(found)}
                except Refused as refused:
                    if refused.code == ErrorCode.GROUP_ID_NOT_FOUND:
                        continue        # the group was deleted a moment ago
                    if refused.code not in HIDDEN:
                        raise
                    hidden.append(refused)
            rows.append(row)
    show(options, ("group", "type", "state", "lag", "uncommitted"), rows, ("protocol",))
    if hidden:
        print(f"ottla group list: the lag of {counted(len(hidden), 'group')} is unknown:"
              f" {hidden[0]}", file=sys.stderr)


def describe(options: Namespace) -> None:
    with connect(options) as cluster:
        rows: list[dict[str, Any]] = []
        for name in options.group:
            group = groups.describe(cluster, name)
            if options.members:
                rows += [
                    {
                        "member": one.id,
                        "group": name,
                        "client": one.client_id,
                        "host": one.host,
                        "partitions": one.assigned,
                        "instance": one.instance_id,
                    }
                    for one in group.members
                ]
                continue
            found = lag_of(cluster, group)
            if options.output in (None, "table", "wide"):
                total = cell(groups.total_lag(row["lag"] for row in found))
                left = uncommitted(found)
                print(
                    f"group {name}: {group.state}, {group.type},"
                    f" {counted(len(group.members), 'member')}, total lag {total}"
                    + f", {counted(left, 'partition')} without a committed offset" * (left > 0)
                )
            rows += found
    columns = ["topic", "partition", "offset", "end", "lag", "client"]
    if len(options.group) > 1:
        columns.insert(0, "group")
    if options.members:
        show(options, ("member", "group", "client", "host", "partitions"), rows, ("instance",))
    elif options.output == "name":
        for place in rows:
            print(f"{place['topic']}:{place['partition']}")
    elif options.output in (None, "table") and rows:
        table(columns, rows)
    elif options.output not in (None, "table") or rows:
        show(options, columns, rows, ("member", "host"))


def similar_groups(cluster: ClusterClient, group_id: str) -> str:
    """The end of a message about a group without offsets. If the group does not exist, names
    similar groups."""
    others = {one.id for one in groups.list_surely(cluster)}
    return similar(group_id, others) if group_id not in others else ""


def chosen(
    cluster: ClusterClient, options: Namespace, committed: dict[Place, tuple[int, int]]
) -> list[Place]:
    """The partitions selected by --topic, or all partitions with a committed offset."""
    if not options.topic:
        if not committed:
            raise ClientError(f"group {options.group} has no committed offsets"
                              f"{similar_groups(cluster, options.group)}. Use --topic to name the"
                              " topics to reset")
        return sorted(committed)
    places: list[Place] = []
    for text in options.topic:
        name, colon, listed = text.partition(":")
        [topic] = topics.describe(cluster, [name])
        known = [part.index for part in topic.partitions]
        if topic.error or not known:
            check(topic.error or UNKNOWN, what=f"topic {name!r}")
        wanted = [int(part) for part in listed.split(",")] if colon else known
        if missing := [index for index in wanted if index not in known]:
            raise ClientError(no_partition(name, missing[0], len(known)))
        places += [(name, index) for index in wanted]
    return places


def planned(
    cluster: ClusterClient, to: str, places: list[Place], committed: dict[Place, tuple[int, int]],
    flag: str = "--to", warn: list[str] | None = None,
) -> dict[Place, int]:
    """The new offset of each partition, according to `to`, the value of the flag `flag`. Adds a
    line to `warn` for each offset that the partition does not have, and that is changed."""
    check_reset(to, flag)
    if to in BEGINNING:
        return resets.to_end(cluster, places, EARLIEST)
    if to in END:
        return resets.to_end(cluster, places, LATEST)
    if to.startswith(("@", "s@")):
        return resets.to_timestamp(cluster, places, milliseconds(to))[0]
    if to[0] not in "+-":
        return resets.clamp(cluster, dict.fromkeys(places, int(to)), warn)
    if missing := [place for place in places if place not in committed]:
        raise ClientError(
            f"{missing[0][0]}:{missing[0][1]} has no committed offset that {flag} {to} could shift")
    by = int(to)
    return resets.clamp(cluster, {place: committed[place][0] + by for place in places}, warn)


def check_inactive(cluster: ClusterClient, group_id: str, *, may_miss: bool = False) -> None:
    """Raises ClientError if the group, which is to be changed, has members, or if it does not exist
    and is not one that `may_miss`."""
    try:
        group = groups.describe(cluster, group_id)
    except Refused as refused:
        if refused.code != ErrorCode.GROUP_ID_NOT_FOUND or not may_miss:
            raise
        return
    if group.members:
        raise ClientError(
            f"group {group_id!r} has {counted(len(group.members), 'member')}, which must stop"
            f" first; to see them: ottla group describe {group_id} --members")


def reset(options: Namespace) -> None:
    if not options.to:
        raise WrongUsage("--to is required: give beginning, end, N, +N, -N or @TIME")
    check_reset(options.to)
    for text in options.topic:
        name, colon, listed = text.partition(":")
        if colon and not all(is_number(part, INT32_MOST) for part in listed.split(",")):
            raise WrongUsage(f"--topic {text}: expected TOPIC, or TOPIC:0,1 for some partitions")
        check_topic_name(name)
    with connect(options) as cluster:
        check_inactive(cluster, options.group, may_miss=True)      # a reset creates the group
        committed = groups.committed(cluster, options.group)
        if options.topic and not committed and (near := similar_groups(cluster, options.group)):
            print(f"group {options.group!r} does not exist yet{near}", file=sys.stderr)
        places, changed = chosen(cluster, options, committed), list[str]()
        plan = planned(cluster, options.to, places, committed, warn=changed)
        for line in changed:
            print(line, file=sys.stderr)
        left = [] if options.topic else sorted(groups.without_commit(cluster, plan))
        if left:
            named = ", ".join(f"{topic}:{index}" for topic, index in left)
            print(
                "the reset skips partitions without a committed offset of group"
                f" {options.group}: {named}. With --topic TOPIC, it resets all partitions of a"
                " topic", file=sys.stderr)
        if options.yes and not options.dry_run:
            groups.commit(cluster, options.group, plan)
    show(
        options,
        ("topic", "partition", "old", "new"),
        (
            {
                "topic": place[0],
                "partition": place[1],
                "old": committed[place][0] if place in committed else None,
                "new": offset,
            }
            for place, offset in plan.items()
        ),
    )
    hint = "" if options.yes else ": give --yes to do it"
    options.dry_run = options.dry_run or not options.yes
    done(options, f"reset group {options.group}{hint}")


def delete(options: Namespace) -> None:
    with connect(options) as cluster:
        for name in options.group:
            check_inactive(cluster, name)
        noun = "group" if len(options.group) == 1 else "groups"
        confirm(options, f"deleting {noun} {', '.join(options.group)}", options.group[0])
        for name in options.group:
            if not options.dry_run:
                groups.delete(cluster, name)
            done(options, f"deleted group {name}")
