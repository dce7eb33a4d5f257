"""`kafka-consumer-groups --reset-offsets` and `--delete-offsets`."""

from __future__ import annotations

import csv
import time
from typing import TYPE_CHECKING

from ottla.client.command_line import INT32_MOST
from ottla.client.errors import ClientError, Refused, reason_of
from ottla.client.similar_names import near, near_partition
from ottla.tools.admin import groups, resets, topics
from ottla.tools.admin.offsets import EARLIEST, LATEST, Place
from ottla.tools.admin.times import duration_ms, milliseconds_of
from ottla.tools.kafka_names.common import padded
from ottla.tools.kafka_names.grammar import UsageError, java_integer
from ottla.tools.kafka_names.group_choice import chosen, show_error
from ottla.tools.kafka_names.java import exception_of, message_of
from ottla.tools.kafka_names.main import complain, followed_by
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.tools.kafka_names.grammar import Options

Plan = dict[Place, int]
TOOL = "kafka-consumer-groups"


class Mistyped(ClientError):
    """A topic or a partition that does not exist. The message on stderr ends with `near`;
    the message on stdout is only Kafka's own text."""

    def __init__(self, text: str, near: str) -> None:
        super().__init__(text)
        self.near = near


def reset(options: Options, cluster: ClusterClient) -> None:
    """Compute new offsets, commit them with --execute, print them."""
    plans: dict[str, Plan] = {}
    by_file = from_file(options) if options.has("from-file") else None
    for group_id in chosen(options, cluster):
        state = state_of(cluster, group_id)
        if state == "Dead" and (similar := near(cluster, ErrorCode.GROUP_ID_NOT_FOUND, group_id)):
            complain(TOOL, f"group {group_id!r} does not exist{similar}")
        if state not in ("Empty", "Dead"):
            text = (
                f"Assignments can only be reset if the group '{group_id}' is inactive, but the "
                f"current state is {state}."
            )
            show_error(text)
            complain(TOOL, text)
            plans[group_id] = {}
            continue
        plan = planned(options, cluster, group_id, by_file)
        if options.has("execute") and plan:
            groups.commit(cluster, group_id, plan)
        plans[group_id] = plan
    show(options, plans)


def state_of(cluster: ClusterClient, group_id: str) -> str:
    """The state of a group; Dead if it does not exist."""
    try:
        return groups.describe(cluster, group_id).state
    except Refused as refused:
        if refused.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return "Dead"


def planned(
    options: Options, cluster: ClusterClient, group_id: str, by_file: dict[str, Plan] | None
) -> Plan:
    """The new offsets of a group."""
    if by_file is not None:
        wanted = by_file.get(group_id, by_file.get("", {}))
        return resets.clamp(cluster, wanted)
    committed = groups.committed(cluster, group_id)
    if options.has("all-topics"):
        places = sorted(committed)
    else:
        places = [place for text in options.all("topic") for place in places_of(cluster, text)]
    if options.has("to-offset"):
        return resets.clamp(cluster, dict.fromkeys(places, options.number("to-offset", 0)))
    if options.has("to-earliest"):
        return resets.to_end(cluster, places, EARLIEST)
    if options.has("to-latest"):
        return resets.to_end(cluster, places, LATEST)
    if options.has("to-current"):
        return resets.to_committed(cluster, places, committed)
    if options.has("shift-by"):
        missing = [place for place in places if place not in committed]
        if missing:
            raise ClientError(
                f"Cannot shift offset for partition {missing[0][0]}-{missing[0][1]} "
                "since there is no current committed offset"
            )
        by = options.number("shift-by", 0)
        return resets.clamp(cluster, {place: committed[place][0] + by for place in places})
    return by_time(options, cluster, places)


def by_time(options: Options, cluster: ClusterClient, places: list[Place]) -> Plan:
    if options.has("to-datetime"):
        try:
            timestamp = milliseconds_of(options.one("to-datetime"))
        except ValueError as wrong:
            raise ClientError(f"java.text.ParseException: {wrong}") from wrong
    else:
        timestamp = int(time.time() * 1000) - duration_ms(options.one("by-duration"))
    plan, late = resets.to_timestamp(cluster, places, timestamp)
    for topic, index in late:
        print(
            f"\nWarn: Partition {index} from topic {topic} is empty. "
            "Falling back to latest known offset."
        )
    return plan


