"""Prints records of topics to standard output, with a group or without one.

Without a group, the reader commits nothing. It assigns partitions itself, so that the first record
arrives within milliseconds. (librdkafka still looks for a coordinator. So a broker creates
`__consumer_offsets`, as it does for Kafka's console consumer.) Records are written and flushed
before the group's offsets are committed (`consumer`). They are also flushed before the reader waits
for the next records.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.client.errors import ClientError, Refused, TimedOut, Unreachable, check, no_partition
from ottla.client.interrupts import Interrupts, noted
from ottla.client.similar_names import similar
from ottla.tools.admin import groups, offsets
from ottla.tools.admin.offsets import EARLIEST, LATEST, Place
from ottla.tools.stream.consumer import ConsumedRecord, Consumer, record_of
from ottla.tools.stream.record_output import RecordOutput
from ottla.tools.stream.refusals import Refusals
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

POLL_SECONDS = 0.5
GROUP_IDLE_MS = 5000
"""How long a member of a group waits for partitions that other members may still give up."""
LOOK_SECONDS = 10.0
"""How often a reader looks for new partitions, and for new topics that match its pattern. A member
of a group looks only for topics: the group's coordinator assigns partitions."""
SILENCE_SECONDS = 120.0
"""The reader fails if it gets no record for this time although records exist. A client fetches
without a pause, so such a wait is not normal."""
STUCK_SECONDS = 30.0
"""How long a member of a group waits for a coordinator or a leader that is being elected."""
DESCRIBE_SECONDS = 1.0
"""The interval at which a member that waits longer than STUCK_SECONDS checks its group."""
REBALANCING = {"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"}
"""States of a group in which a member waits for other members."""
NEVER = 1 << 62
MAY_COME = (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)
"""Errors in a topic's metadata while it is being created."""

Show = Callable[[ConsumedRecord], bytes]


@dataclass
class Reading:
    """What to read: where each partition begins, where it ends, when to stop.

    `start` is EARLIEST, LATEST or an offset. `starts` has offsets for single partitions. `ends` has
    the offsets at which partitions are done.
    """

    topics: list[str] = field(default_factory=list)
    pattern: str = ""
    group: str = ""
    start: int = LATEST
    starts: dict[Place, int] = field(default_factory=dict)
    stored: bool = True
    """Whether selected partitions begin at the group's committed offsets, if the group has any."""
    anew: bool = False
    """Whether a member of a group begins at `start`, not at the committed offsets."""
    committed: bool = False
    """Whether a partition's end is its last stable offset, as for read_committed."""
    partitions: list[int] | None = None
    all_exist: bool = True
    """Whether a selected partition that does not exist is an error."""
    ends: dict[Place, int] | None = None
    until: int | None = None
    """A partition is done at its first record of this time or later."""
    most: int | None = None
    """Stop after this many records."""
    idle_ms: int | None = None
    """Stop after this time without records."""
    group_ends: dict[Place, int] = field(default_factory=dict)
    """After `idle_ms`, a member of a group stops only if it has joined, and has read its partitions
    up to these offsets."""
    taken: int = 0
    """How many records were printed."""
    finished: set[Place] = field(default_factory=set)
    """Partitions that have reached `until`."""
    reached: dict[Place, int] = field(default_factory=dict)
    """At the end, the reader's position in each of its partitions."""

    @property
    def is_member(self) -> bool:
        """Whether the group's coordinator assigns the partitions."""
        return bool(self.group) and self.partitions is None


def print_records(
    cluster: ClusterClient,
    wanted: Reading,
    properties: Mapping[str, str],
    show: Show,
    counted: Callable[[int], None] = lambda _: None,
) -> None:
    """Prints records until a condition in `wanted` is met; `counted` is called for each record.

    Raises ClientError, BrokenPipeError if the reader of the output has exited, Interrupted after a
    signal. In all cases, the group's offsets are committed only for records that were written.
    """
    out = RecordOutput()
    consumer = Consumer(
        cluster, properties, group=wanted.group, start=wanted.start, anew=wanted.anew,
        settle=out.flush)
    printer = RecordPrinter(cluster, consumer, wanted, out)
    try:
        printer.begin()
        with noted() as interrupts:
            out.check = interrupts.check
            try:
                printer.loop(interrupts, show, counted)
            finally:
                printer.end()
            interrupts.check()
    finally:
        wanted.reached = {place: at for place, at in consumer.positions.items() if at >= 0}
        consumer.close()


