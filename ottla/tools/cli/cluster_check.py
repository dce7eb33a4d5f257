"""`ottla cluster check`: are all partitions healthy, and could a broker be stopped?"""

from __future__ import annotations

import contextlib
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.client.errors import ClientError, NotSupported, TimedOut, Unreachable
from ottla.replication.controller.elections import MIN_ISR
from ottla.tools.admin import cluster as admin
from ottla.tools.admin import configs, topics
from ottla.tools.admin import partitions as directories
from ottla.tools.admin.topics import Partition
from ottla.tools.cli.bootstrap import connect
from ottla.tools.cli.output import show
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.client.connection import Connection

ATTEMPTS = 3


def check(options: Namespace) -> int:
    """Print all problems; the exit status is 1 if there are any."""
    leaving = options.without
    with connect(options) as cluster:
        # A broker that is cut off from ZooKeeper has old metadata; the controller has the newest.
        controller = active_controller(cluster)
        alive = topics.brokers(controller)
        if leaving is not None and leaving not in alive:
            running = ", ".join(map(str, sorted(alive)))
            raise ClientError(f"broker {leaving} is not running; running brokers: {running}")
        described = [
            topic for topic in topics.describe(cluster, asked=controller) if not topic.error
        ]
        minimum = minimums(cluster, controller, [topic.name for topic in described])
        faults = directory_faults(cluster, alive)
        partitions = [part for topic in described for part in topic.partitions]
        since = departures(cluster, controller, away(partitions, alive), alive)
    rows = [
        {
            "topic": topic.name, "partition": part.index, "problem": problem,
            "leader": part.leader, "replicas": part.replicas, "isr": part.isr,
        }
        for topic in described
        for part in topic.partitions
        for problem in problems(part, alive, leaving, minimum.get(topic.name, 1))
    ]
    for_people = options.output in (None, "table", "wide")
    columns = ("topic", "partition", "problem", "leader", "replicas", "isr")
    if rows and for_people:
        show(options, columns, gathered(rows))
    elif not for_people:
        others = [] if options.output == "name" else [
            dict.fromkeys(columns) | fault._asdict() for fault in faults]
        show(options, columns, [*rows, *others])
    if rows or faults:
        for line in [*summary(partitions, alive, since), *(fault.text for fault in faults)]:
            print(line, file=sys.stderr)
        return 1
    if partitions:
        also = "" if leaving is None else (
            f"; without broker {leaving}, every partition would still serve clients")
        have = counted(len(partitions), "partition has", "partitions have")
        print(f"{have} a leader and all replicas in sync{also}", file=sys.stderr)
    else:
        print("there are no partitions yet", file=sys.stderr)
    return 0


def minimums(
    cluster: ClusterClient, controller: Connection, names: list[str]
) -> dict[str, int]:
    """The min.insync.replicas of topics, read from the controller, whose metadata is the newest."""
    settings = configs.describe_many(cluster, configs.TOPIC, names, controller, [MIN_ISR])
    return {
        name: int(next((item.value for item in items if item.name == MIN_ISR), None) or 1)
        for name, items in settings.items()
    }


class Fault(NamedTuple):
    """A log directory that is full or offline, or a broker that does not list its directories."""

    broker: int
    directory: str | None
    problem: str

    @property
    def text(self) -> str:
        """The sentence for people."""
        if self.directory is None:
            return self.problem
        return f"broker {self.broker}: log directory {self.directory} is {self.problem}"


REASONS = {
    "full": "full: writes to it are refused until it has space",
    "offline": "offline: partitions are not served from it, and the broker's log says why",
}


def directory_faults(cluster: ClusterClient, alive: Iterable[int]) -> list[Fault]:
    """The log directories that are full or offline, and the brokers that do not answer."""
    faults = []
    for node in sorted(alive):
        try:
            found = directories.log_dirs(cluster, node, places=())
        except NotSupported:
            continue
        except (Unreachable, TimedOut) as failed:
            faults.append(Fault(node, None, str(failed)))
            continue
        for each in found:
            status = directories.directory_status(each)
            if status in REASONS:
                faults.append(Fault(node, each.log_dir, REASONS[status]))
    return faults


def gathered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Joins rows of a topic that differ only in the partition. The partition of the joined row is a
    text such as `0-49`."""
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        same = tuple(str(row[name]) for name in row if name != "partition")
        alike.setdefault(same, []).append(row)
    return [
        some[0] if len(some) == 1
        else some[0] | {"partition": runs(row["partition"] for row in some)}
        for some in alike.values()
    ]


def runs(numbers: Iterable[int]) -> str:
    """The text for ascending numbers, such as `0-3,5`."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in ranges)


