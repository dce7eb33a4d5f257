"""kafka-streams-application-reset: the lines of Apache Kafka's StreamsResetter."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from ottla.client.errors import ClientError, Refused, check
from ottla.client.similar_names import near, near_partition
from ottla.tools.admin import groups, resets, topics
from ottla.tools.admin.offsets import EARLIEST, LATEST, Place
from ottla.tools.admin.times import duration_ms, milliseconds_of
from ottla.tools.kafka_names import group_offsets
from ottla.tools.kafka_names.common import connect
from ottla.tools.kafka_names.grammar import Options, UsageError
from ottla.tools.kafka_names.main import Failed, complain
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import LeaveGroupRequest

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

INTERNAL = (
    "-changelog",
    "-repartition",
    "-subscription-registration-topic",
    "-subscription-response-topic",
)
FOREIGN_KEY_JOIN = re.compile(
    r".+-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-[0-9]+-topic")
SPECS = (
    "to-offset", "to-datetime", "by-duration", "to-earliest", "to-latest", "from-file", "shift-by",
)

TOOL = "kafka-streams-application-reset"
DEFAULT_ADDRESS = "localhost:9092"
"""The default address of Kafka's tool."""


def run(options: Options) -> int:
    """Reset offsets, then delete internal topics."""
    if not options.has("application-id"):
        raise UsageError("Missing required option(s) [application-id]")
    for place, name in enumerate(SPECS):
        options.excludes(name, *SPECS[place + 1:])
    application = options.one("application-id")
    address = options.one("bootstrap-server") or options.one("bootstrap-servers")
    inputs, middles = names(options, "input-topics"), names(options, "intermediate-topics")
    with connect(options, address or DEFAULT_ADDRESS) as cluster:
        empty(cluster, application, force=options.has("force"))
        if options.has("dry-run"):
            print(
                "----Dry run displays the actions which will be performed when running Streams "
                "Reset Tool----"
            )
        status = 0
        if not inputs and not middles:
            print("No input or intermediate topics specified. Skipping seek.")
        else:
            status = seek(options, cluster, application, inputs, middles)
        delete_internal(options, cluster, application, {*inputs, *middles})
    return status


def names(options: Options, flag: str) -> list[str]:
    """The topics in the values of a flag, where commas separate them."""
    return [name.strip() for text in options.all(flag) for name in text.split(",") if name.strip()]


def empty(cluster: ClusterClient, application: str, *, force: bool) -> None:
    """Raises Failed if the application's group has members. With `force`, removes them instead."""
    try:
        group = groups.describe(cluster, application)
    except Refused as refused:
        if refused.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        if similar := near(cluster, refused.code, application):
            complain(TOOL, f"group {application!r} does not exist{similar}")
        return
    if not group.members:
        return
    if not force:
        raise Failed(
            f"Consumer group '{application}' is still active and has following members: "
            f"{', '.join(one.id for one in group.members)}. Make sure to stop all running "
            "application instances before running the reset tool. You can use option "
            "'--force' to remove active members from the group."
        )
    print("Force deleting all active members in the group: " + application)
    kind = LeaveGroupRequest.Member
    request = LeaveGroupRequest(
        group_id=application, members=[kind(member_id=one.id) for one in group.members]
    )
    check(cluster.coordinator(application).call(request).error_code)


