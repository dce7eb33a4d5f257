"""Groups: members, assignment, lag in records, bytes and seconds; candidates for cleaning up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.client.errors import ClientError
from ottla.console.broker_reports import of_name, read_all
from ottla.console.picture import Memory
from ottla.console.sweeps import Sweep
from ottla.console.topic_columns import Topics
from ottla.tools.admin import groups, offsets, transactions
from ottla.tools.admin.offsets import Place
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

Row = dict[str, Any]
LAG_SECONDS = 2.0
"""Each call of `group_rows` reads groups' committed offsets for at most this long. The next call
begins with the groups that were not reached."""
CLEAN_UP_SECONDS = 5.0
KNOWN_TYPES = ("classic", "consumer")
EVENTS_MAX = 1_000


def group_rows(cluster: ClusterClient, memory: Memory) -> list[Row]:
    """A row for each group; lag in bytes and seconds if brokers report it."""
    listed = groups.list_groups(cluster)
    reports = reported(cluster, memory)
    sweep: Sweep[dict[Place, int]] = memory.setdefault("group offsets", Sweep())
    names = [one.id for one in listed if one.type in KNOWN_TYPES]
    kept = sweep.look(names, partial(committed_offsets, cluster), LAG_SECONDS)
    ends = ends_of(cluster, {place for known in kept.values() for place in known})
    rows = []
    for one in listed:
        report = reports.get(one.id, {})
        lags = lags_of(kept.get(one.id, {}), ends)
        read = one.id in kept
        topics = sorted({topic for topic, _ in kept.get(one.id, {})})
        # Brokers report sums over all topics of a group. Hide them unless the user sees each topic.
        whole = set(report.get("topics", ())) <= set(topics)
        rows.append({
            "group": one.id,
            "type": one.type,
            "protocol": one.protocol_type,
            "state": one.state,
            "members": report.get("members"),
            "topics": topics,
            "lag": groups.total_lag(lags.values()),
            "lag_bytes": report.get("lag_bytes") if whole else None,
            "lag_seconds": report.get("lag_seconds") if whole else None,
            "empty_since_ms": report.get("empty_since_ms"),
            "offsets_set_ms": report.get("offsets_set_ms"),
            "offset": sum(kept[one.id].values()) if read else None,
        })
    memory["group lags"] = {name: lags_of(known, ends) for name, known in kept.items()}
    return rows


def committed_offsets(cluster: ClusterClient, name: str) -> dict[Place, int]:
    """A group's offsets. Raises ClientError."""
    return {place: offset for place, (offset, _) in groups.committed(cluster, name).items()}


def slowest(memory: Memory) -> dict[str, tuple[str, int]]:
    """The group with the highest lag in each topic, and this lag in records."""
    found: dict[str, tuple[str, int]] = {}
    for group, lags in memory.get("group lags", {}).items():
        sums: dict[str, int] = defaultdict(int)
        for (topic, _), lag in lags.items():
            sums[topic] += lag
        for topic, lag in sums.items():
            if topic not in found or lag > found[topic][1]:
                found[topic] = (group, lag)
    return found


def groups_of_topic(memory: Memory, rows: Iterable[Row], topic: str) -> list[Row]:
    """The groups with offsets in a topic, and their lag there."""
    lags: dict[str, dict[Place, int]] = memory.get("group lags", {})
    return [
        {
            "group": row["group"], "state": row["state"], "members": row["members"],
            "lag": sum(lag for place, lag in lags.get(row["group"], {}).items()
                       if place[0] == topic),
        }
        for row in rows if topic in row["topics"]
    ]


def reported(cluster: ClusterClient, memory: Memory) -> dict[str, Row]:
    """The brokers' reports about the groups that they coordinate."""
    found: dict[str, Row] = {}
    for rows in read_all(cluster, memory, "/api/v1/groups").values():
        for row in rows:
            found[row["group"]] = row
    return found


def ends_of(cluster: ClusterClient, places: Iterable[Place]) -> dict[Place, int]:
    """The end offsets of the partitions whose leaders answer."""
    ends = offsets.ends(cluster, sorted(places))
    return {place: one.offset for place, one in ends.items() if not one.error}


def lags_of(committed: dict[Place, int], ends: dict[Place, int]) -> dict[Place, int]:
    """The lag of each partition whose end is known."""
    return {
        place: max(ends[place] - offset, 0) for place, offset in committed.items()
        if place in ends
    }