def places_of(cluster: ClusterClient, text: str) -> list[Place]:
    """The partitions in `topic` or `topic:0,1`. Raises ClientError for a partition that does not
    exist, UsageError for a wrong text."""
    name, colon, _ = text.partition(":")
    described = [topic for topic in topics.describe(cluster, [name]) if not topic.error]
    known = [part.index for topic in described for part in topic.partitions]
    wanted = known
    if colon:
        wanted = indexes_of(text)
    elif not known:
        raise Mistyped(
            message_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), near_partition(cluster, name, 0))
    unknown = [index for index in wanted if index not in known]
    if unknown:
        shown = ", ".join(f"{name}-{index}" for index in unknown)
        raise Mistyped(
            f'The partitions "{shown}" do not exist', near_partition(cluster, name, unknown[0]))
    return [(name, index) for index in wanted]


def indexes_of(text: str) -> list[int]:
    """The partitions in `topic:0,1`. Raises UsageError."""
    indexes = []
    for part in text.partition(":")[2].split(","):
        try:
            indexes.append(java_integer(part, INT32_MOST))
        except ValueError:
            raise UsageError(
                f"Invalid partition '{part}' specified in topic arg '{text}': expected TOPIC:0,1"
                f" with partitions from 0 to {INT32_MOST}"
            ) from None
    return indexes


def from_file(options: Options) -> dict[str, Plan]:
    """The offsets in a file that --export wrote, by group. Its lines have the form
    `[group,]topic,partition,offset`; for lines without a group, the group is ""."""
    plans: dict[str, Plan] = {}
    path = options.one("from-file")
    try:
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.reader(file):
                if not row:
                    continue
                try:
                    group, topic, index, offset = row if len(row) == 4 else ["", *row]
                    place = (topic.strip(), java_integer(index, INT32_MOST))
                    plans.setdefault(group.strip(), {})[place] = java_integer(offset)
                except ValueError as wrong:
                    why = f": {wrong}" if 3 <= len(row) <= 4 else ""
                    raise ClientError(
                        f"{path}: expected lines [GROUP,]TOPIC,PARTITION,OFFSET, but found "
                        f"{','.join(row)!r}{why}"
                    ) from None
    except OSError as failed:
        raise ClientError(reason_of(failed)) from failed
    except UnicodeDecodeError as wrong:
        raise ClientError(f"{path} is not UTF-8 text: {wrong}") from wrong
    return plans


def show(options: Options, plans: dict[str, Plan]) -> None:
    rows = [
        (group, topic, index, offset)
        for group, plan in plans.items()
        for (topic, index), offset in plan.items()
    ]
    if options.has("export"):
        for group, topic, index, offset in rows:
            print(
                f"{group},{topic},{index},{offset}"
                if len(plans) > 1
                else f"{topic},{index},{offset}"
            )
        print()
        return
    widths = (max([15, *(len(row[0]) for row in rows)]), max([15, *(len(row[1]) for row in rows)]))
    header = padded(
        ("GROUP", widths[0]), ("TOPIC", widths[1]), ("PARTITION", 10), ("NEW-OFFSET", 0)
    )
    print(f"\n{header}")
    for group, topic, index, offset in rows:
        print(padded((group, widths[0]), (topic, widths[1]), (index, 10), (offset, 0)))


def forget(options: Options, cluster: ClusterClient) -> None:
    """Delete committed offsets and print a line for each partition."""
    group_id = options.one("group")
    places: list[Place] = []
    unknown: list[str] = []
    for text in options.all("topic"):
        name, colon, _ = text.partition(":")
        if colon:
            places += [(name, index) for index in indexes_of(text)]
            continue
        found = [topic for topic in topics.describe(cluster, [name]) if not topic.error]
        places += [(name, part.index) for topic in found for part in topic.partitions]
        unknown += [name] * (not found)
        if not found:
            complain(TOOL, f"topic {name!r} does not exist{near_partition(cluster, name, 0)}")
    code, results = groups.delete_offsets(cluster, group_id, places) if places else (0, {})
    failed = any(results.values())
    if code:
        show_error(message_of(code))
        missing = code == ErrorCode.GROUP_ID_NOT_FOUND
        similar = near(cluster, ErrorCode.GROUP_ID_NOT_FOUND, group_id) if missing else ""
        complain(TOOL, followed_by(message_of(code), similar))
    elif failed:
        show_error("Encountered some partition-level error, see the follow-up details.")
        complain(TOOL, "some offsets were not deleted: see the column STATUS")
    else:
        print(f"Request succeeded for deleting offsets from group {group_id}.")
    print("\n" + padded(("TOPIC", 15), ("PARTITION", 10), ("STATUS", 15)))
    for topic, index in places:
        error = code or results.get((topic, index), 0)
        status = f"Error: {exception_of(error)}" if error else "Successful"
        print(padded((topic, 15), (index, 10), (status, 15)))
    for topic in unknown:
        status = f"Error: {exception_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}"
        print(padded((topic, 15), ("-", 10), (status, 15)))
