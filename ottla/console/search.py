"""Records of a topic, found on the server within a budget of records, bytes and seconds.

The budget limits what a search costs the cluster. The answer says what was searched and why the
search ended. Unless the search began at the newest records, the answer has the offsets at which the
next search continues.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ottla.client.errors import ClientError
from ottla.console.filters import Filters, Test
from ottla.console.schemas import Schemas
from ottla.console.shown import SHOWN_MAX, headers_shown, shown
from ottla.tools.stream.client_settings import librdkafka_settings, open_client

POLL_SECONDS = 0.2
POLLED_RECORDS = 500
TELL_SECONDS = 0.5
Tell = Callable[[dict[str, float]], None]
"""A function that gets what a search has read so far."""
IDLE_SECONDS = 5.0
"""After a failed connection, a broker counts as unreachable if it sends nothing for this time."""
SILENT_SECONDS = 20.0
"""Without a failed connection, a broker counts as unreachable only after this time: a busy broker
may take longer than a search's budget."""
NEWEST_STEP = 1000
"""Records per partition in the first step of a filtered search for the newest records."""
CLIENT: dict[str, Any] = {
    "group.id": "ottla-console",            # never joined: partitions are assigned by hand
    "client.id": "ottla-console",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 50,
    "fetch.queue.backoff.ms": 100,          # after a full queue; the default is a second
    # Small limits (of one partition, and of all), so that the broker serves other clients in
    # between.
    "fetch.message.max.bytes": 262_144,
    "fetch.max.bytes": 262_144,
    "message.max.bytes": 262_144,           # for producers, but fetch.max.bytes may not be less
    "queued.max.messages.kbytes": 1024,     # the small queue limits a search to 40 MiB/s
    # librdkafka pauses once this many records wait for the search; each of them takes 350 bytes.
    "queued.min.messages": 20_000,
    "receive.message.max.bytes": 200_000_000,
    "socket.connection.setup.timeout.ms": 5000,
}


@dataclass(frozen=True)
class Budget:
    """What a search may read."""

    records: int = 100_000
    bytes: int = 64 << 20
    seconds: float = 10.0


ANSWER_SIZE_MAX = 16 << 20
"""Bytes of keys and values that are shown in one answer."""
RECORDS_MAX, BYTES_MAX, SECONDS_MAX, LIMIT_MAX = 100_000_000, 20 << 30, 300.0, 5000
LOG_APPEND_TIME = 2
"""The kind of a timestamp that the broker has set."""


@dataclass
class Spent:
    """What a search has read."""

    records: int = 0
    bytes: int = 0
    outside: int = 0
    """Records that were read and are outside the search's time range."""
    shown: int = 0
    began: float = field(default_factory=time.monotonic)
    ended: str = "end"
    tell: Tell = lambda _: None
    told: float = field(default_factory=time.monotonic)

    def so_far(self) -> dict[str, float]:
        """What has been read, in the form of an answer."""
        return {"records": self.records, "bytes": self.bytes,
                "seconds": round(time.monotonic() - self.began, 3), "outside": self.outside}

    def over(self, budget: Budget) -> str | None:
        """The part of the budget that is used up, or None. Calls `tell` from time to time."""
        if (now := time.monotonic()) - self.told > TELL_SECONDS:
            self.told = now
            self.tell(self.so_far())
        if self.records >= budget.records:
            return "records"
        if self.bytes >= budget.bytes:
            return "bytes"
        if self.shown >= ANSWER_SIZE_MAX:
            return "answer"
        return "seconds" if now - self.began >= budget.seconds else None


