"""`ottla cluster accept-backup`: lets the brokers of a cluster continue with a restored ZooKeeper.

In each log directory, a file names the last entry of the metadata log that the broker has read. The
broker refuses a ZooKeeper without this entry. This command removes the file while the broker is
stopped.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ottla.broker.cluster.metadata_checkpoint import MARK, mark_in, remove_mark
from ottla.broker.settings.config import BrokerConfig
from ottla.broker.settings.declaration import SettingsError
from ottla.client.command_line import INT32_MOST, is_number
from ottla.client.errors import ClientError, reason_of
from ottla.log.files.checkpoints import decode_properties
from ottla.log.files.disk import Disk
from ottla.log.storage.log_directory import IN_ZOOKEEPER, META, MODE
from ottla.tools.check_directory import DirectoryLocked, held, held_directories
from ottla.tools.cli.output import confirm, done, show
from ottla.wire.wording import counted


@dataclass(frozen=True, slots=True)
class Directory:
    """A log directory of a cluster's broker."""

    path: str
    node_id: int
    cluster_id: str
    marked: bool
    """Whether the directory has the file that names the last entry."""
    entry: int | None
    """The entry that the file names; None if there is no file, or the file is damaged."""


def accept(options: Namespace) -> None:
    disk = Disk()
    paths = [path for place in options.place for path in log_directories(Path(place))]
    with ExitStack() as locks:
        found = []
        for path in dict.fromkeys(paths):
            owner_of(path)
            try:
                locks.enter_context(held(str(path)))
            except DirectoryLocked as locked:
                raise ClientError(f"{locked}. Stop that broker first") from locked
            found.append(read_directory(disk, path))
        clusters = sorted({each.cluster_id for each in found})
        if len(clusters) > 1:
            raise ClientError(
                f"these directories belong to different clusters, {' and '.join(clusters)}: name"
                " the directories of one cluster"
            )
        show(options, ("directory", "broker", "entry"), (
            {
                "directory": each.path, "broker": each.node_id, "entry": each.entry,
                "cluster": each.cluster_id,
            }
            for each in found
        ), ("cluster",))
        marked = [each for each in found if each.marked]
        if not marked:
            print(f"nothing to do: none of these directories has the file {MARK}", file=sys.stderr)
            return
        confirm(
            options, "discarding the cluster's changes since the backup of its ZooKeeper",
            clusters[0],
        )
        if not options.dry_run:
            for each in marked:
                remove_mark(disk, each.path)
    where = counted(len(marked), "log directory", "log directories")
    done(options, f"removed {MARK} from {where}: from their"
                  " next start on, the brokers use the metadata in ZooKeeper")


def log_directories(place: Path) -> list[Path]:
    """The log directories that `place` stands for: `place` itself if it is a directory. Otherwise
    `place` is a broker's property file, which names them."""
    if place.is_dir():
        return [place]
    try:
        return BrokerConfig.load(place).log_directories()
    except SettingsError as error:
        raise ClientError(f"{place}: {error}") from error
    except OSError as error:
        raise ClientError(reason_of(error)) from error


def owner_of(path: Path) -> tuple[str, str]:
    """The node id and the cluster id of a directory. Raises ClientError if it is not a
    log directory of a cluster's member."""
    if not (path / META).exists():
        inside = held_directories(str(path))
        raise ClientError(
            f"{path} has no {META}: it is not a log directory of a broker"
            + (f", but {inside}" if inside else
               ". Name the log directories of the cluster's brokers"))
    try:
        known = decode_properties((path / META).read_bytes())
    except UnicodeDecodeError:
        known = {}
    node_id, cluster_id = known.get("node.id") or known.get("broker.id"), known.get("cluster.id")
    if not cluster_id or not node_id or not is_number(node_id, INT32_MOST):
        raise ClientError(
            f"{path / META} is damaged: it must contain version=1, node.id and cluster.id. Restore"
            " it from a backup. Or copy this file from another log directory of the broker, and"
            " delete the line directory.id in the copy"
        )
    if known.get(MODE) != IN_ZOOKEEPER:
        raise ClientError(
            f"{path} belongs to a standalone broker, whose metadata are not in ZooKeeper: a backup"
            " of ZooKeeper does not concern it"
        )
    return node_id, cluster_id


def read_directory(disk: Disk, path: Path) -> Directory:
    """The content of a directory whose lock is held."""
    node_id, cluster_id = owner_of(path)
    marked = (path / MARK).exists()
    mark = mark_in(disk, str(path)) if marked else None
    entry = mark.entry if mark is not None else None
    return Directory(str(path), int(node_id), cluster_id, marked, entry)
