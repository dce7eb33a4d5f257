"""What a broker's log directories show of its last run. This decides how far its replicas are
trusted.

A log directory took part in the last run if the broker's registration has the directory's id, or if
the directory has a record of that run. A directory that was missing in that run is named in the
records of the other directories. Any other directory is a *stranger*: its contents are outdated.
For example, a broker's only disk was not mounted during the last run, which used an empty directory
instead. If the disk is mounted again, its log directory is a stranger.

The logs of a directory that is missing now are neither lost nor outdated: they are reported as
offline, and are used again once the directory is back.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ottla.log.files.disk import Disk
from ottla.log.storage import run_record
from ottla.replication.metadata import BrokerImage, Held
from ottla.replication.registration import can_list
from ottla.wire.wording import counted

log = logging.getLogger("ottla.member")


@dataclass(frozen=True, slots=True)
class FoundLogs:
    """What a start has found. `directories`: the paths of the log directories by id. `away`: the
    ids of known directories that could not be opened. `missing`: the partitions without a log in
    any directory. `homes`: the directory of each partition that has a log. `damaged`: for each
    partition whose log was cut off at damage or is gone, whether the missing records were once
    durable. `offline`: the partitions that are offline in the image, which does not trust their
    logs. `held`: the next producer id and leader epoch after those in the logs, if the broker
    adopts a backup."""

    directories: Mapping[str, str]
    away: Collection[str] = ()
    missing: Collection[str] = ()
    homes: Mapping[str, str] = field(default_factory=dict)
    damaged: Mapping[str, bool] = field(default_factory=dict)
    offline: Collection[str] = ()
    held: Held | None = None

    def trusts_in(self, path: str) -> bool:
        """Whether the image trusts a log in this directory."""
        return any(home == path and name not in self.offline for name, home in self.homes.items())


@dataclass(frozen=True, slots=True)
class LastRun:
    """How the last run ended, which logs are lost, and which directories are missing now but not
    outdated."""

    stop: str = run_record.CLEAN
    lost: tuple[str, ...] = ()
    away: tuple[str, ...] = ()


def judge(disk: Disk, logs: FoundLogs, known: BrokerImage | None, adopts: bool) -> LastRun:
    """Judge the logs by the last registration, `known`. With `adopts`, `known` may be older than
    the directories, since ZooKeeper was restored: then all logs are doubtful, and no directory
    counts as a stranger."""
    if known is None:
        return LastRun(away=tuple(logs.away))
    records = {each: run_record.read(disk, path) for each, path in logs.directories.items()}
    of_the_run = [each for each in records.values() if each and each.epoch == known.epoch]
    were_away = {each for record in of_the_run for each in record.away}
    renamed = {
        each for each, record in records.items()
        if each not in known.directories and record is not None and record.epoch == known.epoch
    }
    back = were_away & records.keys()
    strangers = set[str]() if adopts else records.keys() - {*known.directories} - renamed - back
    # How the last run ended is judged from the records of the directories that took part in it.
    # Strangers and directories that were missing in that run did not take part. There is one
    # exception: a directory that was missing and has no record of any run. It must have failed
    # before it was missing: a broker removes the record of a directory that fails. If that failure
    # could not be reported, the image still trusts the directory's logs. So the directory is judged
    # like one that took part in the last run and has lost its record.
    took_part = [
        record for each, record in records.items()
        if each not in strangers | back
        or (each in back and record is None and logs.trusts_in(logs.directories[each]))
    ]
    stop = run_record.stop_class(took_part, known.epoch, disk.boot_id())
    absent = {*known.directories, *were_away} - records.keys()
    if len(absent) == len(renamed):
        absent = set()          # no directory is absent: these are former ids of `renamed` ones
    gone, away = absent - {*logs.away}, absent & {*logs.away}
    lost = tuple(logs.missing) if gone else ()
    if strangers:
        paths = {logs.directories[each] for each in strangers}
        lost += tuple(name for name, path in logs.homes.items() if path in paths)
    if stop == run_record.LOST and (gone or strangers):
        stop = run_record.CLEAN                     # the logs that are not in `lost` are in order
    # A stop of the machine may have damaged the ends of logs. Such logs are doubtful, not lost.
    survived = stop in (run_record.CLEAN, run_record.CRASH)
    harmed = (name for name, permanent in logs.damaged.items() if permanent or survived)
    lost = tuple(dict.fromkeys([*lost, *harmed]))       # each log once: some are lost in two ways
    if not can_list(lost):
        stop, lost = run_record.LOST, ()
    if stop not in (run_record.CLEAN, run_record.CRASH):
        log.warning(
            "%s: no replica on this broker is trusted to be complete until it has caught up with"
            " another replica",
            run_record.SAID[stop],
        )
    if lost:
        log.warning(
            "%s missing, damaged or outdated. The affected replicas are not trusted to be"
            " complete until they have caught up with other replicas",
            counted(len(lost), "log is", "logs are"),
        )
    return LastRun(stop, lost, tuple(sorted(away)))