@dataclass
class Wanted:
    """A search: where it starts, in which partitions, with which filters and limits."""

    topic: str
    start: str = "newest"
    """`newest`, `oldest`, `offset:N`, `time:MS`, or `at:PARTITION=OFFSET,…` to continue a
    search. If that search began at a time, `since=MS` is the last item of the list."""
    partitions: tuple[int, ...] = ()
    filters: Filters = field(default_factory=Filters)
    limit: int = 100
    budget: Budget = field(default_factory=Budget)
    committed: bool = False
    schemas: Schemas | None = None
    until: int | None = None
    """The search finds only records with earlier timestamps."""

    @cached_property
    def since(self) -> int | None:
        """The search finds only records with this timestamp or a later one."""
        match = re.fullmatch(r"(?:time:|at:.*\bsince=)(\d{1,18})", self.start)
        return int(match[1]) if match is not None else None

    @property
    def looks_far(self) -> bool:
        """Whether the search may read many records to find a few."""
        return bool(self.filters.tests()) or (self.since, self.until) != (None, None)

    def in_time(self, message: Any) -> bool:
        """Whether a record is in the time range. In a log, timestamps may be in any order."""
        if self.since is None and self.until is None:
            return True
        _, timestamp = message.timestamp()
        return (self.since or 0) <= timestamp and (self.until is None or timestamp < self.until)

    def passed(self, message: Any) -> bool:
        """Whether all records after this one are certainly too new. Timestamps that the broker sets
        never decrease. For other timestamps, returns False."""
        kind, timestamp = message.timestamp()
        return self.until is not None and kind == LOG_APPEND_TIME and timestamp >= self.until


class Reader:
    """A consumer of one search: it belongs to no group and commits nothing."""

    def __init__(self, properties: Mapping[str, str], bootstrap: str, committed: bool) -> None:
        level = "read_committed" if committed else "read_uncommitted"
        self.consumer = open_client("Consumer", {
            **librdkafka_settings(properties), **CLIENT, "bootstrap.servers": bootstrap,
            "isolation.level": level, "error_cb": self._note,
        })
        self.failure: str | None = None

    def _note(self, error: Any) -> None:
        self.failure = error.str()

    def read(
        self, topic: str, ranges: Mapping[int, tuple[int, int]], stop: threading.Event,
        *, endless: bool = False, passed: Test = lambda _: False,
    ) -> Iterator[Any]:
        """Yields the records of these partitions between two offsets, as they arrive, and None
        after a moment without records. An endless read waits for records that are not written yet.
        The read of a partition ends early at a record for which `passed` holds."""
        from confluent_kafka import KafkaError, TopicPartition

        remaining = {index: end for index, (begin, end) in ranges.items() if begin < end}
        self.consumer.assign(
            [TopicPartition(topic, index, ranges[index][0]) for index in remaining])
        heard = time.monotonic()
        while remaining and not stop.is_set():
            batch = self._arrived()
            patience = IDLE_SECONDS if self.failure else SILENT_SECONDS
            if not endless and not batch and time.monotonic() - heard > patience:
                raise ClientError(
                    f"{topic}: no records were received within {patience:g} s"
                    + (f": {self.failure}" if self.failure else ""))
            heard = time.monotonic() if batch else heard
            for message in batch:
                index, error = message.partition(), message.error()
                at_end = error is not None and error.code() == KafkaError._PARTITION_EOF
                if error is not None and not at_end:
                    raise ClientError(f"{topic}-{index}: {error.str()}")
                if index not in remaining or (at_end and endless):
                    continue
                if error is None and message.offset() < remaining[index]:
                    yield message
                if message.offset() >= remaining[index] - 1 or (error is None and passed(message)):
                    del remaining[index]
            if not batch:
                yield None                  # lets the caller check its clock

    def _arrived(self) -> list[Any]:
        """The records that have arrived; waits for the first one only, for POLL_SECONDS at most."""
        arrived: list[Any] = self.consumer.consume(POLLED_RECORDS, 0)
        return arrived or self.consumer.consume(1, POLL_SECONDS)

    def close(self) -> None:
        """Close the consumer."""
        self.consumer.close()


def search(
    wanted: Wanted, bounds: Mapping[int, tuple[int, int]], begins: Mapping[int, int],
    reader: Reader, stop: threading.Event, tell: Tell = lambda _: None,
) -> dict[str, Any]:
    """Search for records. `bounds` has the first and next offset of each partition. `begins` has
    the offset in each partition at which the search starts. A search for the newest records ignores
    `begins`, and its answer has no offsets at which another search could continue."""
    tests, spent = wanted.filters.tests(wanted.schemas), Spent(tell=tell)
    following: dict[int, int] = {}
    if wanted.start == "newest":
        rows = newest(wanted, bounds, tests, spent, reader, stop)
    else:
        rows, following = forward(wanted, bounds, begins, tests, spent, reader, stop)
    return {
        "rows": rows,
        "ended": spent.ended,
        "scanned": spent.so_far(),
        "budget": {"records": wanted.budget.records, "bytes": wanted.budget.bytes,
                   "seconds": wanted.budget.seconds},
        "next": "at:" + ",".join(
            [f"{index}={offset}" for index, offset in following.items()]
            + [f"since={wanted.since}"] * (wanted.since is not None)) if following else None,
    }


