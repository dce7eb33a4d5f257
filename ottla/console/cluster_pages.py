"""Overview, brokers, topics: what these pages show, made of a picture of the cluster."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ottla.console.broker_reports import read_all
from ottla.console.picture import Memory, Picture, attempt
from ottla.tools.admin import configs, partitions
from ottla.tools.admin.topics import Topic, leaders, names
from ottla.tools.admin.transactions import producers
from ottla.tools.admin.uuids import show_uuid

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster

Row = dict[str, Any]
FULL_SHARE = 0.9
PROBLEMS_MAX = 100


def overview(
    picture: Picture, reports: dict[int, Row], groups: list[Row], notes: list[str]
) -> Row:
    """The cluster on one page."""
    users = [topic for topic in picture.topics if not topic.internal]
    return {
        "cluster": picture.cluster_id,
        "controller": picture.controller,
        "brokers": broker_rows(picture, reports),
        "topics": len(users),
        "internal_topics": len(picture.topics) - len(users),
        "partitions": sum(len(topic.partitions) for topic in picture.topics),
        "records": sum(picture.ends.values()) - sum(picture.starts.values()),
        "bytes": sum(picture.sizes.values()) if picture.directories else None,
        "bytes_of_replicas": picture.shown_bytes or None,
        "records_per_second": round(sum(picture.rates.values()), 1),
        "groups": len(groups),
        "lag": sum(one["lag"] or 0 for one in groups),
        "problems": problems(picture, groups),
        "notes": sorted({*picture.notes, *notes}),
    }


def broker_rows(picture: Picture, reports: dict[int, Row]) -> list[Row]:
    """A row for each broker."""
    led = Counter(part.leader for topic in picture.topics for part in topic.partitions)
    replicas = Counter(
        broker for topic in picture.topics for part in topic.partitions for broker in part.replicas
    )
    rows = []
    for one in picture.brokers:
        mine = [each for each in picture.directories if each.broker == one.broker_id]
        report = reports.get(one.broker_id, {})
        rows.append({
            "broker": one.broker_id,
            "address": f"{one.host}:{one.port}",
            "rack": one.rack,
            "controller": one.broker_id == picture.controller,
            "state": "fenced" if one.broker_id in picture.fenced else "up",
            "leaders": led[one.broker_id],
            "replicas": replicas[one.broker_id],
            "bytes": sum(each.size for each in mine) if mine else None,
            "free_bytes": min((each.usable for each in mine if each.usable is not None),
                              default=None),
            "version": report.get("version"),
            "uptime_seconds": report.get("uptime_seconds"),
            "connections": report.get("connections"),
        })
    return rows


def problems(picture: Picture, groups: list[Row]) -> list[Row]:
    """What is unhealthy, and why; the worst first."""
    found = [
        problem("critical", f"broker/{one}", f"Broker {one} is fenced: it leads no partition.")
        for one in sorted(picture.fenced)
    ]
    missing = {
        replica for topic in picture.topics for part in topic.partitions
        for replica in part.replicas
    } - {one.broker_id for one in picture.brokers}
    found += [
        problem("critical", f"broker/{one}",
                f"Broker {one} has replicas but is not in the cluster.")
        for one in sorted(missing)
    ]
    for topic in picture.topics:
        found += topic_problems(topic)
    found += disk_problems(picture)
    found += [
        problem("warning", f"group/{one['group']}",
                f"Group {one['group']} has no members and is {one['lag']} records behind.")
        for one in groups if one["state"] == "Empty" and one["lag"]
    ]
    found.sort(key=lambda one: one["severity"] != "critical")
    return found[:PROBLEMS_MAX]


def topic_problems(topic: Topic) -> list[Row]:
    """Partitions without a leader, and replicas that are not in sync."""
    leaderless = [part.index for part in topic.partitions if part.leader < 0]
    behind = {
        part.index: sorted(set(part.replicas) - set(part.isr)) for part in topic.partitions
        if part.leader >= 0 and set(part.replicas) - set(part.isr)
    }
    found = []
    if leaderless:
        found.append(problem(
            "critical", f"topic/{topic.name}",
            f"{topic.name}: {plural(len(leaderless), 'partition has', 'partitions have')} no "
            f"leader ({listed(leaderless)}). Nobody reads or writes them."))
    if behind:
        brokers = sorted({one for away in behind.values() for one in away})
        found.append(problem(
            "warning", f"topic/{topic.name}",
            f"{topic.name}: {plural(len(behind), 'partition has', 'partitions have')} replicas "
            f"that are not in sync ({listed(list(behind))}), on broker {listed(brokers)}."))
    return found


def disk_problems(picture: Picture) -> list[Row]:
    """Log directories that are offline or nearly full."""
    found = []
    for one in picture.directories:
        where = f"broker/{one.broker}"
        if one.error:
            found.append(problem("critical", where, f"Broker {one.broker}: log directory "
                                 f"{one.path} is offline."))
        elif one.total and one.usable is not None and one.usable < one.total * (1 - FULL_SHARE):
            share = round(100 * (1 - one.usable / one.total))
            found.append(problem("warning", where, f"Broker {one.broker}: the disk of log "
                                 f"directory {one.path} is {share} % full."))
    return found


def problem(severity: str, what: str, why: str) -> Row:
    """A row of the overview's list."""
    return {"id": f"{what}: {why}", "severity": severity, "what": what, "why": why}