def group_page(cluster: ClusterClient, memory: Memory, name: str) -> Row:
    """One group: its members, and its offsets in every partition. Raises Refused."""
    group = groups.describe(cluster, name)
    committed = groups.committed(cluster, name)
    owners = {
        (topic, index): member for member in group.members
        for topic, indexes in member.assigned.items() for index in indexes
    }
    places = sorted({*committed, *owners})
    places = sorted({*places, *groups.without_commit(cluster, places)})
    ends = ends_of(cluster, places)
    reports = partition_reports(cluster, memory, name)
    details = {place: row for place, row in reports.items() if place in ends}
    # Reports about the lag cover all topics of the group: show them if the user sees each topic.
    whole = 0 < len(reports) == len(details)
    happened = seen_only(
        cluster, why(cluster, memory, "groups", name), {topic for topic, _ in ends}, whole=whole)
    rows: list[Row] = []
    for place in places:
        offset = committed[place][0] if place in committed else None
        end, owner, detail = ends.get(place), owners.get(place), details.get(place, {})
        rows.append({
            "id": f"{place[0]}-{place[1]}",
            "topic": place[0],
            "partition": place[1],
            "offset": offset,
            "end": end,
            "lag": max(end - offset, 0) if offset is not None and end is not None else None,
            "lag_bytes": detail.get("lag_bytes"),
            "lag_seconds": detail.get("lag_seconds"),
            "member": owner.id if owner else None,
            "client": owner.client_id if owner else None,
            "host": owner.host if owner else None,
        })
    return {
        "group": name,
        "type": group.type,
        "state": group.state,
        "protocol": group.protocol_type,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "coordinator": coordinator_of(cluster, name),
        "lag": groups.total_lag(row["lag"] for row in rows),
        "lag_bytes": sum(row["lag_bytes"] or 0 for row in rows) if details else None,
        "lag_seconds": max((row["lag_seconds"] or 0.0 for row in rows), default=None)
        if details else None,
        "why": happened,
        "members": [
            {
                "member": one.id, "client": one.client_id, "host": one.host.lstrip("/"),
                "instance": one.instance_id, "epoch": one.epoch, "assigned": one.assigned,
                "target": one.target,
                "lag": sum(row["lag"] or 0 for row in rows if row["member"] == one.id),
            }
            for one in group.members
        ],
        "rows": rows,
    }


def coordinator_of(cluster: ClusterClient, name: str) -> int | None:
    """The broker that coordinates a group."""
    address = cluster.coordinator(name).address
    return next((one for one, known in cluster.brokers.items() if known == address), None)


def partition_reports(cluster: ClusterClient, memory: Memory, name: str) -> dict[Place, Row]:
    """A group's lag in bytes and seconds in each partition, reported by the group's coordinator."""
    answers = read_all(cluster, memory, f"{of_name('/api/v1/groups', name)}/lag").values()
    return {(row["topic"], row["partition"]): row for rows in answers for row in rows}


def why(cluster: ClusterClient, memory: Memory, kind: str, name: str) -> Row:
    """The brokers' reports about a group or topic: what delays it now, and its events. `reported`
    is false if no broker sent a report."""
    now: list[Row] = []
    events: list[Row] = []
    path = f"{of_name(f'/api/v1/{kind}', name)}/why"
    answers = read_all(cluster, memory, path)
    for answer in answers.values():
        now += answer.get("now", [])
        events += answer.get("events", [])
        for one in answer.get("partitions", []):        # reports about groups have none
            if one["led_here"]:
                now += [{**each, "partition": one["partition"]} for each in one["now"]]
    named = {one["transactional_id"] for one in (*now, *events) if "transactional_id" in one}
    hidden = named - seen_ids(cluster, named)
    now = [without_transaction(one) if one.get("transactional_id") in hidden else one
           for one in now]
    events = [one for one in events if one.get("transactional_id") not in hidden]
    events.sort(key=lambda event: event.get("last_ms", 0), reverse=True)
    return {"now": now, "events": events[:EVENTS_MAX], "reported": bool(answers)}


def seen_ids(cluster: ClusterClient, named: set[str]) -> set[str]:
    """The transactional ids in `named` that the user may see; none if no broker answers."""
    try:
        return transactions.visible(cluster, named)
    except ClientError:
        return set()


