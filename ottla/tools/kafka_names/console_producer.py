"""kafka-console-producer: turns lines into records, as Apache Kafka's LineMessageReader does."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from ottla.client.errors import ClientError
from ottla.tools.cli.target_topic import create_aloud
from ottla.tools.kafka_names.common import cluster_of, properties_of
from ottla.tools.kafka_names.grammar import Options, UsageError
from ottla.tools.kafka_names.main import Failed, complain
from ottla.tools.properties import pairs, read_properties
from ottla.tools.stream.client_settings import acks_of
from ottla.tools.stream.served_input import served
from ottla.tools.stream.writer import Writer
from ottla.wire.apis import ApiKey

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.tools.stream.batches import Headers

TOOL = "kafka-console-producer"
SETTINGS = {
    "timeout": "linger.ms",
    "batch-size": "batch.size",
    "max-partition-memory-bytes": "batch.size",     # takes precedence over --batch-size
    "max-memory-bytes": "buffer.memory",
    "max-block-ms": "max.block.ms",
    "message-send-max-retries": "retries",
    "retry-backoff-ms": "retry.backoff.ms",
    "request-required-acks": "acks",
    "request-timeout-ms": "request.timeout.ms",
    "metadata-expiry-ms": "metadata.max.age.ms",
    "socket-buffer-size": "send.buffer.bytes",
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DEPRECATED = {
    "property": "reader-property",
    "producer-property": "command-property",
    "producer.config": "command-config",
}


def run(options: Options) -> int:
    """Send every line of stdin."""
    options.check_numbers()
    options.needs("topic")
    address = options.one("bootstrap-server") or options.one("broker-list")
    if not address:
        raise UsageError('Missing required argument "[bootstrap-server]"')
    for old, new in DEPRECATED.items():
        if options.has(old):
            print(
                f"Warning: --{old} is deprecated and will be removed in a future version. "
                f"Use --{new} instead.",
                file=sys.stderr,
            )
    reader = Reader(reader_properties(options))
    settings = producer_settings(options)
    with cluster_of(address, settings) as cluster:
        cluster.any().version_of(ApiKey.PRODUCE)  # reports an unreachable broker at once
        send(cluster, Writer(cluster, settings), reader, options)
    return 0


def send(cluster: ClusterClient, writer: Writer, reader: Reader, options: Options) -> None:
    """Send every line. A refused record is reported, and the next line is sent."""
    topic = options.one("topic")
    try:
        for number, line in enumerate(lines(served(sys.stdin.buffer, writer.serve)), 1):
            record = reader.record(line.rstrip(b"\n").rstrip(b"\r"), number)
            if number == 1:
                create_aloud(cluster, topic, partial(complain, TOOL))
            try:
                writer.send(topic, *record)
                if options.has("sync"):
                    writer.flush()
            except ClientError as refused:
                complain(TOOL, str(refused))
    finally:
        try:
            writer.close()
        except ClientError as failed:
            # Kafka's tool exits with 0, too, but reports a failed record only in its log.
            complain(TOOL, str(failed))


def lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of standard input. On a terminal, prints the prompt > before each line, as Kafka's
    tool does."""
    asking = sys.stdin.isatty()
    while True:
        if asking:
            print(">", end="", flush=True)
        line = file.readline()
        if not line:
            return
        yield line


def reader_properties(options: Options) -> dict[str, str]:
    """The properties of the line reader, from a file and from flags."""
    has_file = options.has("reader-config")
    properties = read_properties(options.one("reader-config")) if has_file else {}
    for flag in ("property", "reader-property"):
        properties.update(pairs(options.all(flag), f"--{flag}"))
    return properties


def producer_settings(options: Options) -> dict[str, str]:
    """The properties of the producer: from a file, from --command-property, and from flags. As in
    Kafka's tool, the latter take precedence over the former."""
    properties = {"linger.ms": "1000", **properties_of(options)}
    for flag in ("producer-property", "command-property"):
        properties.update(pairs(options.all(flag), f"--{flag}"))
    for flag, name in SETTINGS.items():
        if options.has(flag):
            properties[name] = options.one(flag)
    if options.has("compression-codec"):
        codec = options.one("compression-codec", "gzip")
        if codec not in CODECS:
            raise Failed(
                f"Invalid value {codec} for configuration compression.type: String must "
                f"be one of: {', '.join(CODECS)}"
            )
        properties["compression.type"] = codec
    acks_of(properties.get("acks", "all"))
    return properties


class Reader:
    """Splits a line into headers, key and value."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        def text(name: str, default: str) -> bytes:
            return properties.get(name, default).replace("\\t", "\t").encode()

        self.key = properties.get("parse.key", "false").strip().lower() == "true"
        self.headers = properties.get("parse.headers", "false").strip().lower() == "true"
        self.lenient = properties.get("ignore.error", "false").strip().lower() == "true"
        self.key_separator = text("key.separator", "\t")
        self.headers_delimiter = text("headers.delimiter", "\t")
        self.headers_separator = text("headers.separator", ",")
        self.header_key_separator = text("headers.key.separator", ":")
        marker = properties.get("null.marker")
        self.null = marker.encode() if marker is not None else None

    def record(self, line: bytes, number: int) -> tuple[bytes | None, bytes | None, Headers]:
        """Key, value and headers of a line. If a separator is missing, raises Failed with the
        number of the line, unless `ignore.error` is true."""
        headers: list[tuple[str, bytes | None]] = []
        key: bytes | None = None
        rest = line
        if self.headers:
            text, rest = self.split(rest, self.headers_delimiter, "headers delimiter", number)
            headers = self.headers_of(text, number)
        if self.key:
            before, rest = self.split(rest, self.key_separator, "key separator", number)
            key = self.nulled(before) if before is not None else None
        return key, self.nulled(rest), headers

    def split(
        self, line: bytes, separator: bytes, what: str, number: int
    ) -> tuple[bytes | None, bytes]:
        before, found, after = line.partition(separator)
        if found:
            return before, after
        if self.lenient:
            return None, line
        shown = line.decode(errors="backslashreplace")
        raise Failed(f"No {what} found on line number {number}: '{shown}'")

    def headers_of(self, text: bytes | None, number: int) -> list[tuple[str, bytes | None]]:
        if text is None or self.nulled(text) is None:
            return []
        headers: list[tuple[str, bytes | None]] = []
        for part in text.split(self.headers_separator):
            key, separator, value = part.partition(self.header_key_separator)
            if not separator and not self.lenient:
                shown = part.decode(errors="backslashreplace")
                raise Failed(
                    f"No header key separator found in pair '{shown}' on line number {number}"
                )
            headers.append((key.decode(), self.nulled(value) if separator else None))
        return headers

    def nulled(self, text: bytes) -> bytes | None:
        """The text, or None if the text is the marker of null."""
        return None if self.null is not None and text == self.null else text