def plural(count: int, one: str, many: str) -> str:
    """A number with its noun."""
    return f"{count} {one if count == 1 else many}"


def listed(numbers: list[int]) -> str:
    """The first of some numbers."""
    return ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")


def topic_rows(picture: Picture, lags: dict[str, tuple[str, int]]) -> list[Row]:
    """A row for each topic. `lags` has the slowest group of each topic, and its lag."""
    starts, ends, sizes = picture.starts, picture.ends, picture.sizes
    rows = []
    for topic in picture.topics:
        places = [(topic.name, part.index) for part in topic.partitions]
        rows.append({
            "topic": topic.name,
            "internal": topic.internal,
            "partitions": len(topic.partitions),
            "replicas": max((len(part.replicas) for part in topic.partitions), default=0),
            "out_of_sync": sum(len(part.isr) < len(part.replicas) for part in topic.partitions),
            "leaderless": sum(part.leader < 0 for part in topic.partitions),
            "records": sum(ends[one] - starts.get(one, ends[one]) for one in places if one in ends),
            "bytes": sum(sizes.get(one, 0) for one in places) if picture.directories else None,
            "records_per_second": picture.rates.get(topic.name, 0.0),
            "lag": lags[topic.name][1] if topic.name in lags else None,
            "slowest_group": lags[topic.name][0] if topic.name in lags else None,
        })
    return rows


def topic_page(
    picture: Picture, name: str, groups: list[Row], lags: dict[str, tuple[str, int]]
) -> Row | None:
    """One topic with its partitions; None if there is no such topic."""
    topic = next((one for one in picture.topics if one.name == name), None)
    if topic is None:
        return None
    [row] = topic_rows(Picture(**{**picture.__dict__, "topics": [topic]}), lags)
    return row | {
        "id": show_uuid(topic.id),
        "groups": groups,
        "problems": topic_problems(topic),
        "rows": [
            {
                "partition": part.index,
                "leader": part.leader,
                "leader_epoch": part.leader_epoch,
                "replicas": part.replicas,
                "isr": part.isr,
                "offline": part.offline,
                "preferred": bool(part.replicas) and part.leader == part.replicas[0],
                "start": picture.starts.get((name, part.index)),
                "end": picture.ends.get((name, part.index)),
                "bytes": picture.sizes.get((name, part.index)),
            }
            for part in topic.partitions
        ],
    }


def setting_rows(cluster: Cluster, memory: Memory, kind: int, name: str) -> list[Row]:
    """The settings of a topic, a broker or a group, with where each comes from."""
    documented = cluster.supports(32, 3)
    found = configs.describe(cluster, kind, name, documentation=documented)
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
        for one in found
    ]


def default_of(setting: Any) -> str | None:
    """The value that a setting would have without the one that is set."""
    others = [each for each in setting.synonyms or [] if each.source != setting.config_source]
    return others[0].value if others and not setting.is_sensitive else None


def producer_rows(cluster: Cluster, memory: Memory, name: str) -> list[Row]:
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


def directory_rows(picture: Picture) -> list[Row]:
    """The log directories of all brokers."""
    return [{"id": f"{one.broker}:{one.path}", **one.__dict__} for one in picture.directories]


def reassignment_rows(cluster: Cluster, memory: Memory) -> list[Row]:
    """Partitions that are being moved, with how many bytes the new replicas have."""
    moving = partitions.reassignments(cluster)
    sizes: dict[tuple[str, int, int], int] = {}
    if moving:
        there: list[partitions.Replica] = []
        for one in attempt([], "", lambda: partitions.replicas(cluster, moving), there):
            sizes[one.topic, one.partition, one.broker] = one.size
    rows = []
    for (topic, index), move in sorted(moving.items()):
        whole = max((sizes.get((topic, index, one), 0) for one in move.replicas), default=0)
        copied = [sizes.get((topic, index, one), 0) for one in move.adding]
        rows.append({
            "id": f"{topic}-{index}", "topic": topic, "partition": index,
            "replicas": move.replicas, "adding": move.adding, "removing": move.removing,
            "bytes": whole * len(copied), "bytes_copied": sum(copied),
        })
    return rows


def connection_rows(cluster: Cluster, memory: Memory) -> list[Row]:
    """The connections of all brokers that report them, with the topics that the user may see."""
    found = read_all(cluster, memory, "/api/v1/connections")
    shown = set(names(cluster)) if found else set()
    return [
        {
            "id": f"{broker}/{one['listener']}/{one['peer']}", "broker": broker, **one,
            **{field: [topic for topic in one.get(field, ()) if topic in shown]
               for field in ("produces_to", "fetches_from")},
        }
        for broker, connections in found.items() for one in connections
    ]


def client_metric_rows(cluster: Cluster, memory: Memory) -> list[Row]:
    """The clients of all brokers that push metrics (KIP-714)."""
    return [
        {"id": f"{broker}/{one.get('client_instance_id')}", "broker": broker, **one}
        for broker, found in read_all(cluster, memory, "/api/v1/telemetry").items()
        for one in found
    ]


def status_reports(cluster: Cluster, memory: Memory) -> dict[int, Row]:
    """The state that each broker reports."""
    return read_all(cluster, memory, "/api/v1/status")
