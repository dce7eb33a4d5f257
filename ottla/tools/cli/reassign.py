"""`ottla reassign …` and `ottla elect`."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.client.command_line import INT32_MOST, is_number
from ottla.client.errors import ClientError, Refused, check, no_partition
from ottla.tools.admin import partitions, retirement, topics
from ottla.tools.admin.offsets import Place
from ottla.tools.cli.bootstrap import connect
from ottla.tools.cli.output import confirm, done
from ottla.tools.cli.output import show as print_rows
from ottla.tools.kafka_names import reassignment_plan
from ottla.tools.kafka_names.java import message_of
from ottla.tools.usage import WrongUsage, check_topic_name
from ottla.wire.errors import ErrorCode
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient


ANY_DIRECTORY = "any"
"""In a plan, the broker chooses the log directory."""
SHOWN = 5
"""How many refusals are printed individually."""


def show(options: Namespace) -> None:
    with connect(options) as cluster:
        moves = partitions.reassignments(cluster)
    print_rows(
        options,
        ("topic", "partition", "replicas", "adding", "removing"),
        (
            {
                "topic": place[0],
                "partition": place[1],
                "replicas": move.replicas,
                "adding": move.adding,
                "removing": move.removing,
            }
            for place, move in sorted(moves.items())
        ),
    )


def plan(options: Namespace) -> None:
    leaving = set(options.without)
    if not leaving:
        raise WrongUsage("--without is required: give the broker to retire")
    with connect(options) as cluster:
        controller = cluster.with_retries(lambda: cluster.controller(itself=True))
        described = topics.describe(cluster, options.topic or None, asked=controller)
        moving = partitions.reassignments(cluster)
        racks = {node_id: cluster.racks.get(node_id) for node_id in cluster.live()}
        for topic in described if options.topic else ():    # only named topics have to exist
            check(topic.error, what=f"topic {topic.name!r}")
    assigned = {
        (topic.name, part.index): wanted_replicas(part, moving.get((topic.name, part.index)))
        for topic in described for part in topic.partitions
    }
    known = {*racks, *(node for nodes in assigned.values() for node in nodes)}
    if strange := sorted(leaving - known):
        running = ", ".join(map(str, sorted(racks)))
        raise ClientError(
            f"broker {strange[0]} is not running and has no replicas assigned; running brokers:"
            f" {running}")
    moved = retirement.moved_off(assigned, racks, leaving)
    noun = "broker" if len(leaving) == 1 else "brokers"
    named = f"{noun} {','.join(map(str, sorted(leaving)))}"
    if not moved:
        print(f"no replicas are assigned to {named}", file=sys.stderr)
        return
    print(json.dumps(reassignment_plan.as_json(moved, {}), separators=(",", ":")))
    print(f"planned to move {counted(len(moved), 'partition')} off {named}", file=sys.stderr)


def wanted_replicas(part: topics.Partition, moving: partitions.Moving | None) -> list[int]:
    """A partition's replicas after its current reassignment, if there is one."""
    going = moving.removing if moving is not None else []
    return [node for node in part.replicas if node not in going]


def start(options: Namespace) -> None:
    plan = reassignment_plan.read(options.plan)
    if any(path != ANY_DIRECTORY for item in plan.values() for path in item.directories):
        raise ClientError(
            f"{options.plan} names log directories, and this command would ignore them: use `ottla"
            " kafka-reassign-partitions --execute`, or `ottla cluster drain`")
    with connect(options) as cluster:
        if options.dry_run:
            rehearse(cluster, {place: item.replicas for place, item in plan.items()})
        else:
            refuse(partitions.reassign(cluster, {p: item.replicas for p, item in plan.items()}))
    done(options, f"started moving {counted(len(plan), 'partition')}")


