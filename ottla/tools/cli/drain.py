"""`ottla cluster drain`: empties a log directory of a broker while clients continue."""

from __future__ import annotations

import time
from argparse import Namespace
from collections import Counter
from typing import TYPE_CHECKING, Any

from ottla.client.errors import ClientError
from ottla.tools.admin import configs, partitions
from ottla.tools.admin.evacuation import moved_out
from ottla.tools.cli.bootstrap import connect
from ottla.tools.cli.output import done
from ottla.tools.progress_line import ProgressLine
from ottla.wire.errors import name_of
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.tools.admin.offsets import Place

CORDONED = "cordoned.log.dirs"
LOOK_SECONDS = 0.5
TRIES_MAX = 5
"""How many times to request a move again if the broker abandons it. The broker's log has the
reasons."""


def drain(options: Namespace) -> None:
    """Cordons the directory, moves its partitions, and returns once it is empty."""
    with connect(options) as cluster:
        broker = _broker(cluster, options.broker)
        directories = {each.log_dir: each for each in partitions.log_dirs(cluster, broker)}
        path = options.directory.rstrip("/") or "/"     # a shell's completion adds a slash
        leaving = directories.get(path)
        if leaving is None:
            raise ClientError(
                f"broker {broker} has no log directory {path!r}; it has"
                f" {', '.join(sorted(directories))}"
            )
        sizes = _sizes(leaving, future=False)
        moved_out(sizes, _targets(directories, path))
        if not options.dry_run:
            _cordon(cluster, broker, path)
            _empty(cluster, broker, path, len(sizes))
    moved = counted(len(sizes), "partition")
    done(options, f"moved {moved} out of {path} of broker {broker}")


def _broker(cluster: ClusterClient, wanted: int | None) -> int:
    cluster.refresh()
    if wanted is None and len(cluster.brokers) == 1:
        return next(iter(cluster.brokers))
    if wanted is None:
        raise ClientError("--broker is required: the cluster has several brokers")
    if wanted not in cluster.brokers:
        known = ", ".join(map(str, sorted(cluster.brokers)))
        raise ClientError(f"broker {wanted} is not running; running brokers: {known}")
    return wanted


def _sizes(directory: Any, *, future: bool) -> dict[Place, int]:
    """The partitions in a directory with their sizes in bytes. With `future`, the partitions that
    are being moved to the directory."""
    return {
        (topic.name, part.partition_index): part.partition_size
        for topic in directory.topics for part in topic.partitions
        if part.is_future_key == future
    }


def _targets(directories: dict[str, Any], leaving: str) -> dict[str, int | None]:
    """The directories that accept partitions, with their free bytes. Raises ClientError."""
    if directories[leaving].error_code:
        code = name_of(directories[leaving].error_code)
        raise ClientError(
            f"{leaving} cannot be emptied: the broker reports {code} for this directory")
    found = {
        path: each.usable_bytes if each.usable_bytes >= 0 else None
        for path, each in directories.items()
        if path != leaving and not each.error_code and not each.is_cordoned
    }
    if not found:
        raise ClientError(
            f"{leaving} cannot be emptied: the broker has no other log directory that is online"
            " and not cordoned")
    return found


def _cordon(cluster: ClusterClient, broker: int, path: str) -> None:
    """Stop the placement of new partitions in the directory."""
    known = configs.describe(cluster, configs.BROKER, str(broker))
    text = next((item.value for item in known if item.name == CORDONED), None) or ""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if path not in names and "*" not in names:
        value = ",".join([*names, path])
        configs.alter(cluster, configs.BROKER, str(broker), {CORDONED: value})


def _empty(cluster: ClusterClient, broker: int, leaving: str, count: int) -> None:
    """Requests moves until the directory is empty. The broker executes moves one after the other,
    and forgets them when it restarts."""
    progress = ProgressLine(count, "partitions")
    tries: Counter[Place] = Counter()
    try:
        while True:
            directories = {each.log_dir: each for each in partitions.log_dirs(cluster, broker)}
            here = _sizes(directories[leaving], future=False)
            if not here:
                return
            progress.reach(max(0, count - len(here)))
            moving = set().union(*(_sizes(each, future=True) for each in directories.values()))
            waiting = {place: size for place, size in here.items() if place not in moving}
            if waiting:
                plan = moved_out(waiting, _targets(directories, leaving))
                tries.update(plan.keys())
                _request(cluster, broker, plan, tries)
            time.sleep(LOOK_SECONDS)
    finally:
        progress.clear()


def _request(
    cluster: ClusterClient, broker: int, plan: dict[Place, str], tries: Counter[Place]
) -> None:
    codes = partitions.move_directories(cluster, broker, plan)
    for (topic, index), code in codes.items():
        if code or tries[topic, index] > TRIES_MAX:
            why = f"refused the move: {name_of(code)}"
            if not code:
                why = f"abandoned the move {TRIES_MAX} times, see the broker's log"
            raise ClientError(
                f"{topic}:{index} was not moved to {plan[topic, index]}: broker {broker} {why}"
            )
