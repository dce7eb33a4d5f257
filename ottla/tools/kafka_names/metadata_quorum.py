"""kafka-metadata-quorum: the tables of Apache Kafka's MetadataQuorumCommand."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ottla.client.addresses import show_address
from ottla.tools.admin import cluster as admin
from ottla.tools.admin.uuids import show_uuid, uuid_of
from ottla.tools.kafka_names.common import connect
from ottla.tools.kafka_names.grammar import Options, UsageError, sub_command
from ottla.tools.kafka_names.java import pretty_table
from ottla.tools.kafka_names.main import Failed

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient


def run(options: Options) -> int:
    """Runs the sub-command that was given."""
    if not options.has("bootstrap-server") and not options.has("bootstrap-controller"):
        raise UsageError("one of --bootstrap-server and --bootstrap-controller is needed")
    name = sub_command(options, ("describe", "add-controller", "remove-controller"))
    if name == "describe":
        kinds = [one for one in ("status", "replication") if options.has(one)]
        if not kinds:
            raise Failed(
                "One of --status or --replication must be specified with describe sub-command"
            )
        if len(kinds) > 1:
            raise Failed(
                "Only one of --status or --replication should be specified with describe "
                "sub-command"
            )
    if name == "add-controller":
        raise Failed(
            "add-controller adds Apache Kafka's controllers, and works only in Apache Kafka's own "
            "tool. Ottla's brokers join their cluster without it"
        )
    with connect(options) as cluster:
        if name == "remove-controller":
            options.needs("controller-id", "controller-directory-id")
            remove(options, cluster)
        elif options.has("status"):
            status(cluster)
        else:
            replication(cluster, human=options.has("human-readable"))
    return 0


def remove(options: Options, cluster: ClusterClient) -> None:
    voter = options.number("controller-id", -1)
    directory = options.one("controller-directory-id")
    if not options.has("dry-run"):
        admin.remove_voter(cluster, voter, uuid_of(directory))
    doing = "DRY RUN of removing" if options.has("dry-run") else "Removed"
    print(f"{doing}  KRaft controller {voter} with directory id {directory}")   # Kafka's two spaces


def replication(cluster: ClusterClient, *, human: bool) -> None:
    part, _ = admin.quorum(cluster)
    leader = next(one for one in part.current_voters if one.replica_id == part.leader_id)
    rows = [row(leader, leader, "Leader", human)]
    rows += [
        row(one, leader, "Follower", human) for one in part.current_voters if one is not leader
    ]
    rows += [row(one, leader, "Observer", human) for one in part.observers]
    print(
        pretty_table(
            (
                "NodeId",
                "DirectoryId",
                "LogEndOffset",
                "Lag",
                "LastFetchTimestamp",
                "LastCaughtUpTimestamp",
                "Status",
            ),
            rows,
        )
    )


def row(one: Any, leader: Any, status_name: str, human: bool) -> tuple[object, ...]:
    """One replica of the metadata log."""
    return (
        one.replica_id,
        show_uuid(one.replica_directory_id),
        one.log_end_offset,
        max(leader.log_end_offset - one.log_end_offset, 0),
        moment(one.last_fetch_timestamp, human),
        moment(one.last_caught_up_timestamp, human),
        status_name,
    )


def moment(timestamp: int, human: bool) -> str:
    """A timestamp, or its age."""
    if not human:
        return str(timestamp)
    return f"{int(time.time() * 1000) - timestamp} ms ago" if timestamp >= 0 else "unknown"


def status(cluster: ClusterClient) -> None:
    part, nodes = admin.quorum(cluster)
    described = admin.brokers(cluster)
    leader = next(one for one in part.current_voters if one.replica_id == part.leader_id)
    others = [one for one in part.current_voters if one is not leader] + list(part.observers)
    slowest = min(others, key=lambda one: one.log_end_offset, default=leader)
    behind = (
        max(0, leader.last_caught_up_timestamp - slowest.last_caught_up_timestamp)
        if slowest.last_caught_up_timestamp >= 0
        else -1
    )
    endpoints = {
        node.node_id: [
            f"{item.name}://{show_address((item.host, item.port))}" for item in node.listeners
        ]
        for node in nodes
    }
    for name, value in (
        ("ClusterId", described.cluster_id),
        ("LeaderId", part.leader_id),
        ("LeaderEpoch", part.leader_epoch),
        ("HighWatermark", part.high_watermark),
        ("MaxFollowerLag", max(leader.log_end_offset - slowest.log_end_offset, 0)),
        ("MaxFollowerLagTimeMs", behind),
        ("CurrentVoters", replicas(part.current_voters, endpoints)),
        ("CurrentObservers", replicas(part.observers, endpoints)),
    ):
        print(f"{name + ':':<24}{value}")


def replicas(found: list[Any], endpoints: dict[int, list[str]]) -> str:
    """Replicas as JSON-like text."""
    parts = []
    for one in found:
        text = f'{{"id": {one.replica_id}, "directoryId": "{show_uuid(one.replica_directory_id)}"'
        if one.replica_id in endpoints:
            listed = ", ".join(f'"{item}"' for item in endpoints[one.replica_id])
            text += f', "endpoints": [{listed}]'
        parts.append(text + "}")
    return "[" + ", ".join(parts) + "]"
