"""Converts the log directories of a stopped standalone broker to those of a cluster member, for
`ottla cluster create`.

`meta.properties` says who may use a directory. Each of its states begins only after the previous
state is durable in all directories. These are the states, in their order:

    standalone  no `ottla.metadata`                             a standalone start is possible
    unfinished  `ottla.metadata=zookeeper`, `ottla.unfinished`  no start is possible
    member      `ottla.metadata=zookeeper`                      a start in the cluster is possible

ZooKeeper gets the metadata while the directories are unfinished. So two brokers can never continue
from the same metadata, one standalone and one in the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.log.files import checkpoints, closed_logs
from ottla.log.files.checkpoints import Partition
from ottla.log.files.disk import Disk
from ottla.log.storage import known_directories
from ottla.log.storage.log_directory import (
    IN_ZOOKEEPER,
    META,
    MODE,
    UNFINISHED,
    LogDirectory,
    StorageRefused,
)
from ottla.log.storage.reserve import RESERVE

ASIDE = "ottla-standalone-metadata"
"""The new name of a standalone broker's metadata log. A start ignores it: it is not the name of a
partition, an unfinished deletion or a stray directory."""


def open_stopped(disk: Disk, paths: Sequence[str]) -> list[LogDirectory]:
    """Lock all log directories of a broker that was stopped cleanly; nothing in them is changed.

    Raises StorageRefused if a broker uses them, if its last stop was not clean, if some are
    missing, or if `begun` refuses them; OSError if one cannot be read.
    """
    opened: list[LogDirectory] = []
    try:
        for path in paths:
            if not disk.exists(f"{path}/{META}"):
                raise StorageRefused(f"{path} has no {META}, so no broker has used this directory")
            opened.append(LogDirectory(disk, path))
        _check_complete(disk, opened)
        if not is_finished(opened):
            begun(opened)
        for directory in opened:
            if not directory.clean:
                raise StorageRefused(
                    f"the broker on {directory.path} was not stopped cleanly: start it once more"
                    " with its present settings, so that it recovers its logs, and stop it with"
                    " SIGTERM"
                )
    except BaseException:
        close_all(opened)
        raise
    return opened


def close_all(directories: Sequence[LogDirectory]) -> None:
    """Release the locks."""
    for directory in directories:
        directory.close()


def _check_complete(disk: Disk, opened: Sequence[LogDirectory]) -> None:
    first = opened[0].known_ids()
    node = first.get("node.id") or first.get("broker.id", "")
    for directory in opened:
        known = directory.known_ids()
        directory.expect(known, "node.id", node)
        directory.expect(known, "cluster.id", first["cluster.id"])
        directory.directory_id = known.get("directory.id", "")
        if not directory.directory_id:
            raise StorageRefused(
                f"{META} in {directory.path} has no directory.id. Start the broker, which adds the"
                " id, then stop it")
    here = {directory.directory_id for directory in opened}
    for each, path in known_directories.remembered(disk, opened).items():
        if each not in here:
            raise StorageRefused(
                f"the broker's log directory {path} (directory.id={each}) is missing")


def is_finished(directories: Sequence[LogDirectory]) -> bool:
    """Whether an earlier `cluster create` has converted all these directories. One of them then has
    the metadata log that was put aside."""
    known = [directory.known_ids() for directory in directories]
    return any(ASIDE in each.names for each in directories) and all(
        each.get(MODE) == IN_ZOOKEEPER and UNFINISHED not in each for each in known
    )


def begun(directories: Sequence[LogDirectory]) -> str | None:
    """The ZooKeeper of an interrupted `cluster create`; None if none has begun.

    Raises StorageRefused if the directories belong to a member already, or to different brokers.
    """
    known = [directory.known_ids() for directory in directories]
    members = [each.get(MODE) == IN_ZOOKEEPER and UNFINISHED not in each for each in known]
    if all(members):
        raise StorageRefused(
            f"{directories[0].path} belongs to a broker of a cluster already: set"
            " zookeeper.connect and start the broker"
        )
    unfinished = {each[UNFINISHED] for each in known if UNFINISHED in each}
    if len(unfinished) > 1 or (any(members) and not unfinished):
        raise StorageRefused(
            "the log directories belong to different brokers: "
            + ", ".join(directory.path for directory in directories)
        )
    return next(iter(unfinished), None)


def begin(directories: Sequence[LogDirectory], zookeeper: str) -> None:
    """Marks the directories as unfinished: no broker can start on them. Raises OSError."""
    for directory in directories:
        known = directory.known_ids()
        _write(directory, {**known, MODE: IN_ZOOKEEPER, UNFINISHED: zookeeper})


def take_back(directories: Sequence[LogDirectory]) -> None:
    """Gives the directories back to the standalone broker. ZooKeeper must not have the broker's
    metadata, now or later. Raises OSError."""
    for directory in directories:
        known = directory.known_ids()
        _write(directory, {k: v for k, v in known.items() if k not in (MODE, UNFINISHED)})


def finish(directories: Sequence[LogDirectory]) -> None:
    """Marks the directories as a member's: a broker of the cluster can start on them. Raises
    OSError."""
    for directory in directories:
        known = directory.known_ids()
        _write(directory, {key: value for key, value in known.items() if key != UNFINISHED})


def _write(directory: LogDirectory, properties: Mapping[str, str]) -> None:
    data = checkpoints.encode_properties(properties)
    path = directory.file(META)
    if directory.disk.read_bytes(path) != data:
        directory.disk.write_atomically(path, data)


def put_aside(directory: LogDirectory, metadata: Partition) -> None:
    """Rename the former metadata log in this directory, if it has one. Raises OSError."""
    disk, name = directory.disk, f"{metadata[0]}-{metadata[1]}"
    if name in directory.names:
        disk.rename(directory.file(name), directory.file(ASIDE))
        disk.sync_directory(directory.path)
    # The entry of a renamed log would be reported as a log that has disappeared.
    directory.forget(metadata)
    closed = closed_logs.encode(directory.closed)
    disk.write_atomically(directory.file(closed_logs.CLOSED_LOGS), closed)
    if disk.exists(directory.file(RESERVE)):
        disk.unlink(directory.file(RESERVE))        # ZooKeeper has the metadata now