def rehearse(cluster: ClusterClient, wanted: Mapping[Place, Sequence[int]]) -> None:
    """Raises ClientError if brokers would refuse a move, because they do not know its partition or
    one of its new brokers."""
    live = {*cluster.live()}
    described = topics.describe(cluster, {name for name, _ in wanted})
    hidden = {one.name for one in described if one.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    known = {
        (topic.name, part.index): part.replicas
        for topic in described if not topic.error for part in topic.partitions
    }
    results: dict[Place, tuple[int, str | None]] = {}
    for place, replicas in wanted.items():
        away = [node for node in replicas if node not in live and node not in known.get(place, ())]
        if place not in known and place[0] not in hidden:
            results[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition"
        elif away:
            results[place] = (
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"broker {away[0]} is not running")
        else:
            results[place] = 0, None
    refuse(results, accepted="")


def cancel(options: Namespace) -> None:
    plan = reassignment_plan.read(options.plan)
    with connect(options) as cluster:
        moving = partitions.reassignments(cluster)
        wanted = [place for place in plan if place in moving]
        if wanted and not options.dry_run:
            refuse(partitions.reassign(cluster, dict.fromkeys(wanted)))
    done(options, f"stopped moving {counted(len(wanted), 'partition')}")


def refuse(
    results: dict[Place, tuple[int, str | None]], accepted: str = " (and accepted for the others)"
) -> None:
    """Raises an error that lists the refused partitions, if there are any. `accepted` is its text
    about the other partitions."""
    failed = {place: result for place, result in results.items() if result[0]}
    if len(failed) == len(results) == 1:
        [((topic, index), (code, message))] = failed.items()
        raise Refused(code, message, f"{topic}:{index}")
    if failed:
        said = [f"{t}:{index}: {message_of(*result)}" for (t, index), result in failed.items()]
        more = [f"and {counted(len(said) - SHOWN, 'other')}"] if len(said) > SHOWN else []
        raise ClientError(
            f"the change was refused for {len(failed)} of {len(results)} partitions"
            f"{accepted if len(failed) < len(results) else ''}: "
            + "; ".join([*said[:SHOWN], *more])
        )


def place_of(text: str) -> tuple[str, int | None]:
    """The topic and the partition in `topic:0`, or the topic alone. Raises WrongUsage."""
    name, colon, index = text.partition(":")
    if colon and not is_number(index, INT32_MOST):
        raise WrongUsage(f"{text!r}: expected TOPIC, or TOPIC:0 for one partition")
    check_topic_name(name)
    return name, int(index) if colon else None


def elect(options: Namespace) -> int:
    chosen = [place_of(text) for text in options.partition]
    with connect(options) as cluster:
        places = None
        if chosen:
            places = list[Place]()
            for name, index in chosen:
                known = list(topics.leaders(cluster, [name]))
                if index is not None and (name, index) not in known:
                    raise ClientError(no_partition(name, index, len(known)))
                places += known if index is None else [(name, index)]
        if options.unclean:
            confirm(options, "an unclean election may lose records, which", "unclean")
        kind = partitions.UNCLEAN if options.unclean else partitions.PREFERRED
        if options.dry_run:
            return rehearse_election(options, cluster, places)
        results = partitions.elect(cluster, kind, places)
    rows, failed = [], 0
    for (topic, index), (code, message) in sorted(results.items()):
        state = "elected" if not code else "not needed"
        if code not in (0, ErrorCode.ELECTION_NOT_NEEDED):
            state, failed = message_of(code, message), failed + 1
        rows.append({"topic": topic, "partition": index, "result": state})
    print_rows(options, ("topic", "partition", "result"), rows)
    if failed:
        print(f"ottla elect: {counted(failed, 'election')} failed", file=sys.stderr)
    return 1 if failed else 0


def rehearse_election(
    options: Namespace, cluster: ClusterClient, places: list[Place] | None
) -> int:
    """Print the leaders that an election would choose now."""
    wanted = None if places is None else {name for name, _ in places}
    rows = []
    for topic in topics.describe(cluster, wanted):
        check(topic.error, what=f"topic {topic.name!r}")
        for part in topic.partitions:
            if places is not None and (topic.name, part.index) not in places:
                continue
            rows.append({
                "topic": topic.name,
                "partition": part.index,
                "leader": part.leader,
                "elected": winner(part, unclean=options.unclean),
            })
    changes = sum(row["leader"] != row["elected"] for row in rows)
    print_rows(options, ("topic", "partition", "leader", "elected"), rows)
    if any(row["elected"] is None for row in rows):
        print("where no leader is shown, the replica with the longest log would be elected",
              file=sys.stderr)
    done(options, f"changed {counted(changes, 'leader')}")
    return 0


def winner(part: topics.Partition, *, unclean: bool) -> int | None:
    """The leader after an election; the current leader if no election is needed or possible. None
    if the lengths of the logs decide."""
    if not unclean:
        first = part.replicas[0] if part.replicas else -1
        return first if first in part.isr and first not in part.offline else part.leader
    if part.leader >= 0:
        return part.leader
    running = [node for node in part.replicas if node not in part.offline]
    if len(running) > 1:
        return None
    return running[0] if running else -1