def seek(
    options: Options,
    cluster: ClusterClient,
    application: str,
    inputs: list[str],
    middles: list[str],
) -> int:
    if inputs:
        print(f"Reset-offsets for input topics [{', '.join(inputs)}]")
    if middles:
        print(f"Seek-to-end for intermediate topics [{', '.join(middles)}]")
    described = {
        topic.name: topic
        for topic in topics.describe(cluster, [*inputs, *middles])
        if not topic.error
    }
    status = 0
    for kind, wanted in (("input", inputs), ("intermediate", middles)):
        if missing := [name for name in wanted if name not in described]:
            print(f"Following {kind} topics are not found, skipping them")
            for name in missing:
                print(f"Topic: {name}")
            similar = near_partition(cluster, missing[0], 0)
            complain(TOOL, f"{kind} topics were not found: {', '.join(missing)}{similar}")
            status = 1
    known_inputs = places(described, inputs)
    plan: dict[Place, int] = {}
    if known_inputs:
        print(f"Following input topics offsets will be reset to (for consumer group {application})")
        plan |= new_offsets(options, cluster, application, known_inputs)
        for (topic, index), offset in plan.items():
            print(f"Topic: {topic} Partition: {index} Offset: {offset}")
    known_middles = places(described, middles)
    if known_middles:
        print(
            "Following intermediate topics offsets will be reset to end (for consumer group "
            f"{application})"
        )
        for topic, _ in known_middles:
            print(f"Topic: {topic}")
        plan |= resets.to_end(cluster, known_middles, LATEST)
    if plan and not options.has("dry-run"):
        groups.commit(cluster, application, plan)
    if plan:
        print("Done.")
    return status


def places(described: dict[str, topics.Topic], wanted: list[str]) -> list[Place]:
    """The partitions of these topics."""
    return [
        (name, part.index)
        for name in wanted
        if name in described
        for part in described[name].partitions
    ]


def new_offsets(
    options: Options, cluster: ClusterClient, application: str, wanted: list[Place]
) -> dict[Place, int]:
    """The new offsets of the input topics."""
    if options.has("to-offset"):
        return resets.clamp(cluster, dict.fromkeys(wanted, options.number("to-offset", 0)))
    if options.has("to-latest"):
        return resets.to_end(cluster, wanted, LATEST)
    if options.has("shift-by"):
        committed = resets.to_committed(cluster, wanted, groups.committed(cluster, application))
        by = options.number("shift-by", 0)
        return resets.clamp(cluster, {place: offset + by for place, offset in committed.items()})
    if options.has("from-file"):
        return resets.clamp(cluster, group_offsets.from_file(options).get("", {}))
    try:
        if options.has("to-datetime"):
            timestamp = milliseconds_of(options.one("to-datetime"))
            return resets.to_timestamp(cluster, wanted, timestamp)[0]
        if options.has("by-duration"):
            timestamp = int(time.time() * 1000) - duration_ms(options.one("by-duration"))
            return resets.to_timestamp(cluster, wanted, timestamp)[0]
    except ValueError as wrong:
        raise ClientError(str(wrong)) from wrong
    return resets.to_end(cluster, wanted, EARLIEST)


def delete_internal(
    options: Options, cluster: ClusterClient, application: str, others: set[str]
) -> None:
    """Deletes the application's internal topics, or only those that --internal-topics names.
    The topics `others`, which the user names as input or intermediate topics, are not internal,
    whatever they are called (KAFKA-7930)."""
    internal_topics = [
        name for name in topics.names(cluster) if internal(name, application) and name not in others
    ]
    if options.has("internal-topics"):
        wanted = names(options, "internal-topics")
        if strange := [name for name in wanted if name not in internal_topics]:
            raise Failed(
                f"Invalid topic specified in the --internal-topics option: {strange[0]}",
                mistyped=strange[0], known=internal_topics)
        internal_topics = [name for name in internal_topics if name in wanted]
    print(f"Deleting inferred internal topics [{', '.join(internal_topics)}]")
    if internal_topics and not options.has("dry-run"):
        for name, (code, message) in topics.delete(cluster, internal_topics).items():
            check(code, message, f"topic {name!r}")
    print("Done.")


def internal(name: str, application: str) -> bool:
    """Whether Kafka Streams created this topic for the application."""
    return name.startswith(f"{application}-") and (
        name.endswith(INTERNAL) or FOREIGN_KEY_JOIN.fullmatch(name) is not None)
