"""Offsets of partitions: first, last and by time. Deletion of records below an offset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.client.cluster import EARLY, MOVED
from ottla.client.errors import NotConnected, Refused, TimedOut, Unreachable, check
from ottla.tools.admin.topics import TIMEOUT_MS, leaders, leaders_or_errors
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import DeleteRecordsRequest, ListOffsetsRequest

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = (
    -1,
    -2,
    -3,
    -4,
    -5,
    -6,
)
"""Special timestamps in ListOffsets."""
Place = tuple[str, int]
"""A topic's name and the index of a partition."""


class ListedOffset(NamedTuple):
    """The result of ListOffsets for one partition. The offset is -1 if none was found."""

    offset: int
    timestamp: int
    leader_epoch: int
    error: int = 0

    @property
    def known(self) -> int | None:
        """The offset; None after an error."""
        return None if self.error else self.offset

    @property
    def found(self) -> int | None:
        """The offset; None after an error, or if no record has the requested time or a later one.
        """
        return None if self.error or self.offset < 0 else self.offset


def at(
    cluster: ClusterClient, wanted: Mapping[Place, int], *, committed: bool = False
) -> dict[Place, ListedOffset]:
    """The offset of each partition at its timestamp (ms, or one of the constants). The partitions
    of a deleted topic have an `error`."""
    led, errors = leaders_or_errors(cluster, _topics_of(wanted)) if wanted else ({}, {})
    return _at(cluster, wanted, led, errors, committed)


def _topics_of(wanted: Iterable[Place]) -> list[str]:
    return sorted({topic for topic, _ in wanted})


def _at(
    cluster: ClusterClient, wanted: Mapping[Place, int], led: Mapping[Place, int],
    errors: Mapping[str, int], committed: bool,
) -> dict[Place, ListedOffset]:
    by_leader: dict[int, dict[Place, int]] = defaultdict(dict)
    found: dict[Place, ListedOffset] = {}
    for place, timestamp in wanted.items():
        leader = led.get(place)
        if leader is None:
            code = errors.get(place[0], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            found[place] = ListedOffset(-1, -1, -1, code)
        elif leader < 0:
            found[place] = ListedOffset(-1, -1, -1, ErrorCode.LEADER_NOT_AVAILABLE)
        else:
            by_leader[leader][place] = timestamp
    for leader, places in by_leader.items():
        try:
            found.update(_ask(cluster, leader, places, committed))
        except NotConnected:            # the leader has just failed: another one will be elected
            found |= dict.fromkeys(places, ListedOffset(-1, -1, -1, ErrorCode.LEADER_NOT_AVAILABLE))
    return {place: found[place] for place in wanted}


def _ask(
    cluster: ClusterClient, leader: int, places: Mapping[Place, int], committed: bool
) -> dict[Place, ListedOffset]:
    by_topic: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for (topic, index), timestamp in places.items():
        by_topic[topic].append((index, timestamp))
    kind = ListOffsetsRequest.Topic
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1 if committed else 0,
        topics=[
            kind(
                name=topic,
                partitions=[
                    kind.Partition(partition_index=index, timestamp=timestamp)
                    for index, timestamp in parts
                ],
            )
            for topic, parts in by_topic.items()
        ],
        timeout_ms=TIMEOUT_MS,
    )
    return {
        (topic.name, part.partition_index): ListedOffset(
            part.offset, part.timestamp, part.leader_epoch, part.error_code
        )
        for topic in cluster.node(leader).call(request).topics
        for part in topic.partitions
    }


def ends(cluster: ClusterClient, places: Iterable[Place]) -> dict[Place, ListedOffset]:
    """The end offset of each partition."""
    return at(cluster, dict.fromkeys(places, LATEST))


def settled(cluster: ClusterClient, wanted: Mapping[Place, int]) -> dict[Place, ListedOffset]:
    """Like `at`, but waits while leaders are being elected. Partitions that still have no leader at
    the end have an `error`."""
    found: dict[Place, ListedOffset] = {}

    def ask() -> None:
        missing = {
            place: time for place, time in wanted.items()
            if place not in found or found[place].error
        }
        found.update(at(cluster, missing))
        _wait(one.error for one in found.values())

    try:
        cluster.with_retries(ask, again=True)
    except Refused:
        if not found:
            raise
    return {place: found[place] for place in wanted}


def _wait(codes: Iterable[int]) -> None:
    """Raises Refused for the first code after which `with_retries` tries again."""
    for code in codes:
        if code in MOVED | EARLY:
            check(code)


def required(
    cluster: ClusterClient,
    wanted: Mapping[Place, int],
    *,
    committed: bool = False,
    created: bool = False,
) -> dict[Place, int]:
    """Like `at`, for callers that need every offset.

    Waits while a leader is being elected. With `created`, also waits for partitions that were
    created a moment ago, which a broker may not know yet. Raises Refused for a partition whose
    offset is still unknown. An offset of -1 means that no record has this timestamp or a later one.
    """

    def ask() -> dict[Place, int]:
        led = leaders(cluster, _topics_of(wanted)) if wanted else {}
        found = _at(cluster, wanted, led, {}, committed)
        for (topic, index), one in found.items():
            check(one.error, what=f"{topic}-{index}")
        return {place: one.offset for place, one in found.items()}

    also = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} if created else ()
    found: dict[Place, int] = cluster.with_retries(ask, also, again=True)
    return found