def seen_only(cluster: ClusterClient, happened: Row, seen: set[str], *, whole: bool) -> Row:
    """The reports about a group, without those that name a topic that the user may not see. The
    user may see the topics in `seen`; this function checks other topics. If `whole` is false, the
    reports about the group's lag are also left out."""
    every = [*happened["now"], *happened["events"]]
    named = {topic for one in every for topic in topics_of(one)}
    hidden = named - seen - seen_topics(cluster, named - seen)
    return {
        **happened,
        "now": [one for one in happened["now"] if hidden.isdisjoint(topics_of(one))
                and (whole or one.get("kind") != "lag")],
        "events": [one for one in happened["events"] if hidden.isdisjoint(topics_of(one))],
    }


def topics_of(one: Row) -> set[str]:
    """The topics that a report names. A shortened list ends with "…"."""
    named = {topic for name in ("topics", "added", "removed") for topic in one.get(name) or ()}
    return named - {"…"} | ({one["topic"]} if one.get("topic") else set())


def seen_topics(cluster: ClusterClient, names: set[str]) -> set[str]:
    """The topics in `names` that the user may see. Brokers check the user's rights first, and only
    then whether the topic exists, so deleted topics can be among them."""
    passes = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        found = cluster.metadata(sorted(names)).topics if names else []
    except ClientError:
        return set()
    return {one.name for one in found if one.error_code in passes}


def without_transaction(one: Row) -> Row:
    """A report about an open transaction, without the fields that identify its producer."""
    text = f"a transaction is open since offset {one['stable_offset']}"
    place = f"{one['topic']}-{one['partition']}: " if "topic" in one else ""
    names: tuple[str, ...] = ("kind", "topic", "partition", "stable_offset")
    kept = {name: one[name] for name in names if name in one}
    return {**kept, "text": f"{place}{text}: consumers with isolation.level=read_committed wait"
                            " for its end"}


def clean_up(cluster: ClusterClient, memory: Memory) -> Row:
    """Things that may be removed, with the reason: dead groups, offsets of deleted topics, members
    without partitions; and how many groups have not been checked yet."""
    topics: Topics | None = memory.get("topics")
    existing = set(topics.by_name) if topics is not None else set()
    listed = {one.id: one for one in groups.list_groups(cluster) if one.type in KNOWN_TYPES}
    sweep: Sweep[list[Row]] = memory.setdefault("clean up", Sweep())
    found = sweep.look(
        listed, lambda name: of_group(cluster, listed[name], existing), CLEAN_UP_SECONDS)
    return {"rows": [row for name in sorted(found) for row in found[name]],
            "left": sweep.left, "of": len(listed)}


def of_group(cluster: ClusterClient, group: groups.Listed, existing: set[str]) -> list[Row]:
    """The things of one group that may be removed."""
    name = group.id
    committed = groups.committed(cluster, name)
    if not committed and group.state in ("Empty", "Dead"):
        return [candidate("group", name, None, "It has no members and no offsets.")]
    rows = [
        candidate("offsets", name, topic, f"The topic {topic} does not exist, or you may not "
                  "see it.")
        for topic in sorted({topic for topic, _ in committed} - existing)
    ]
    ends = ends_of(cluster, committed)
    if group.state == "Empty" and ends:
        starts = offsets.at(cluster, dict.fromkeys(ends, offsets.EARLIEST))
        lost = {place for place in ends if committed[place][0] < (starts[place].known or 0)}
        # The offsets of a partition whose leader is away may be valid.
        if lost and lost >= {place for place in committed if place[0] in existing}:
            rows.append(candidate(
                "group", name, None, "It has no members, and the records at its offsets have been "
                "deleted, so new members could not continue where it stopped."))
    if group.state == "Stable" and group.protocol_type == "consumer":
        described = groups.describe(cluster, name)
        assigned = {topic for one in described.members for topic in one.assigned}
        rows += [
            candidate("offsets", name, topic, "No member of the group reads this topic.")
            for topic in sorted({topic for topic, _ in committed} & existing - assigned)
            if assigned
        ]
        rows += [
            candidate("member", name, None, f"Member {one.id} ({one.host.lstrip('/')}) has no "
                      "partitions: there are more members than partitions.")
            for one in described.members if not one.assigned
        ]
    return rows


def candidate(kind: str, group: str, topic: str | None, reason: str) -> Row:
    """A row of `clean_up`."""
    return {
        "id": f"{kind}/{group}/{topic or ''}/{reason}", "kind": kind, "group": group,
        "topic": topic, "reason": reason,
    }
