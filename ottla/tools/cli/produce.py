"""`ottla produce`: lines, JSON lines or a whole file become records."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from ottla.client.errors import ClientError, check
from ottla.client.similar_names import similar
from ottla.tools.cli.bootstrap import connect, properties_of
from ottla.tools.cli.output import done
from ottla.tools.cli.record_format import escaped
from ottla.tools.progress_line import ProgressLine
from ottla.tools.properties import pairs
from ottla.tools.stream.batches import Headers
from ottla.tools.stream.json_lines import parsed
from ottla.tools.stream.reader import MAY_COME
from ottla.tools.stream.writer import Writer
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster

CHUNK = 1 << 16
TOPIC_SECONDS = 5.0
"""How long a topic may take until it exists."""
RECORD_MAX = 64 << 20
"""Maximum bytes of one record in the input; a longer one is an error."""

SIZE_LIMITS = {"message.max.bytes", "max.request.size"}
"""The client's own limit of a record, by librdkafka's name and by Java's."""


def produce(options: Namespace) -> None:
    properties = properties_of(options)
    if options.compression:
        properties["compression.type"] = options.compression
    if options.acks:
        properties["acks"] = options.acks
    if not SIZE_LIMITS & properties.keys():     # the broker knows better what is too large
        properties["message.max.bytes"] = str(RECORD_MAX)
    if options.dry_run:
        rehearse(options)
        return
    # A file that is not there is reported before a topic is created.
    with source(options) as file, connect(options) as cluster:
        cluster.any().version_of(ApiKey.PRODUCE)  # reports an unreachable broker at once
        targets = TargetTopics(cluster)
        targets.check(options.topic, options.partition)
        writer = Writer(cluster, properties)
        try:
            send(options, file, writer, targets)
        except ClientError as failed:
            raise ClientError(f"{failed} ({sent_text(writer)})") from failed
        if sys.stderr.isatty():
            print(sent_text(writer), file=sys.stderr)


def send(options: Namespace, file: BinaryIO, writer: Writer, targets: TargetTopics) -> None:
    """Send everything that is read; what was read before a failure is sent too."""
    if not options.file and sys.stdin.isatty():
        print("one record a line; Ctrl-D at the beginning of a line ends", file=sys.stderr)
    try:
        size = os.fstat(file.fileno()).st_size if options.file else 0
        line = ProgressLine(size, "bytes")
        drawn = line.wanted and size > 0  # standard input may be typed: no line for it
        for topic, key, value, headers, partition, timestamp in records(options, file, targets):
            writer.send(topic, key, value, headers, partition, timestamp)
            if drawn:
                line.reach(file.tell())
        line.clear()
    finally:
        writer.close()


def sent_text(writer: Writer) -> str:
    """How many records were sent, and how many of these were not acknowledged."""
    lost = writer.sent - writer.written
    text = f"{writer.written} record{'s' * (writer.written != 1)} sent"
    return text + (f", {lost} not acknowledged" if lost else "")


