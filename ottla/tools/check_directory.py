"""Checks a log directory: its owner, its checkpoints, and every partition in it."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ottla.broker.lock_holder import holder_of
from ottla.log.files.checkpoints import (
    CLEANED,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    Partition,
    decode_offsets,
    decode_properties,
    partition_of,
)
from ottla.log.files.closed_logs import CLOSED_LOGS, ClosedLog
from ottla.log.files.names import EPOCHS, PARTITION_METADATA
from ottla.log.storage.log_directory import CLEAN_MARKER, META
from ottla.tools.check_partition import Checked, RememberedPartition, check_partition
from ottla.tools.dump_small import read_closed, read_small
from ottla.tools.findings import Finding, Report, offsets_text
from ottla.wire.wording import counted

COMPACTED = ("__consumer_offsets", "__transaction_state", "__share_group_state")
OF_PARTITION = re.compile(
    rf"\d{{20}}\..+|({re.escape(PARTITION_METADATA)}|{re.escape(EPOCHS)})(\.tmp)?")
"""The names of a partition's files. `.tmp` ends the name of a file that is not complete yet."""
CHECKPOINTS = (RECOVERY_POINTS, LOG_STARTS, CLEANED, HIGH_WATERMARKS)

LOOK_FOR_ITSELF = (
    f"delete {CLOSED_LOGS}: the next start reads the logs, and accepts them as they are"
)


class DirectoryLocked(Exception):
    """A broker uses the directory."""


@dataclass(slots=True)
class LogDirectoryCheck:
    """What the check has read from a log directory."""

    path: str
    properties: dict[str, str] = field(default_factory=dict)
    offsets: dict[str, dict[Partition, int]] = field(default_factory=dict)
    closed: dict[Partition, ClosedLog] = field(default_factory=dict)
    """Logs that the next start will not open, because the last stop saved their state."""
    partitions: dict[Partition, Checked] = field(default_factory=dict)


@contextmanager
def held(path: str) -> Iterator[None]:
    """Keeps brokers from starting on a directory during the check. Raises DirectoryLocked.

    Ottla uses flock, and Apache Kafka uses POSIX locks, so this function takes both. A directory
    without a lock file is not in use.
    """
    lock = os.path.join(path, ".lock")
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            pid = holder_of(Path(path))
            who = f"a broker (process {pid})" if pid else "a broker"
            raise DirectoryLocked(f"{path} is in use by {who}, which holds {lock}") from error
        yield
    finally:
        os.close(fd)


def partitions_in(path: str) -> dict[Partition, str]:
    """The partitions in a log directory, with the paths of their directories."""
    directories: dict[Partition, str] = {}
    for name in sorted(os.listdir(path)):
        whole = os.path.join(path, name)
        if (key := partition_of(name)) is not None and may_be_partition(whole):
            directories[key] = whole
    return directories


def may_be_partition(path: str) -> bool:
    """Whether a directory has a file of a partition, or is empty, as after a crash. The name
    proves nothing: a directory such as `broker-1` may be a log directory itself."""
    empty = True
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if OF_PARTITION.fullmatch(entry.name):
                    return True
                empty = False
    except NotADirectoryError:
        return False
    except FileNotFoundError:       # the topic has been deleted meanwhile
        return True
    return empty


def why_no_log_directory(path: str) -> str:
    """Why a directory is not a log directory; "" if it is one."""
    if os.path.exists(f"{path}/{META}"):
        return ""
    partitions = partitions_in(path)
    if inside := held_directories(path):
        return f"{path} has no {META if partitions else 'partitions'}; {inside}"
    if partitions:
        return ""
    return f"{path} has no partitions and no {META}: it is not a data directory"


def log_directories_in(path: str) -> list[str]:
    """The log directories inside a directory."""
    return sorted(
        os.path.join(path, name) for name in os.listdir(path)
        if os.path.exists(f"{path}/{name}/{META}"))


def held_directories(path: str) -> str:
    """The end of a message about a directory that holds log directories; "" if it holds none."""
    inside = log_directories_in(path)
    paths = " ".join(inside)
    return f"it holds data directories, so give their paths instead: {paths}" if inside else ""


def bytes_in(path: str) -> int:
    """The size of a partition's segments."""
    return sum(
        entry.stat().st_size for entry in os.scandir(path) if entry.name.endswith(".log")
    )