class RecordPrinter:
    """One run of a reader: the positions of its partitions, and whether it is done."""

    def __init__(
        self, cluster: ClusterClient, consumer: Consumer, wanted: Reading, out: RecordOutput
    ) -> None:
        self.cluster, self.consumer, self.wanted, self.out = cluster, consumer, wanted, out
        self.ends: dict[Place, int] = {}
        """The end offsets that are not reached yet."""
        self.subscribed: list[str] = []
        self.looked_at = 0.0
        self.since = 0.0
        """When the last record arrived, or a position last moved."""
        self.at: dict[Place, int] = {}
        self.joined = self.told = False
        """Whether the member has joined, and whether its waiting was reported."""
        self.described = 0.0
        """When the group was last checked."""
        self.refusals = Refusals(cluster)

    def begin(self) -> None:
        """Assign the partitions, or join the group."""
        wanted = self.wanted
        if wanted.is_member:
            if not wanted.pattern:
                report_missing(self.cluster, wanted, waits=True)
            self.subscribe()
            return
        places = places_of(self.cluster, wanted)
        if not places:
            report_missing(self.cluster, wanted, waits=False)
        begin = {place: wanted.starts.get(place, wanted.start) for place in places}
        if wanted.group and wanted.stored:
            self.cluster.coordinator_id(wanted.group)  # fails at once if refused, unlike librdkafka
            begin |= self.consumer.committed(places)
        special = {place: start for place, start in begin.items() if start < 0}
        begin |= offsets.required(self.cluster, special, committed=wanted.committed)
        self.consumer.assign(begin)
        self.ends = {p: end for p, end in (wanted.ends or {}).items() if end > begin.get(p, end)}

    def subscribe(self) -> None:
        """Join the group for the topics; with a pattern, for the topics that match it now."""
        wanted = self.wanted
        self.looked_at = time.monotonic()
        topics = sorted(matching(self.cluster, wanted.pattern)) if wanted.pattern else wanted.topics
        if topics and topics != self.subscribed:
            self.consumer.subscribe(topics)
            self.subscribed = topics

    def look_for_more(self, now: float) -> None:
        """Also reads what was created since the reader began: topics that match the pattern and,
        without a group, partitions, which are read from their beginning. A reader that ends at the
        present ends, or reads chosen partitions, looks for nothing."""
        self.looked_at = now
        wanted = self.wanted
        if wanted.ends is not None or wanted.partitions is not None:
            return
        with suppress(Unreachable, TimedOut):   # looks again later
            if wanted.is_member:
                if wanted.pattern:
                    self.subscribe()
                return
            fresh = set(present(self.cluster, wanted)[1]) - self.consumer.positions.keys()
            if fresh:
                found = offsets.at(self.cluster, dict.fromkeys(sorted(fresh), EARLIEST))
                self.consumer.assign_more(      # the others, without a leader, at a later look
                    {place: first.offset for place, first in found.items() if not first.error})

    def loop(
        self, interrupts: Interrupts, show: Show, counted: Callable[[int], None]
    ) -> None:
        """Prints records until a condition in `wanted` is met, or a signal arrives."""
        wanted, consumer = self.wanted, self.consumer
        if wanted.ends is not None and not self.ends and not wanted.group:
            return
        idle = POLL_SECONDS if wanted.idle_ms is None else max(wanted.idle_ms, 1) / 1000
        self.since = self.looked_at = time.monotonic()
        self.refusals.begin(self.since)
        while wanted.most is None or wanted.taken < wanted.most:
            batch = consumer.poll(min(POLL_SECONDS, idle))
            for message in batch:
                if interrupts.number:
                    return
                if self.take(message, show):
                    counted(1)
                    if wanted.taken == wanted.most:
                        return
                    if self.out.full:
                        consumer.settle()
            consumer.settle()
            consumer.commit_when_due()
            if interrupts.number or self.is_done(time.monotonic(), moved=bool(batch)):
                return
            if batch:
                self.refusals.begin(time.monotonic())
            else:
                self.refusals.look(consumer.positions, time.monotonic())
                self.out.check_reader()

    def take(self, message: Any, show: Show) -> bool:
        """Prints a message if it is a wanted record. Returns whether it was printed."""
        place, offset = (message.topic(), message.partition()), message.offset()
        consumer, wanted = self.consumer, self.wanted
        if not consumer.is_next(place, offset) or place in wanted.finished:
            return False
        if message.error() is not None:         # the partition's end
            consumer.advance(place, offset)
            return False
        if wanted.ends is not None and offset >= wanted.ends.get(place, NEVER):
            self.ends.pop(place, None)
            return False
        record = record_of(message)
        if wanted.until is not None and record.timestamp >= wanted.until:
            wanted.finished.add(place)
            consumer.pause(place)
            return False
        self.out.write(show(record))
        consumer.advance(place, offset + 1)
        wanted.taken += 1
        return True

    def is_done(self, now: float, *, moved: bool) -> bool:
        """Whether every end is reached, or no record has arrived for too long. Raises
        ClientError."""
        wanted = self.wanted
        positions = self.consumer.positions
        if moved:
            self.since = now        # so writing the output does not count as silence
        if wanted.group_ends and self.consumer.joined != self.joined:
            self.joined, self.since = self.consumer.joined, now
        # During a rebalance, a member has no partitions. Then it may get others.
        if wanted.finished and positions and wanted.finished >= positions.keys():
            return True
        if wanted.ends is not None and not wanted.group:
            for place in list(self.ends):
                here = positions[place]
                if here != self.at.get(place):      # positions pass skipped records, too
                    self.at[place], self.since = here, now
                if here >= self.ends[place] or place in wanted.finished:
                    del self.ends[place]
            if not self.ends:
                return True
            if now - self.since >= SILENCE_SECONDS:
                (topic, index), end = min(self.ends.items())
                raise ClientError(
                    f"{topic}-{index} has records before offset {end} that were not received"
                    f"{self.refusals.reason()}"
                )
        if now - self.looked_at >= LOOK_SECONDS:
            self.look_for_more(now)
        has_all = wanted.group_ends and positions.keys() >= wanted.group_ends.keys()
        if has_all and not self.unread():
            return True             # this member has all partitions, and has read them
        idle = now - self.since
        if wanted.idle_ms is not None and idle * 1000 >= wanted.idle_ms:
            missing = self.unread() if wanted.group_ends else ""
            if not missing:
                return True
            if wanted.is_member and not self.consumer.joined:
                self.wait_to_join(now, idle)
            elif idle >= STUCK_SECONDS:
                raise ClientError(f"group {wanted.group}: {missing}{self.refusals.reason()}")
        return False

    def wait_to_join(self, now: float, idle: float) -> None:
        """Reports that the reader waits to join its group. Raises ClientError if this takes too
        long. A rebalance may have to wait until the session of a departed member expires."""
        group, seconds = self.wanted.group, self.consumer.rebalance_seconds
        if not self.told:
            self.told = True
            print(f"group {group}: {self.joins_after()}", file=sys.stderr)
        if idle < STUCK_SECONDS or now - self.described < DESCRIBE_SECONDS:
            return
        self.described = now
        state = groups.describe(self.cluster, group).state
        if state not in REBALANCING or idle >= seconds:
            raise ClientError(
                f"group {group}: this reader could not join within {idle:.0f} s. "
                f"The group's state is {state}: see ottla group why {group}")

    def joins_after(self) -> str:
        """The text that says what a member waits for before it joins."""
        group = self.wanted.group
        try:
            state = groups.describe(self.cluster, group).state
        except Refused as refused:
            if refused.code == ErrorCode.GROUP_ID_NOT_FOUND:
                return f"waiting for its coordinator: see ottla group why {group}"
            return f"waiting for its coordinator: {refused}"
        if state in REBALANCING:
            return ("waiting until its members have joined again, or the sessions of departed"
                    f" members have expired: see ottla group why {group}")
        return ("waiting for its coordinator while the group's state is"
                f" {state}: see ottla group why {group}")

    def unread(self) -> str:
        """The text that says what a member of a group still waits for; "" if it waits for
        nothing."""
        if self.wanted.is_member and not self.consumer.joined:
            return "this reader could not join"
        for place, here in self.consumer.positions.items():
            end = self.wanted.group_ends.get(place, 0)
            if here < end and place not in self.wanted.finished:
                return f"records of {place[0]}-{place[1]} before offset {end} have not arrived"
        return ""

    def end(self) -> None:
        """Write the remaining output, unless writing has failed."""
        if not self.out.failed:
            self.consumer.settle()


