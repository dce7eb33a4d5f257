"""`ottla cluster …` and `ottla feature …`."""

from __future__ import annotations

from argparse import Namespace

from ottla.client.command_line import INT16_MOST, is_number
from ottla.client.errors import check
from ottla.tools.admin import cluster as admin
from ottla.tools.admin import partitions
from ottla.tools.admin.uuids import show_uuid
from ottla.tools.cli.bootstrap import connect
from ottla.tools.cli.output import done, show
from ottla.tools.usage import WrongUsage
from ottla.wire.apis import APIS, ApiKey


def info(options: Namespace) -> None:
    with connect(options) as cluster:
        found = admin.brokers(cluster)
    if options.output in (None, "table", "wide"):
        print(f"cluster {found.cluster_id}, controller {found.controller_id}")
    show(
        options,
        ("broker", "host", "port", "rack"),
        (
            {
                "broker": one.broker_id,
                "host": one.host,
                "port": one.port,
                "rack": one.rack,
                "controller": one.broker_id == found.controller_id,
                "cluster": found.cluster_id,
            }
            for one in sorted(found.brokers, key=lambda one: one.broker_id)
        ),
        ("controller",),
    )


def apis(options: Namespace) -> None:
    with connect(options) as cluster:
        connection = cluster.any()
        connection.version_of(ApiKey.API_VERSIONS)
        served = connection.frames.served
    show(
        options,
        ("api", "key", "lowest", "highest"),
        (
            {
                "api": APIS[key].name if key in APIS else f"unknown-{key}",
                "key": key,
                "lowest": low,
                "highest": high,
            }
            for key, (low, high) in sorted(served.items())
        ),
    )


def dirs(options: Namespace) -> None:
    with connect(options) as cluster:
        rows = [
            {
                "directory": found.log_dir,
                "broker": broker,
                "status": partitions.directory_status(found),
                "partitions": sum(len(topic.partitions) for topic in found.topics),
                "bytes": sum(
                    part.partition_size for topic in found.topics for part in topic.partitions
                ),
                "usable": found.usable_bytes if found.usable_bytes >= 0 else None,
                "total": found.total_bytes if found.total_bytes >= 0 else None,
                "cordoned": getattr(found, "is_cordoned", False),
                "error": found.error_code or None,
            }
            for broker in cluster.live()
            for found in partitions.log_dirs(cluster, broker)
        ]
    show(
        options, ("directory", "broker", "status", "partitions", "bytes", "usable"), rows,
        ("total", "cordoned", "error"),
    )


def quorum(options: Namespace) -> None:
    with connect(options) as cluster:
        part, _ = admin.quorum(cluster)
        live = cluster.live()
    rows = []
    for role, replicas in (("voter", part.current_voters), ("observer", part.observers)):
        for one in replicas:
            known = one.log_end_offset >= 0
            rows.append(
                {
                    "node": one.replica_id,
                    "role": "leader" if one.replica_id == part.leader_id
                    else "away" if role == "observer" and one.replica_id not in live else role,
                    "offset": one.log_end_offset if known else None,
                    "lag": max(part.high_watermark - one.log_end_offset, 0) if known else None,
                    "directory": show_uuid(one.replica_directory_id),
                }
            )
    show(options, ("node", "role", "offset", "lag"), rows, ("directory",))


def features(options: Namespace) -> None:
    with connect(options) as cluster:
        _, found = admin.features(cluster)
    show(
        options,
        ("feature", "level", "lowest", "highest"),
        (
            {
                "feature": one.name,
                "level": one.finalized or 0,
                "lowest": one.lowest,
                "highest": one.highest,
            }
            for one in found
        ),
    )


def set_feature(options: Namespace) -> None:
    name, equals, level = options.feature.partition("=")
    if not equals or not is_number(level, INT16_MOST):
        raise WrongUsage(
            f"{options.feature!r}: expected NAME=LEVEL, with a level from 0 to {INT16_MOST}")
    kind = admin.SAFE_DOWNGRADE if options.downgrade else admin.UPGRADE
    with connect(options) as cluster:
        results = admin.update_feature(cluster, {name: int(level)}, kind, dry_run=options.dry_run)
        for code, message in results.values():
            check(code, message, name)
    done(options, f"set {name} to {level}")