def read_directory(path: str, report: Report) -> LogDirectoryCheck:
    """Reads the small files of a log directory, and reports damaged ones."""
    found = LogDirectoryCheck(path)
    try:
        found.properties = decode_properties(read_small(f"{path}/meta.properties"))
        missing = {"cluster.id", "version"} - found.properties.keys()
        if missing or not ({"node.id", "broker.id"} & found.properties.keys()):
            raise ValueError("it must contain version, cluster.id and node.id")
    except FileNotFoundError:
        report.add(
            Finding(
                f"{path}/meta.properties", "it is missing: the directory's owner is unknown",
                "the next broker that starts on the directory becomes its owner; if the directory"
                " may belong to another broker, first restore the file from a copy",
                note=True,
            )
        )
    except (UnicodeDecodeError, ValueError) as error:
        report.add(
            Finding(
                f"{path}/meta.properties", f"it is damaged: {error}",
                "restore it from a backup; or copy this file from another log directory of the"
                " broker, and delete the line directory.id in the copy",
            )
        )
    for name in CHECKPOINTS:
        found.offsets[name] = {}
        try:
            found.offsets[name] = decode_offsets(read_small(f"{path}/{name}"))
        except FileNotFoundError:
            pass
        except ValueError as error:
            report.add(
                Finding(
                    f"{path}/{name}", f"it is damaged: {error}",
                    "delete it: the next start recovers the logs from their beginning, and each log"
                    " starts at its first segment",
                )
            )
    read_closed_logs(found, report)
    return found


def read_closed_logs(found: LogDirectoryCheck, report: Report) -> None:
    """Reads the logs' states that a clean stop saved, except those that the next start ignores."""
    path, points = f"{found.path}/{CLOSED_LOGS}", found.offsets[RECOVERY_POINTS]
    try:
        closed = read_closed(path)
    except FileNotFoundError:
        return
    except ValueError as error:
        report.add(Finding(path, f"it is damaged: {error}", LOOK_FOR_ITSELF))
        return
    if os.path.exists(f"{found.path}/{CLEAN_MARKER}"):
        found.closed = {
            key: log for key, log in closed.items() if points.get(key) == log.log_end_offset
        }


def known_of(directory: LogDirectoryCheck, key: Partition, online: bool) -> RememberedPartition:
    """The checkpoints' entries for a partition."""
    return RememberedPartition(
        directory.offsets[RECOVERY_POINTS].get(key),
        directory.offsets[LOG_STARTS].get(key),
        key in directory.offsets[CLEANED] or key[0] in COMPACTED,
        online,
        os.path.exists(f"{directory.path}/{CLEAN_MARKER}"),
    )


def check_directory(
    path: str, wanted: set[str], online: bool, deep: bool, report: Report
) -> LogDirectoryCheck:
    """Check a log directory; `wanted` names partitions, or is empty for all. Raises OSError."""
    directory = read_directory(path, report)
    for inside in log_directories_in(path):
        report.add(Finding(
            inside,
            f"it is a log directory inside the log directory {path}, and was not checked with it",
            "if a second `cp` made it, it is the newer copy: move it away, and check it there",
            note=True,
        ))
    for key, place in partitions_in(path).items():
        name = f"{key[0]}-{key[1]}"
        if (wanted and name not in wanted) or name == "__cluster_metadata-0":
            continue
        try:
            checked = check_partition(place, known_of(directory, key, online), deep, report)
        except FileNotFoundError:
            if online:
                continue            # the topic has been deleted meanwhile
            raise
        directory.partitions[key] = checked
        if not online:
            compare_checkpoints(directory, key, checked, report)
            compare_closed(directory, key, checked, report)
    for key, log in directory.closed.items():
        name = f"{key[0]}-{key[1]}"
        if log.segments and (name in wanted or not wanted) and not os.path.isdir(f"{path}/{name}"):
            segments = counted(log.segments, "segment")
            what = f"{name} was closed with {segments}, but now has no directory"
            report.add(Finding(f"{path}/{CLOSED_LOGS}", what, "restore the directory from a copy"))
    return directory


def compare_closed(
    directory: LogDirectoryCheck, key: Partition, checked: Checked, report: Report
) -> None:
    """Checks that a log is as the clean stop left it, since the next start relies on that."""
    log = directory.closed.get(key)
    if log is None or not checked.sound:
        return
    # After DeleteRecords, the log may start after the first offset of its segments.
    begins = max(log.log_start_offset, checked.start_offset)
    logged = offsets_text(log.log_start_offset, log.log_end_offset)
    recorded = f"{logged}, {log.size_bytes} bytes"
    actual = f"{offsets_text(begins, checked.end_offset)}, {checked.size} bytes"
    if recorded != actual:
        what = f"{key[0]}-{key[1]} was closed with {recorded}, but now has {actual}"
        advice = f"its files were changed later: compare with a copy, or {LOOK_FOR_ITSELF}"
        report.add(Finding(f"{directory.path}/{CLOSED_LOGS}", what, advice))


def compare_checkpoints(
    directory: LogDirectoryCheck, key: Partition, checked: Checked, report: Report
) -> None:
    """Checks that no checkpoint is beyond the end of an otherwise sound log."""
    if not checked.sound:
        return
    for name in CHECKPOINTS:
        offset = directory.offsets[name].get(key)
        if offset is None or offset <= checked.end_offset:
            continue
        end = checked.end_offset
        what = f"it has offset {offset} for {key[0]}-{key[1]}, whose log ends at offset {end}"
        advice = "the end of the log may be lost: compare with a copy"
        if name == LOG_STARTS:
            advice = "deleted records came back, or the log was lost: the next start begins the log"
            advice += f" anew at {offset}"
        report.add(Finding(f"{directory.path}/{name}", what, advice))