def matching(cluster: ClusterClient, pattern: str) -> list[str]:
    """The topics whose whole name matches a regular expression."""
    fits = re.compile(pattern).fullmatch
    return [one.name for one in cluster.metadata().topics if fits(one.name) and not one.is_internal]


def places_of(cluster: ClusterClient, wanted: Reading) -> list[Place]:
    """The partitions to read; waits for a topic that does not exist yet."""
    reported = False
    while True:
        described, found = present(cluster, wanted)
        if wanted.partitions is not None:
            if wanted.all_exist:
                for topic in described:
                    check_partitions(topic, wanted.partitions)
            found = [place for place in found if place[1] in wanted.partitions]
        if (
            found
            or wanted.ends is not None
            or wanted.idle_ms is not None
            or wanted.most == 0
        ):
            return sorted(found)
        if not reported:
            reported = True
            report_missing(cluster, wanted, waits=True)
        time.sleep(0.2)


def present(cluster: ClusterClient, wanted: Reading) -> tuple[list[Any], list[Place]]:
    """The metadata of the wanted topics, and the partitions of those that exist."""
    names = matching(cluster, wanted.pattern) if wanted.pattern else wanted.topics
    described = cluster.metadata(names).topics if names else []
    for topic in described:
        if topic.error_code not in MAY_COME:
            check(topic.error_code, what=f"topic {topic.name!r}")
    return described, [
        (topic.name, part.partition_index)
        for topic in described if not topic.error_code for part in topic.partitions
    ]


