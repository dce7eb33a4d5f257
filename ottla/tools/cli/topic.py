"""`ottla topic …`."""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from ottla.client.errors import ClientError, Refused, check, no_partition
from ottla.tools.admin import configs, offsets, partitions, topics
from ottla.tools.admin.offsets import EARLIEST, LATEST
from ottla.tools.admin.uuids import show_uuid
from ottla.tools.cli.bootstrap import connect
from ottla.tools.cli.moments import milliseconds
from ottla.tools.cli.offset_text import check_before
from ottla.tools.cli.output import confirm, done, show
from ottla.tools.cli.units import as_typed, checked
from ottla.tools.properties import once
from ottla.tools.usage import WrongUsage
from ottla.wire.errors import ErrorCode
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

POLICY = "cleanup.policy"
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def create(options: Namespace) -> None:
    typed = once(options.config, "--config")
    settings = checked("topic", typed)
    with connect(options) as cluster, as_typed(typed):
        for name in options.topic:
            try:
                topics.create(
                    cluster,
                    name,
                    partitions=options.partitions or -1,
                    configs=settings,
                    replication_factor=options.replication_factor or -1,
                    dry_run=options.dry_run,
                )
            except Refused as refused:
                if options.if_not_exists and refused.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                    print(f"topic {name} exists already{how_it_is(cluster, name, options)}",
                          file=sys.stderr)
                    continue
                raise
            done(options, f"created topic {name}")


def how_it_is(cluster: ClusterClient, name: str, options: Namespace) -> str:
    """The end of the line about a topic that exists: what differs from the command line."""
    [topic] = topics.describe(cluster, [name])
    if options.partitions in (None, len(topic.partitions)) or topic.error:
        return ""
    has = counted(len(topic.partitions), "partition")
    more = (f": to add some, ottla topic grow {name} --partitions {options.partitions}"
            if options.partitions > len(topic.partitions) else "")
    return f", with {has}{more}"


def list_topics(options: Namespace) -> None:
    try:
        fits = re.compile(options.pattern or ".*").fullmatch
    except re.error as wrong:
        raise WrongUsage(f"{options.pattern!r} is not a regular expression: {wrong}") from wrong
    with connect(options) as cluster:
        metadata = sorted(cluster.metadata().topics, key=lambda topic: str(topic.name))
    fitting = [topic for topic in metadata if fits(topic.name)]
    listed = [topic for topic in fitting if options.internal or not topic.is_internal]
    if options.pattern and not listed:
        if fitting:
            hint = "only internal topics match it; --internal lists them"
        else:
            hint = "it must match the whole name, as in 'orders.*'"
        print(f"no topic matches {options.pattern!r}: {hint}", file=sys.stderr)
    show(
        options,
        ("topic", "partitions", "replicas"),
        (
            {
                "topic": topic.name,
                "partitions": len(topic.partitions),
                "replicas": max((len(part.replica_nodes) for part in topic.partitions), default=0),
                "id": show_uuid(topic.topic_id),
                "internal": topic.is_internal,
            }
            for topic in listed
        ),
        ("id", "internal"),
    )


def known(cluster: ClusterClient, names: list[str]) -> list[topics.Topic]:
    """Describes these topics. Raises Refused for a topic that does not exist."""
    found = topics.describe(cluster, names)
    for topic in found:
        check(topic.error, what=f"topic {topic.name!r}")
    return found


def describe(options: Namespace) -> None:
    with connect(options) as cluster:
        found = known(cluster, options.topic)
        places = [(topic.name, part.index) for topic in found for part in topic.partitions]
        first = offsets.at(cluster, dict.fromkeys(places, EARLIEST))
        last = offsets.at(cluster, dict.fromkeys(places, LATEST))
        sizes: dict[tuple[str, int], int] = {}
        for replica in partitions.replicas(cluster, places):
            place = (replica.topic, replica.partition)
            sizes[place] = max(sizes.get(place, 0), replica.size)
        settings = configs.describe_many(cluster, configs.TOPIC, [topic.name for topic in found])
    show(
        options,
        ("topic", "partition", "leader", "replicas", "isr", "first", "next", "bytes", "settings"),
        (
            {
                "topic": topic.name,
                "partition": part.index,
                "leader": part.leader,
                "replicas": part.replicas,
                "isr": part.isr,
                "first": first[topic.name, part.index].known,
                "next": last[topic.name, part.index].known,
                "bytes": sizes.get((topic.name, part.index)),
                "settings": {
                    item.name: item.value
                    for item in settings[topic.name]
                    if item.config_source == 1
                },
                "leader_epoch": part.leader_epoch,
                "id": show_uuid(topic.id),
            }
            for topic in found
            for part in topic.partitions
        ),
        ("leader_epoch", "id"),
    )