def forward(
    wanted: Wanted, bounds: Mapping[int, tuple[int, int]], begins: Mapping[int, int],
    tests: list[Test], spent: Spent, reader: Reader, stop: threading.Event,
) -> tuple[list[dict[str, Any]], dict[int, int]]:
    """Records from the offsets in `begins` on, and where the search ended in each partition."""
    following = {index: begins.get(index, begin) for index, (begin, _) in bounds.items()}
    ranges = {index: (following[index], end) for index, (_, end) in bounds.items()}
    rows = []
    for message in reader.read(wanted.topic, ranges, stop, passed=wanted.passed):
        if message is not None:
            following[message.partition()] = message.offset() + 1
            if counted(message, wanted, tests, spent):
                rows.append(row_of(message, spent, wanted.schemas))
                if len(rows) >= wanted.limit:
                    spent.ended = "limit"
                    break
        if (over := spent.over(wanted.budget)) is not None:
            spent.ended = over
            break
    if spent.ended == "end":
        following = {index: end for index, (_, end) in bounds.items()}
    return rows, following


def newest(
    wanted: Wanted, bounds: Mapping[int, tuple[int, int]], tests: list[Test], spent: Spent,
    reader: Reader, stop: threading.Event,
) -> list[dict[str, Any]]:
    """The newest records that pass the tests, searched backwards in growing steps."""
    step = NEWEST_STEP if wanted.looks_far else wanted.limit
    lows = {index: end for index, (_, end) in bounds.items()}
    rows: list[dict[str, Any]] = []
    while not stop.is_set() and len(rows) < wanted.limit and spent.ended == "end":
        ranges = {
            index: (max(bounds[index][0], low - step), low) for index, low in lows.items()
            if low > bounds[index][0]
        }
        if not ranges:
            break
        matches: list[dict[str, Any]] = []
        for message in reader.read(wanted.topic, ranges, stop, passed=wanted.passed):
            if message is not None and counted(message, wanted, tests, spent):
                matches.append(row_of(message, spent, wanted.schemas))
                if len(matches) > 2 * LIMIT_MAX:
                    matches = latest(matches, LIMIT_MAX)
            if (over := spent.over(wanted.budget)) is not None:
                spent.ended = over
                break
        rows += matches
        lows |= {index: begin for index, (begin, _) in ranges.items()}
        step = min(step * 4, 1_000_000)
    if len(rows) >= wanted.limit:
        spent.ended = "limit"
    return latest(rows, wanted.limit)


def latest(rows: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """The newest rows by timestamp, newest first; rows with equal timestamps by offset."""
    rows.sort(key=lambda row: (row["timestamp"] or 0, row["offset"]), reverse=True)
    return rows[:count]


def counted(message: Any, wanted: Wanted, tests: list[Test], spent: Spent) -> bool:
    """Counts a record; returns whether it is in the time range and passes all tests."""
    spent.records += 1
    spent.bytes += len(message.value() or b"") + len(message.key() or b"")
    if not wanted.in_time(message):
        spent.outside += 1
        return False
    return all(test(message) for test in tests)


def row_of(
    message: Any, spent: Spent | None = None, schemas: Schemas | None = None
) -> dict[str, Any]:
    """A record as a page shows it."""
    if spent is not None:
        spent.shown += sum(
            min(len(data), SHOWN_MAX) for data in (message.key() or b"", message.value() or b""))
    kind, timestamp = message.timestamp()
    headers = message.headers() or []
    return {
        "id": f"{message.partition()}/{message.offset()}",
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp if kind else None,
        "timestamp_type": {0: None, 1: "CreateTime", 2: "LogAppendTime"}.get(kind),
        "key": shown(message.key(), schemas=schemas),
        "value": shown(message.value(), schemas=schemas),
        "headers": headers_shown(headers),
        "header_count": len(headers),
    }
