"""The data of the pages overview, brokers and topics, from a picture of the cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ottla.console.broker_reports import STATUS, read_all
from ottla.console.picture import Disks, Members, Memory, Offsets, Picture, attempt, records
from ottla.console.topic_columns import UNKNOWN, Topics
from ottla.console.topic_columns import Topic as TopicPlaces
from ottla.tools.admin import configs, partitions
from ottla.tools.admin.topics import leaders, names
from ottla.tools.admin.transactions import producers
from ottla.tools.admin.uuids import show_uuid
from ottla.wire.wording import counted, duration

if TYPE_CHECKING:
    from array import array

    from ottla.client.cluster import ClusterClient

Row = dict[str, Any]
Lags = dict[str, tuple[str, int]]
"""The slowest group of each topic, and its lag."""
FULL_SHARE = 0.9
PROBLEMS_MAX = 100
RESET_MS = 15 * 60_000
"""A group without members causes a note instead of a warning if its offsets were set less than this
time ago."""
SEVERITIES = ("critical", "warning", "note")
NO_ROWS: list[Row] = []


def overview(
    members: Members, picture: Picture | None, reports: dict[int, Row] | None,
    groups: list[Row] | None, notes: list[str], transactions: list[Row] | None = NO_ROWS,
    *, authorizer: bool | None = None,
) -> Row:
    """The cluster on one page. Fields that have not been read yet are null, and listed in
    `pending`."""
    topics, offsets, disks = parts_of(picture)
    users = sum(not topic.internal for topic in topics) if topics is not None else None
    theirs = sum(each.partitions for each in topics or () if not each.internal)
    sizes = disks.sizes if disks is not None and disks.directories else None
    missing = {
        "uptime_seconds": reports, "topics": topics, "internal_topics": topics,
        "partitions": topics, "internal_partitions": topics, "records": offsets,
        "records_per_second": offsets, "bytes": disks, "bytes_of_replicas": disks,
        "groups": groups, "lag": groups,
    }
    pending = [name for name, read in missing.items() if read is None]
    if None in (topics, disks, groups, transactions):
        pending.append("problems")
    return {
        "cluster": members.cluster_id,
        "controller": members.controller,
        "brokers": broker_rows(members, picture, reports or {}),
        "topics": users,
        "internal_topics": len(topics) - (users or 0) if topics is not None else None,
        "partitions": theirs if topics is not None else None,
        "internal_partitions": topics.partitions - theirs if topics is not None else None,
        "records": offsets.records if offsets is not None else None,
        "bytes": sum(sizes) - sizes.count(UNKNOWN) * UNKNOWN if sizes is not None else None,
        "bytes_of_replicas": disks.shown_bytes or None if disks is not None else None,
        "records_per_second": round(sum(offsets.rates.values()), 1)
        if offsets is not None and offsets.rates is not None else None,
        "groups": len(groups) if groups is not None else None,
        "lag": sum(one["lag"] or 0 for one in groups) if groups is not None else None,
        "problems": problems(members, picture, groups or [], transactions or []),
        "authorizer": authorizer,
        "notes": sorted({*(picture.notes if picture is not None else ()), *notes}),
        "pending": pending,
    }


def parts_of(picture: Picture | None) -> tuple[Topics | None, Offsets | None, Disks | None]:
    """The parts of a picture that have been read."""
    if picture is None:
        return None, None, None
    return picture.topics, picture.offsets, picture.disks


def broker_rows(
    members: Members, picture: Picture | None, reports: dict[int, Row]
) -> list[Row]:
    """A row for each broker."""
    topics, _, disks = parts_of(picture)
    led = topics.led() if topics is not None else None
    held = topics.held() if topics is not None else None
    rows = []
    for one in members.brokers:
        mine = [each for each in disks.directories if each.broker == one.broker_id] if disks else []
        report = reports.get(one.broker_id, {})
        rows.append({
            "broker": one.broker_id,
            "address": f"{one.host}:{one.port}",
            "rack": one.rack,
            "controller": one.broker_id == members.controller,
            "state": "fenced" if one.broker_id in members.fenced else "up",
            "leaders": led[one.broker_id] if led is not None else None,
            "replicas": held[one.broker_id] if held is not None else None,
            "bytes": sum(each.size for each in mine) if mine else None,
            "free_bytes": min((each.usable for each in mine if each.usable is not None),
                              default=None),
            "version": report.get("version"),
            "uptime_seconds": report.get("uptime_seconds"),
            "connections": report.get("connections"),
        })
    return rows


def problems(
    members: Members, picture: Picture | None, groups: list[Row], transactions: list[Row]
) -> list[Row]:
    """Problems with their reasons, the worst first."""
    topics, _, disks = parts_of(picture)
    found = [
        problem("critical", f"broker/{one}", f"Broker {one} is fenced: it leads no partition.")
        for one in sorted(members.fenced)
    ]
    if topics is not None:
        there = {one.broker_id for one in members.brokers}
        found += [
            problem("critical", f"broker/{one}",
                    f"Broker {one} has replicas but is not in the cluster.")
            for one in sorted(topics.held().keys() - there)
        ]
        found += unhealthy_topics(topics)
    if disks is not None:
        found += disk_problems(disks)
    found += [held_back(one) for one in transactions if one["held_back"]]
    found += [without_members(one) for one in groups if one["state"] == "Empty" and one["lag"]]
    found.sort(key=lambda one: SEVERITIES.index(one["severity"]))
    return found[:PROBLEMS_MAX]


def held_back(one: Row) -> Row:
    """The problem of a transaction that has been open for long and holds back records."""
    groups, places = one["groups"], one["held_partitions"]
    named = ", ".join(groups[:3]) + (", …" if len(groups) > 3 else "")
    waiting = f" {counted(len(groups), 'group has', 'groups have')} lag there: {named}."
    return problem(
        "warning", f"transaction/{one['id']}",
        f"The transaction of {one['id']} (producer id {one['producer']}) has been open for"
        f" {duration(one['age_ms'])} and holds back"
        f" {counted(one['held_back'], 'record')} of {', '.join(places[:3])}"
        f"{', …' if len(places) > 3 else ''} from consumers that read with"
        f" isolation.level=read_committed.{waiting if groups else ''} The timeout of"
        f" {duration(one['timeout_ms'])} ends the transaction.", one["started_ms"])


def without_members(one: Row) -> Row:
    """The problem of a group without members that has lag."""
    now_ms = int(time.time() * 1000)
    since, reset = one.get("empty_since_ms"), one.get("offsets_set_ms")
    long = f" for {duration(now_ms - since)}" if since is not None and now_ms > since else ""
    text = (f"Group {one['group']} has had no members{long} and is" if long else
            f"Group {one['group']} has no members and is")
    text += f" {counted(one['lag'], 'record')} behind."
    if reset is not None and reset >= (since or 0) and now_ms - reset < RESET_MS:
        return problem(
            "note", f"group/{one['group']}",
            f"{text} Its offsets were set {duration(max(0, now_ms - reset))} ago.", since)
    return problem("warning", f"group/{one['group']}", text, since)


def unhealthy_topics(topics: Topics) -> list[Row]:
    """The problems of at most PROBLEMS_MAX topics, topics without a leader first."""
    worst = [topic for topic in topics if topic.leaderless]
    worst += [topic for topic in topics if topic.out_of_sync and not topic.leaderless]
    return [one for topic in worst[:PROBLEMS_MAX] for one in topic_problems(topics, topic)]


def topic_problems(topics: Topics, topic: TopicPlaces) -> list[Row]:
    """Partitions without a leader, and replicas that are not in sync."""
    leaderless, behind = [], {}
    for index, place in enumerate(topic.places):
        away = set(topics.replicas[place]) - set(topics.isr[place])
        if topics.leaders[place] < 0:
            leaderless.append(index)
        elif away:
            behind[index] = sorted(away)
    found = []
    if leaderless:
        found.append(problem(
            "critical", f"topic/{topic.name}",
            f"{topic.name}: {counted(len(leaderless), 'partition has', 'partitions have')} no "
            f"leader ({listed(leaderless)}). Nobody can read or write them."))
    if behind:
        brokers = sorted({one for each in behind.values() for one in each})
        found.append(problem(
            "warning", f"topic/{topic.name}",
            f"{topic.name}: {counted(len(behind), 'partition has', 'partitions have')} replicas "
            f"that are not in sync ({listed(list(behind))}), on broker {listed(brokers)}."))
    return found


def disk_problems(disks: Disks) -> list[Row]:
    """Log directories that are offline or nearly full."""
    found = []
    for one in disks.directories:
        where = f"broker/{one.broker}"
        if one.error:
            found.append(problem("critical", where, f"Broker {one.broker}: log directory "
                                 f"{one.path} is offline."))
        elif one.total and one.usable is not None and one.usable < one.total * (1 - FULL_SHARE):
            share = round(100 * (1 - one.usable / one.total))
            found.append(problem("warning", where, f"Broker {one.broker}: the disk of log "
                                 f"directory {one.path} is {share} % full."))
    return found


def problem(severity: str, what: str, why: str, since_ms: int | None = None) -> Row:
    """A row of the overview's list of problems."""
    return {"id": f"{what}: {why}", "severity": severity, "what": what, "why": why,
            "since_ms": since_ms}