def grow(options: Namespace) -> None:
    if options.partitions is None:
        raise WrongUsage("--partitions is required: give the new total number of partitions")
    with connect(options) as cluster:
        topics.grow(cluster, options.topic, options.partitions, dry_run=options.dry_run)
    done(
        options,
        f"extended topic {options.topic} to {counted(options.partitions, 'partition')}",
    )


def trim(options: Namespace) -> None:
    if options.before is None:
        raise WrongUsage(
            "--before is required: give the first offset to keep, or 'end' to delete all records"
        )
    check_before(options.before)
    before = -1 if options.before == "end" else int(options.before)
    with connect(options) as cluster:
        [topic] = known(cluster, [options.topic])
        indexes = [part.index for part in topic.partitions]
        if options.partition is not None:
            if options.partition not in indexes:
                raise ClientError(no_partition(topic.name, options.partition, len(indexes)))
            indexes = [options.partition]
        below = {(options.topic, index): before for index in indexes}
        offsets.check_not_beyond(cluster, below)
        check_trimmable(cluster, topic)
        confirm(options, f"deleting records of {options.topic}", options.topic)
        if not options.dry_run:
            offsets.delete_or_raise(cluster, below)
    shown = ", ".join(map(str, indexes))
    done(options, f"trimmed {options.topic} before {options.before}: partitions {shown}")


def check_trimmable(cluster: ClusterClient, topic: topics.Topic) -> None:
    """Raises ClientError for a topic whose records brokers do not delete on request. Its settings
    are not checked if the user may not read them."""
    if topic.internal:
        raise ClientError(f"{topic.name} is an internal topic; its records cannot be deleted")
    try:
        found = configs.describe_many(cluster, configs.TOPIC, [topic.name], keys=[POLICY])
    except Refused as refused:
        if refused.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return
        raise
    for item in found[topic.name]:
        policies = map(str.strip, (item.value or "").split(","))
        if item.name == POLICY and "delete" not in policies:
            raise ClientError(
                f"records of {topic.name} cannot be deleted: its {POLICY} is {item.value!r}, which"
                " does not contain 'delete'")


def delete(options: Namespace) -> None:
    with connect(options) as cluster:
        if options.dry_run:
            for topic in topics.describe(cluster, options.topic):
                if not (options.if_exists and topic.error == UNKNOWN):
                    check(topic.error, what=f"topic {topic.name!r}")
                    done(options, f"deleted topic {topic.name}")
            return
        if not (options.yes or options.if_exists):
            known(cluster, options.topic)       # report a missing topic before asking the user
        noun = "topic" if len(options.topic) == 1 else "topics"
        confirm(options, f"deleting {noun} {', '.join(options.topic)}", options.topic[0])
        failed: Refused | None = None
        for name, (code, message) in topics.delete(cluster, options.topic).items():
            if options.if_exists and code == UNKNOWN:
                continue
            if code:
                failed = failed or Refused(code, message, f"topic {name!r}")
            else:
                done(options, f"deleted topic {name}")
        if failed is not None:
            raise failed


def show_offsets(options: Namespace) -> None:
    columns = {"first": EARLIEST, "next": LATEST}
    if options.at:
        columns["at"] = milliseconds(options.at)
    with connect(options) as cluster:
        found = known(cluster, options.topic)
        places = [(topic.name, part.index) for topic in found for part in topic.partitions]
        answers = {
            name: offsets.at(cluster, dict.fromkeys(places, time)) for name, time in columns.items()
        }
    show(
        options,
        ("topic", "partition", *columns),
        (
            {
                "topic": place[0],
                "partition": place[1],
                **{name: answers[name][place].found for name in columns},
            }
            for place in places
        ),
    )
