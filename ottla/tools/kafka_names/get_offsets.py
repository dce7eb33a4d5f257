"""kafka-get-offsets: the `topic:partition:offset` lines of Apache Kafka's GetOffsetShell."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.client.command_line import INT32_MOST, is_number
from ottla.client.similar_names import near_partition
from ottla.tools.admin import offsets
from ottla.tools.kafka_names.common import connect, java_regex
from ottla.tools.kafka_names.grammar import java_integer
from ottla.tools.kafka_names.java import message_of
from ottla.tools.kafka_names.main import Failed

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.tools.admin.offsets import Place
    from ottla.tools.kafka_names.grammar import Options

TIMES = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
RULE = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")
Test = Callable[[str, int], bool]


def run(options: Options) -> int:
    """Prints the offset of each matching partition."""
    options.needs("bootstrap-server")
    if options.has("topic-partitions") and (options.has("topic") or options.has("partitions")):
        raise Failed(
            "Error occurred: --topic-partitions cannot be used with --topic or --partitions"
        )
    timestamp = time_of(options.one("time", "latest"))
    fits = (
        rules(options.one("topic-partitions"))
        if options.has("topic-partitions")
        else simple(options)
    )
    with connect(options) as cluster:
        places = partitions(cluster, fits, internal=not options.has("exclude-internal-topics"))
        if not places:
            raise Failed(
                "Error occurred: Could not match any topic-partitions with the specified filters",
                near=nearest(options, cluster),
            )
        wanted = dict.fromkeys(places, timestamp)
        for (topic, index), found in offsets.settled(cluster, wanted).items():
            if found.error:
                print(
                    f"Skip getting offsets for topic-partition {topic}:{index} due to error: "
                    f"{message_of(found.error)}",
                    file=sys.stderr,
                )
            elif found.offset >= 0:
                print(f"{topic}:{index}:{found.offset}")
    return 0


def nearest(options: Options, cluster: ClusterClient) -> str:
    """What the message adds if nothing matches: similar topics, or the topic's partitions."""
    topic, _, indexes = options.one("topic-partitions").partition(",")[0].partition(":")
    topic, indexes = options.one("topic") or topic, options.one("partitions") or indexes
    first = indexes.partition(",")[0]
    index = int(first) if is_number(first) else 0
    return near_partition(cluster, topic, index) if topic else ""


def time_of(text: str) -> int:
    """The timestamp for `--time`."""
    if text.lower() in TIMES:
        return TIMES[text.lower()]
    try:
        return java_integer(text)
    except ValueError:
        known = " / ".join(f"{number} or {name}" for name, number in TIMES.items())
        raise Failed(
            f"Error occurred: Malformed time argument {text}. Please use {known}, or a "
            "specified long format timestamp"
        ) from None


def partitions(cluster: ClusterClient, fits: Test, *, internal: bool) -> list[Place]:
    """The matching partitions, sorted."""
    return sorted(
        (topic.name, part.partition_index)
        for topic in cluster.metadata().topics
        if internal or not topic.is_internal
        for part in topic.partitions
        if fits(topic.name, part.partition_index)
    )


def simple(options: Options) -> Test:
    """The filter of --topic and --partitions."""
    pattern = java_regex(options.one("topic")) if options.has("topic") else None
    wanted: set[int] | None = None
    if options.has("partitions"):
        text = options.one("partitions")
        try:
            wanted = {java_integer(part, INT32_MOST) for part in text.split(",") if part}
        except ValueError:
            raise Failed(
                "Error occurred: --partitions expects a comma separated list of numeric "
                f"partition ids, but received: {text}"
            ) from None

    def fits(topic: str, index: int) -> bool:
        return (pattern is None or bool(pattern.fullmatch(topic))) and (
            wanted is None or index in wanted
        )

    return fits


def rules(text: str) -> Test:
    """The filter of --topic-partitions, which accepts partitions that match any of its rules."""
    tests = [rule(part) for part in text.split(",")]
    return lambda topic, index: any(test(topic, index) for test in tests)


def rule(text: str) -> Test:
    """One rule: a pattern for topics. A partition, or a range of partitions, may follow. The
    end of the range is excluded."""
    match = RULE.fullmatch(text)
    if match is None:
        raise Failed(f"Error occurred: Invalid rule specification: {text}")
    pattern = java_regex(match[1] or ".*")
    try:
        one, low, high = (
            java_integer(part, INT32_MOST) if part else None for part in match.groups()[1:])
    except ValueError as wrong:
        raise Failed(f"Error occurred: Invalid rule specification: {text}: {wrong}") from None

    def fits(topic: str, index: int) -> bool:
        if not pattern.fullmatch(topic) or (one is not None and index != one):
            return False
        return (low is None or index >= low) and (high is None or index < high)

    return fits