def listed(numbers: list[int]) -> str:
    """The first eight numbers as text."""
    return ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")


def topic_rows(picture: Picture, lags: Lags | None) -> list[Row]:
    """A row for each topic. `lags` has the slowest group of each topic, and its lag."""
    return [topic_row(picture, topic, lags) for topic in picture.topics]


def topic_row(picture: Picture, topic: TopicPlaces, lags: Lags | None) -> Row:
    """One topic; unknown fields are null."""
    offsets, disks = picture.offsets, picture.disks
    rates = offsets.rates if offsets is not None else None
    group, lag = lags.get(topic.name, (None, None)) if lags is not None else (None, None)
    replicas = picture.topics.replicas
    return {
        "topic": topic.name,
        "internal": topic.internal,
        "partitions": topic.partitions,
        "replicas": max((len(replicas[place]) for place in topic.places), default=0),
        "out_of_sync": topic.out_of_sync,
        "leaderless": topic.leaderless,
        "records": records(topic, offsets) if offsets is not None else None,
        "bytes": topic.total(disks.sizes) if disks is not None and disks.directories else None,
        "records_per_second": rates.get(topic.name, 0.0) if rates is not None else None,
        "lag": lag,
        "slowest_group": group,
    }


def pending_of(picture: Picture, lags: Lags | None) -> list[str]:
    """The fields of a topic's row that are null because they have not been read yet."""
    read = {"records": picture.offsets, "records_per_second": picture.offsets,
            "bytes": picture.disks, "lag": lags}
    return [name for name, value in read.items() if value is None]