class TargetTopics:
    """The topics to send to: whether a partition exists is known before a record is sent."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.partitions: dict[str, int] = {}

    def check(self, topic: str, partition: int | None) -> None:
        """Raises ClientError for a partition that the topic does not have."""
        count = self.partitions.get(topic)
        if count is None:
            count = self.partitions[topic] = existing(self.cluster, topic)
        if partition is not None and not 0 <= partition < count:
            raise ClientError(f"{topic} has no partition {partition}, only 0 to {count - 1}")

    def check_copy(self, topic: str, origin: str | None) -> None:
        """Raises ClientError if the topic that records come from has more partitions. It is looked
        for in the same cluster; elsewhere each record is checked."""
        if origin is None or origin == topic:
            return
        [found] = self.cluster.metadata([origin]).topics
        count = self.partitions[topic]
        if not found.error_code and len(found.partitions) > count:
            raise ClientError(
                f"{origin} has {len(found.partitions)} partitions, {topic} has {count}: grow"
                f" {topic}, or let keys choose the partitions with --any-partition"
            )


def existing(cluster: Cluster, topic: str) -> int:
    """How many partitions a topic has. A broker may create it now, as it does for every producer:
    then say so, for the name may be mistyped. Raises ClientError after TOPIC_SECONDS, where a
    producer would wait for a minute."""
    deadline = time.monotonic() + TOPIC_SECONDS
    create = False
    while True:
        [found] = cluster.metadata([topic], create=create).topics
        if not found.error_code:
            count = len(found.partitions)
            if create:
                others = [one.name for one in cluster.metadata().topics if one.name != topic]
                print(
                    f"topic {topic!r} is new: created with {count} partition{'s' * (count > 1)}"
                    f"{similar(topic, others)}", file=sys.stderr)
            return count
        if found.error_code not in MAY_COME or time.monotonic() > deadline:
            check(found.error_code, what=f"topic {topic!r}")
        if create or found.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            time.sleep(0.1)
        create = create or found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def rehearse(options: Namespace) -> None:
    """Read everything that would be sent, and check it against the topics."""
    from ottla.tools.stream.rehearsal import RehearsalWriter

    with connect(options) as cluster, source(options) as file:
        writer = RehearsalWriter(cluster)
        for topic, key, value, headers, partition, timestamp in records(options, file):
            writer.send(topic, key, value, headers, partition, timestamp)
    done(options, f"sent {writer.sent} records of {writer.size} bytes before compression")


@contextlib.contextmanager
def source(options: Namespace) -> Iterator[BinaryIO]:
    """Standard input, or the file."""
    if options.file:
        with open(options.file, "rb") as file:
            yield file
    else:
        yield sys.stdin.buffer


Sent = tuple[str, bytes | None, bytes | None, Headers, int | None, int | None]


def records(
    options: Namespace, file: BinaryIO, targets: TargetTopics | None = None
) -> Iterator[Sent]:
    """Topic, key, value, headers, partition and timestamp of each record."""
    kind = options.input or "lines"
    topic, partition, key = options.topic, options.partition, fixed_key(options)
    headers: Headers = tuple(
        (name, value.encode()) for name, value in pairs(options.header, "--header").items()
    )
    if kind == "raw":
        data = file.read(RECORD_MAX + 1)
        if len(data) > RECORD_MAX:
            raise ClientError(f"a record of more than {RECORD_MAX} bytes is not sent")
        yield topic, key, data, headers, partition, None
        return
    delimiter = escaped(options.delimiter) if options.delimiter else b"\n"
    if kind == "jsonl":
        yield from json_records(options, pieces(file, delimiter), headers, targets)
        return
    separator = escaped(options.key_delimiter) if options.key_delimiter is not None else None
    for number, line in enumerate(pieces(file, delimiter), 1):
        value: bytes | None = line
        if separator is not None:
            key, found, value = line.partition(separator)
            if not found:
                shown = line[:60].decode(errors="backslashreplace")
                raise ClientError(f"line {number}: no {options.key_delimiter!r} in {shown!r}")
        if options.null:
            yield topic, key or None, value or None, headers, partition, None
        else:
            yield topic, key, value, headers, partition, None


def json_records(
    options: Namespace, lines: Iterator[bytes], headers: Headers, targets: TargetTopics | None
) -> Iterator[Sent]:
    """The records of lines of JSON, with the partitions that they name unless others are wanted."""
    topic, first = options.topic, True
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        one = parsed(line, number)
        partition = options.partition
        if partition is None and not options.any_partition:
            partition = one.partition
            if targets is not None and partition is not None:
                if first:
                    targets.check_copy(topic, one.topic)
                try:
                    targets.check(topic, partition)
                except ClientError as wrong:
                    raise ClientError(
                        f"line {number}: {wrong}; --any-partition lets keys choose") from None
        first = False
        yield topic, one.key, one.value, (*headers, *one.headers), partition, one.timestamp


def fixed_key(options: Namespace) -> bytes | None:
    """The key of --key."""
    return options.key.encode() if options.key is not None else None


def pieces(file: BinaryIO, delimiter: bytes) -> Iterator[bytes]:
    """The parts between delimiters; the last one may lack its delimiter."""
    if delimiter == b"\n":
        for line in iter(lambda: file.readline(RECORD_MAX), b""):
            if len(line) == RECORD_MAX:
                raise ClientError(f"a record of more than {RECORD_MAX} bytes is not sent")
            yield line.removesuffix(b"\n").removesuffix(b"\r")
        return
    rest = b""
    while chunk := file.read(CHUNK):
        rest += chunk
        *whole, rest = rest.split(delimiter)
        yield from whole
        if len(rest) > RECORD_MAX:
            raise ClientError(f"a record of more than {RECORD_MAX} bytes is not sent")
    if rest:
        yield rest
