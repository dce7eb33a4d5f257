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
from ottla.tools.cli.bootstrap import connect, properties_of
from ottla.tools.cli.output import done
from ottla.tools.cli.record_format import escaped
from ottla.tools.progress_line import ProgressLine
from ottla.tools.properties import pairs
from ottla.tools.stream.batches import Headers
from ottla.tools.stream.client_settings import bootstrap_servers
from ottla.tools.stream.json_lines import parsed
from ottla.tools.stream.reader import MAY_COME
from ottla.tools.stream.writer import open_writer
from ottla.wire.apis import ApiKey

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster

CHUNK = 1 << 16
TOPIC_SECONDS = 5.0
"""How long a topic may take until it exists."""
RECORD_MAX = 64 << 20
"""Maximum bytes of one record in the input; a longer one is an error."""


def produce(options: Namespace) -> None:
    properties = properties_of(options)
    if options.compression:
        properties["compression.type"] = options.compression
    if options.acks:
        properties["acks"] = options.acks
    headers = [(name, value.encode()) for name, value in pairs(options.header, "--header").items()]
    if options.dry_run:
        rehearse(options, headers)
        return
    client = options.client or "kafka-python"
    with connect(options) as cluster:
        cluster.any().version_of(ApiKey.PRODUCE)  # reports an unreachable broker at once
        existing(cluster, options.topic)
        servers = bootstrap_servers(cluster, client)
    writer = open_writer(servers, properties, client)
    try:
        with source(options) as file:
            size = os.fstat(file.fileno()).st_size if options.file else 0
            line = ProgressLine(size, "bytes")
            drawn = line.wanted and size > 0  # standard input may be typed: no line for it
            for topic, key, value, more, partition, timestamp in records(options, file):
                writer.send(topic, key, value, [*headers, *more], partition, timestamp)
                if drawn:
                    line.reach(file.tell())
            line.clear()
    finally:
        writer.close()
        if sys.stderr.isatty():
            print(f"sent {writer.sent} records", file=sys.stderr)


def existing(cluster: Cluster, topic: str) -> None:
    """Returns when the topic exists; a broker may create it now. Raises ClientError after
    TOPIC_SECONDS, where a producer would wait for a minute."""
    deadline = time.monotonic() + TOPIC_SECONDS
    while True:
        [found] = cluster.metadata([topic], create=True).topics
        if not found.error_code:
            return
        if found.error_code not in MAY_COME or time.monotonic() > deadline:
            check(found.error_code, what=f"topic {topic!r}")
        time.sleep(0.1)


def rehearse(options: Namespace, headers: list[tuple[str, bytes]]) -> None:
    """Read everything that would be sent, and check it against the topics."""
    from ottla.tools.stream.rehearsal import RehearsalWriter

    with connect(options) as cluster, source(options) as file:
        writer = RehearsalWriter(cluster)
        for topic, key, value, more, partition, timestamp in records(options, file):
            writer.send(topic, key, value, [*headers, *more], partition, timestamp)
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


def records(options: Namespace, file: BinaryIO) -> Iterator[Sent]:
    """Topic, key, value, headers, partition and timestamp of each record."""
    kind = options.input or "lines"
    if kind == "raw":
        data = file.read(RECORD_MAX + 1)
        if len(data) > RECORD_MAX:
            raise ClientError(f"a record of more than {RECORD_MAX} bytes is not sent")
        yield options.topic, fixed_key(options), data, (), options.partition, None
        return
    delimiter = escaped(options.delimiter) if options.delimiter else b"\n"
    for number, line in enumerate(pieces(file, delimiter), 1):
        if kind == "jsonl":
            if not line.strip():
                continue
            one = parsed(line, number)
            partition = options.partition
            if partition is None and not options.any_partition:
                partition = one.partition
            yield options.topic, one.key, one.value, one.headers, partition, one.timestamp
            continue
        key, value = fixed_key(options), line
        if options.key_delimiter is not None:
            separator = escaped(options.key_delimiter)
            before, found, value = line.partition(separator)
            if not found:
                shown = line[:60].decode(errors="backslashreplace")
                raise ClientError(f"line {number}: no {options.key_delimiter!r} in {shown!r}")
            key = before
        if options.null:
            key = key or None
            yield options.topic, key, value or None, (), options.partition, None
        else:
            yield options.topic, key, value, (), options.partition, None


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