def topic_page(
    picture: Picture, name: str, groups: list[Row], lags: Lags | None
) -> Row | None:
    """One topic with its partitions; None if there is no such topic."""
    topics, offsets, disks = picture.topics, picture.offsets, picture.disks
    topic = topics.by_name.get(name)
    if topic is None:
        return None
    return topic_row(picture, topic, lags) | {
        "id": show_uuid(topic.id),
        "groups": groups,
        "problems": topic_problems(topics, topic),
        "pending": pending_of(picture, lags),
        "rows": [
            {
                "partition": index,
                "leader": topics.leaders[place],
                "leader_epoch": topics.epochs[place],
                "replicas": topics.replicas[place],
                "isr": topics.isr[place],
                "offline": topics.offline.get(place, ()),
                "preferred": topics.leaders[place] in topics.replicas[place][:1],
                "start": figure(offsets.starts if offsets is not None else None, place),
                "end": figure(offsets.ends if offsets is not None else None, place),
                "bytes": figure(disks.sizes if disks is not None else None, place),
            }
            for index, place in enumerate(topic.places)
        ],
    }


def figure(column: array[int] | None, place: int) -> int | None:
    """A partition's figure, None if it is unknown."""
    return None if column is None or column[place] == UNKNOWN else column[place]


def setting_rows(cluster: ClusterClient, memory: Memory, kind: int, name: str) -> list[Row]:
    """The settings of a topic, a broker or a group, with their sources."""
    documented = cluster.supports(32, 3)
    settings = configs.describe(cluster, kind, name, documentation=documented)
    return [
        {
            "setting": one.name,
            "value": None if one.is_sensitive else one.value,
            "sensitive": one.is_sensitive,
            "read_only": one.read_only,
            "source": configs.SOURCES.get(one.config_source, "UNKNOWN"),
            "default": default_of(one),
            "help": getattr(one, "documentation", None),
        }
        for one in settings
    ]