def away(partitions: list[Partition], alive: set[int]) -> list[int]:
    """The brokers that have replicas and are not running."""
    return sorted({node for part in partitions for node in part.replicas} - alive)


class Departure(NamedTuple):
    """When a broker left, in milliseconds since 1970. With `at_the_latest`, the broker left at this
    time or before."""

    at_ms: int
    at_the_latest: bool = False


def departures(
    cluster: ClusterClient, controller: Connection, nodes: list[int], alive: set[int]
) -> dict[int, Departure]:
    """The times at which brokers left, as far as they are known. A broker that was running when
    another broker left knows the time. A broker that started later knows only that the other
    broker had left before this start. The controller is asked first."""
    known: dict[int, Departure] = {}
    for node in (None, *sorted(alive - {cluster.controller_id})):
        if all(one in known and not known[one].at_the_latest for one in nodes):
            break
        with contextlib.suppress(NotSupported, Unreachable):
            part, _ = admin.quorum(cluster, controller if node is None else cluster.node(node))
            for one in (*part.current_voters, *part.observers):
                seen, latest = one.last_fetch_timestamp, one.last_caught_up_timestamp
                found = Departure(seen) if seen >= 0 else Departure(latest, True)
                before = known.get(one.replica_id, found)
                if one.replica_id in nodes and found.at_ms >= 0:
                    known[one.replica_id] = min(found, before, key=lambda each: each[::-1])
    return known


def moment(at_ms: int, now: datetime) -> str:
    """A time of the day in the time zone of `now`. The date is added if it is not the date of
    `now`."""
    at = datetime.fromtimestamp(at_ms / 1000, now.tzinfo)
    return at.strftime("%H:%M %Z" if at.date() == now.date() else "%Y-%m-%d %H:%M %Z")


def summary(
    partitions: list[Partition], alive: set[int], since: Mapping[int, Departure]
) -> list[str]:
    """The problems in a few lines: the brokers that are away, and the number of affected
    partitions."""
    now = datetime.now().astimezone()
    lines = [
        f"broker {node} " + (
            "has been away since"
            f" {'before ' * since[node].at_the_latest}{moment(since[node].at_ms, now)}"
            if node in since else "is away; it is not known when it left"
        )
        for node in away(partitions, alive)
    ]
    lacking = Counter(
        sum(node not in part.isr for node in part.replicas) for part in partitions)
    count = len(partitions)
    lines += [
        f"{lacking[lack]} of {counted(count, 'partition')}"
        f" {'lacks' if lacking[lack] == 1 else 'lack'} {counted(lack, 'replica')} in sync"
        for lack in sorted(lacking) if lack
    ]
    if leaderless := sum(part.leader not in alive for part in partitions):
        have = "has" if leaderless == 1 else "have"
        lines.append(f"{leaderless} of {counted(count, 'partition')} {have} no leader")
    return lines


def active_controller(cluster: ClusterClient) -> Connection:
    """A connection to the controller. Raises ClientError if the brokers do not agree on a
    controller: in this state, a stopping broker could not hand over its leaderships."""
    for _ in range(ATTEMPTS):
        controller: Connection = cluster.with_retries(lambda: cluster.controller(itself=True))
        try:
            part, _ = admin.quorum(cluster, controller)
        except NotSupported:                    # an Apache Kafka before 3.3
            return controller
        # If Apache Kafka's controllers are not brokers, brokers forward requests to them.
        if part.leader_id == cluster.controller_id or part.leader_id not in cluster.brokers:
            return controller
        cluster.controller_id = part.leader_id  # the next attempt asks this broker
    raise ClientError(
        "the brokers do not agree yet on which of them is the controller: try again later")


def problems(part: Partition, alive: set[int], leaving: int | None, minimum: int) -> list[str]:
    """The problems that a partition has now, or would have without the broker `leaving`. `minimum`
    is the topic's min.insync.replicas. If `minimum` is higher than the number of replicas, brokers
    require all replicas."""
    faults = []
    required = min(minimum, len(part.replicas))
    if part.leader < 0 or part.leader not in alive:
        faults.append("no leader")
    if missing := [str(node) for node in part.replicas if node not in part.isr]:
        faults.append(f"not in sync: {','.join(missing)}")
    remaining = len(part.isr) - (leaving in part.isr)
    if not remaining and leaving in part.isr:
        faults.append(f"only broker {leaving} is in sync")
    if len(part.isr) < required:
        faults.append(f"refuses acks=all: {MIN_ISR}={minimum}")
    elif 0 < remaining < required:
        faults.append(f"would refuse acks=all: {MIN_ISR}={minimum}")
    return faults
