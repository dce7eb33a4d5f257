"""The JSON of /api/v1: broker, connections, clients, groups, telemetry, audit log, transactions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla import __version__
from ottla.broker.history.open_transactions import ongoing
from ottla.broker.http.group_metrics import shards_of
from ottla.broker.threads.slices import Slices
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.history.group_history import EMPTIED, OFFSETS_SET
from ottla.wire.apis import APIS

if TYPE_CHECKING:
    from ottla.broker.http.monitor import Monitor
    from ottla.groups.group import Group

LISTED_MAX = 10_000
SAME = ("listener", "principal", "client_id", "software", "software_version")
"""The fields that all connections of one client from one host have in common."""
SUMMED = ("received_bytes_per_second", "sent_bytes_per_second")
JOINED = ("produces_to", "fetches_from")


def status(monitor: Monitor) -> dict[str, Any]:
    """The broker as one object."""
    broker, image = monitor.broker, monitor.broker.image
    directories = broker.replicas.storage.directories
    return {
        "version": __version__,
        "node_id": broker.node_id,
        "cluster_id": image.cluster_id,
        **broker.role.status(image),
        "address": monitor.address,
        "ready": True,
        "uptime_seconds": round(time.time() - monitor.started_seconds, 1),
        "topics": len(image.topics),
        "partitions": sum(1 for _ in broker.replicas),
        "offline_partitions": len(broker.replicas.offline),
        "connections": sum(len(listener.connections) for listener in monitor.listeners),
        "groups": sum(len(shard.groups) for shard in shards_of(broker)),
        "log_directories": {each.path: each.state for each in directories},
    }


def connections(monitor: Monitor) -> list[dict[str, Any]]:
    """The connections: client software, address, newest request, bytes, requests, and rates."""
    now, names = monitor.loop.time(), monitor.broker.image.names
    rows = []
    for connection in monitor.connections():
        client = connection.client
        lived = max(now - connection.opened_at, 0.001)
        key = connection.newest_key
        rates = monitor.rates.get(connection, (0.0, 0.0))
        rows.append({
            "peer": client.peer(),
            "listener": client.listener,
            "principal": client.principal,
            "client_id": client.client_id,
            "software": client.software_name,
            "software_version": client.software_version,
            "connected_seconds": round(lived, 1),
            "newest_request": APIS[key].name if key in APIS else None,
            "requests": connection.requests,
            "received_bytes": connection.received,
            "sent_bytes": connection.sent,
            "received_bytes_per_second": round(rates[0], 1),
            "sent_bytes_per_second": round(rates[1], 1),
            "produces_to": sorted(client.written or ()),
            "fetches_from": topic_names(client.read, names),
        })
        if len(rows) >= LISTED_MAX:
            break
    return rows


def topic_names(read: Mapping[str | bytes, int] | None, names: Mapping[bytes, str]) -> list[str]:
    """The names of the topics that a client reads. Newer clients send topic ids; ids of deleted
    topics are left out."""
    return sorted(
        names.get(each, "") if isinstance(each, bytes) else each
        for each in read or () if isinstance(each, str) or each in names
    )


def clients(monitor: Monitor) -> list[dict[str, Any]]:
    """The connections, grouped by client: how many, their rates and their topics."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for each in connections(monitor):
        host = each["peer"].rpartition(":")[0] or each["peer"]
        same = {"host": host, **{name: each[name] for name in SAME}}
        row = rows.setdefault((*same.values(),), {
            **same, "connections": 0, **dict.fromkeys(SUMMED, 0), **{name: [] for name in JOINED},
        })
        row["connections"] += 1
        for name in SUMMED:
            row[name] = round(row[name] + each[name], 1)
        for name in JOINED:
            row[name] = sorted({*row[name], *each[name]})
    return list(rows.values())


def groups(monitor: Monitor) -> list[dict[str, Any]]:
    """The groups with their members and their lag, in records, bytes and seconds."""
    rows: list[dict[str, Any]] = []
    for shard in shards_of(monitor.broker):
        for group_id, group in sorted(shard.groups.items()):
            lags = list(monitor.lags.of_group(shard, group_id))
            empty_since_ms, offsets_set_ms = since(monitor, group)
            rows.append({
                "group": group_id,
                "state": group.state_name,
                "members": len(group.members),
                "topics": sorted({lag.topic for lag in lags}),
                "lag": sum(lag.records for lag in lags),
                "lag_bytes": sum(lag.size for lag in lags),
                "lag_seconds": max((lag.seconds or 0.0 for lag in lags), default=0.0),
                "empty_since_ms": empty_since_ms,
                "offsets_set_ms": offsets_set_ms,
            })
            if len(rows) >= LISTED_MAX:
                return rows
    return rows


def since(monitor: Monitor, group: Group) -> tuple[int | None, int | None]:
    """Two times. The first is when the group lost its last member, if it has no members now. The
    second is when a client that is not a member last set offsets of the group. Each is None if it
    is unknown. Events before this broker became the group's coordinator are unknown, with one
    exception: a classic group's records say since when the group has had no members."""
    newest = {EMPTIED: -1, OFFSETS_SET: -1}
    for each in monitor.broker.coordinators.groups.runtime.history.events(group.group_id):
        if each.kind in newest:
            newest[each.kind] = max(each.at_ms, each.last_ms)
    empty_ms = newest[EMPTIED]
    if isinstance(group, ClassicGroup) and group.state_ms >= 0:
        empty_ms = group.state_ms
    known = empty_ms if group.is_empty else -1, newest[OFFSETS_SET]
    return known[0] if known[0] >= 0 else None, known[1] if known[1] >= 0 else None


def telemetry(monitor: Monitor) -> list[dict[str, Any]]:
    """The clients that offer their metrics (KIP-714), and the metrics that the broker requests from
    each client."""
    instances = monitor.broker.client_telemetry.instances
    if instances is None:
        return []
    now_ms = instances.now_ms()
    return [
        {
            **instance.attributes,
            "requested_metrics": list(instance.wanted.metrics),
            "push_interval_ms": instance.wanted.interval_ms,
            "pushes": instance.pushes,
            "values": len(instance.values),
            "terminating": instance.terminating,
            "seconds_since_request": round((now_ms - instance.seen_at) / 1000, 1),
        }
        for instance in instances
    ][:LISTED_MAX]


async def transactions(monitor: Monitor) -> list[dict[str, Any]]:
    """The open transactions that this broker coordinates, and their clients as far as known."""
    rows: list[dict[str, Any]] = []
    slices = Slices()
    for transactional_id, value in (await ongoing(monitor.broker, slices)).values():
        client = monitor.broker.histories.producing.of(transactional_id)
        rows.append({
            "id": transactional_id, "producer_id": value.producer_id,
            "since_ms": value.started_ms, "timeout_ms": value.timeout_ms,
            "principal": client and client.user, "client_id": client and client.client,
            "address": client and client.host.lstrip("/"),
        })
        if len(rows) >= LISTED_MAX:
            break
        if slices.over:
            await slices.pause()
    return rows


def audit(monitor: Monitor) -> list[dict[str, Any]]:
    """The newest lines of the audit log, the newest first."""
    return list(reversed(monitor.audit.rows))