def report_missing(cluster: ClusterClient, wanted: Reading, *, waits: bool) -> None:
    """Reports topics that do not exist, with similar names, and partitions that do not exist. Also
    reports whether the reader waits for them."""
    known = {topic.name: len(topic.partitions) for topic in cluster.metadata().topics}
    if wanted.pattern:
        print(f"no topic matches {wanted.pattern!r}{'; waiting for one' * waits}", file=sys.stderr)
    for name in wanted.topics:
        if name not in known:
            topic = f"waiting for topic {name!r}, which" if waits else f"topic {name!r}"
            print(f"{topic} does not exist{similar(name, known)}", file=sys.stderr)
            continue
        for index in [one for one in wanted.partitions or () if one >= known[name]]:
            begin = f"waiting for partition {index}: " if waits else ""
            print(begin + no_partition(name, index, known[name]), file=sys.stderr)


def check_partitions(topic: Any, wanted: list[int]) -> None:
    """Raises ClientError for a partition that a topic does not have."""
    missing = sorted(set(wanted) - {part.partition_index for part in topic.partitions})
    if missing and not topic.error_code:
        raise ClientError(no_partition(topic.name, missing[0], len(topic.partitions)))


def read_to_the_end(cluster: ClusterClient, wanted: Reading, *, committed: bool) -> None:
    """Make a member of a group stop once it has read all records that exist at this moment."""
    wanted.idle_ms = GROUP_IDLE_MS
    present = Reading(wanted.topics, wanted.pattern, partitions=wanted.partitions, ends={})
    places = places_of(cluster, present)
    wanted.group_ends = offsets.required(
        cluster, dict.fromkeys(places, LATEST), committed=committed
    )