def delete_records(
    cluster: ClusterClient, below: Mapping[Place, int]
) -> dict[Place, tuple[int, int]]:
    """Deletes the records below these offsets (-1: all). Returns each partition's error code and
    new log start."""
    results: dict[Place, tuple[int, int]] = {}

    def ask() -> None:
        undeleted = {place: offset for place, offset in below.items() if _deletable(results, place)}
        results.update(_delete(cluster, undeleted))
        _wait(code for code, _ in results.values())

    try:
        cluster.with_retries(ask)
    except Refused:
        if not results:
            raise
    return {place: results[place] for place in below}


def _deletable(results: Mapping[Place, tuple[int, int]], place: Place) -> bool:
    """Whether the next request contains this partition: it has no result yet, or its error may not
    last."""
    return place not in results or results[place][0] in MOVED | EARLY


def _delete(cluster: ClusterClient, below: Mapping[Place, int]) -> dict[Place, tuple[int, int]]:
    led, errors = leaders_or_errors(cluster, _topics_of(below))
    by_leader: dict[int, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    results: dict[Place, tuple[int, int]] = {}
    for (topic, index), offset in below.items():
        leader = led.get((topic, index))
        if leader is None:
            results[topic, index] = (errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), -1)
        elif leader < 0:
            results[topic, index] = (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        else:
            by_leader[leader][topic].append((index, offset))
    kind = DeleteRecordsRequest.Topic
    for leader, topics in by_leader.items():
        request_topics = [
            kind(
                name=topic,
                partitions=[
                    kind.Partition(partition_index=index, offset=offset) for index, offset in parts
                ],
            )
            for topic, parts in topics.items()
        ]
        request = DeleteRecordsRequest(topics=request_topics, timeout_ms=TIMEOUT_MS)
        try:
            answers = cluster.node(leader).call(request).topics
        except (Unreachable, TimedOut) as lost:
            if len(by_leader) == 1:
                raise
            # After a lost answer, the request is not repeated. The leader may have executed it, and
            # a second request with -1 (all) would also delete records written since.
            away = isinstance(lost, NotConnected)
            code = ErrorCode.LEADER_NOT_AVAILABLE if away else ErrorCode.NETWORK_EXCEPTION
            places = [(topic, index) for topic, parts in topics.items() for index, _ in parts]
            results |= dict.fromkeys(places, (code, -1))
            continue
        for answer in answers:
            for part in answer.partitions:
                results[answer.name, part.partition_index] = (part.error_code, part.low_watermark)
    return results


def delete_or_raise(cluster: ClusterClient, below: Mapping[Place, int]) -> dict[Place, int]:
    """Like `delete_records`, but raises Refused if partitions failed. The message has a reason for
    each of these, and names the others, whose records were deleted."""
    done = delete_records(cluster, below)
    trimmed = {place: low for place, (code, low) in done.items() if not code}
    failed = {place: code for place, (code, _) in done.items() if code}
    for (topic, _), code in failed.items():
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and not trimmed:
            raise Refused(code, what=f"topic {topic!r}")        # not for each of its partitions
    _raise_refused(cluster, below, failed, trimmed)
    return trimmed


def check_not_beyond(cluster: ClusterClient, below: Mapping[Place, int]) -> None:
    """Raises what `delete_or_raise` would raise for offsets above the ends of their partitions,
    before the records of any other partition are deleted."""
    last = ends(cluster, [*below])
    _raise_refused(cluster, below, {
        place: ErrorCode.OFFSET_OUT_OF_RANGE for place, offset in below.items()
        if not last[place].error and offset > last[place].offset
    })


def _raise_refused(
    cluster: ClusterClient, below: Mapping[Place, int], failed: Mapping[Place, int],
    trimmed: Iterable[Place] = (),
) -> None:
    """Raises Refused with a reason for each partition in `failed`, which has their error codes. The
    message names the partitions in `trimmed`. Does nothing if `failed` is empty."""
    outside = [place for place in failed if failed[place] == ErrorCode.OFFSET_OUT_OF_RANGE]
    first, last = at(cluster, dict.fromkeys(outside, EARLIEST)), ends(cluster, outside)
    reasons = []
    for place, code in failed.items():
        text = str(Refused(code, what=f"{place[0]}-{place[1]}"))
        if place in first and not first[place].error and not last[place].error:
            text += (f": {below[place]} is not one of the offsets {first[place].offset} to"
                     f" {last[place].offset}")
        reasons.append(text)
    if failed:
        if names := ", ".join(f"{topic}-{index}" for topic, index in sorted(trimmed)):
            reasons.append(f"trimmed: {names}")
        raise Refused(next(iter(failed.values())), "; ".join(reasons))