def default_of(setting: Any) -> str | None:
    """The value that a setting would have after a reset."""
    others = [each for each in setting.synonyms or [] if each.source != setting.config_source]
    return others[0].value if others and not setting.is_sensitive else None


def producer_rows(cluster: ClusterClient, memory: Memory, name: str) -> list[Row]:
    """The idempotent producers that a topic's leaders remember."""
    places = [place for place, leader in leaders(cluster, [name]).items() if leader >= 0]
    return [
        {
            "id": f"{place[1]}/{one.producer_id}",
            "partition": place[1],
            "producer": one.producer_id,
            "epoch": one.producer_epoch,
            "last_sequence": one.last_sequence,
            "last_timestamp": one.last_timestamp,
            "transaction_start": one.current_txn_start_offset
            if one.current_txn_start_offset >= 0 else None,
        }
        for place, known in sorted(producers(cluster, places).items()) for one in known
    ]


def directory_rows(disks: Disks) -> list[Row]:
    """The log directories of all brokers."""
    return [{"id": f"{one.broker}:{one.path}", **one.__dict__} for one in disks.directories]


def reassignment_rows(cluster: ClusterClient, memory: Memory) -> list[Row]:
    """Partitions that are being moved. The number of bytes to copy, and the number copied so far,
    are None if no broker reports sizes."""
    moving = partitions.reassignments(cluster)
    nothing: list[partitions.Replica] = []
    moved = attempt([], "", lambda: partitions.replicas(cluster, moving), nothing) if moving else []
    sizes = {(one.topic, one.partition, one.broker): one.size for one in moved}
    rows = []
    for (topic, index), move in sorted(moving.items()):
        whole = max((sizes.get((topic, index, one), 0) for one in move.replicas), default=0)
        copied = [sizes.get((topic, index, one), 0) for one in move.adding]
        rows.append({
            "id": f"{topic}-{index}", "topic": topic, "partition": index,
            "replicas": move.replicas, "adding": move.adding, "removing": move.removing,
            "bytes": whole * len(copied) if sizes else None,
            "bytes_copied": sum(copied) if sizes else None,
        })
    return rows


def connection_rows(cluster: ClusterClient, memory: Memory) -> list[Row]:
    """The connections to all brokers that report them. The rows leave out topics that the user may
    not see."""
    reported = read_all(cluster, memory, "/api/v1/connections")
    shown = set(names(cluster)) if reported else set()
    return [
        {
            "id": f"{broker}/{one['listener']}/{one['peer']}", "broker": broker, **one,
            **{field: [topic for topic in one.get(field, ()) if topic in shown]
               for field in ("produces_to", "fetches_from")},
        }
        for broker, connections in reported.items() for one in connections
    ]


def client_metric_rows(cluster: ClusterClient, memory: Memory) -> list[Row]:
    """The clients that push metrics (KIP-714) to any broker."""
    return [
        {"id": f"{broker}/{one.get('client_instance_id')}", "broker": broker, **one}
        for broker, found in read_all(cluster, memory, "/api/v1/telemetry").items()
        for one in found
    ]


def status_reports(cluster: ClusterClient, memory: Memory) -> dict[int, Row]:
    """The state that each broker reports."""
    return read_all(cluster, memory, STATUS)
