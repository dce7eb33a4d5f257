"""kafka-console-consumer: records as DefaultMessageFormatter prints them."""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ottla.client.command_line import is_number
from ottla.tools.admin.offsets import EARLIEST, LATEST
from ottla.tools.json_form import java_double
from ottla.tools.kafka_names.common import cluster_of, java_regex, properties_of
from ottla.tools.kafka_names.grammar import Options, UsageError
from ottla.tools.kafka_names.main import Failed
from ottla.tools.properties import pairs, read_properties
from ottla.tools.stream.reader import Reading, print_records

DEPRECATED = {
    "property": "formatter-property",
    "consumer-property": "command-property",
    "consumer.config": "command-config",
}
FORMATTERS = ("DefaultMessageFormatter", "NoOpMessageFormatter", "LoggingMessageFormatter")
COMMA = re.compile(r",(?![^{]*\})")
"""A comma between patterns; a comma in a{1,2} belongs to one pattern."""
TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}


def run(options: Options) -> int:
    """Prints records until the maximum is reached, the timeout expires, or the command is
    stopped."""
    check(options)
    for old, new in DEPRECATED.items():
        if options.has(old):
            print(
                f"Option --{old} is deprecated and will be removed in a future version. "
                f"Use --{new} instead.",
                file=sys.stderr,
            )
    properties = consumer_properties(options)
    wanted = reading(options, properties)
    if options.number("max-messages", -1) >= 0:
        wanted.most = options.number("max-messages", -1)
    show = formatter(options)
    with cluster_of(options.one("bootstrap-server"), properties) as cluster:
        cluster.any()
        try:
            print_records(cluster, wanted, properties, show)
        finally:
            print(f"Processed a total of {wanted.taken} messages", file=sys.stderr)
    return 0


def check(options: Options) -> None:
    """Raises the errors that Kafka's ConsoleConsumerOptions raises."""
    if options.has("topic") + (options.has("include") or options.has("whitelist")) != 1:
        raise UsageError("Exactly one of the following arguments is required: [topic], [include]")
    options.needs("bootstrap-server")
    if options.has("partition") and not options.has("topic"):
        raise UsageError("The topic is required when partition is specified.")
    if options.has("offset") and not options.has("partition"):
        raise UsageError("The partition is required when offset is specified.")
    if options.has("offset") and options.has("from-beginning"):
        raise UsageError("Options from-beginning and offset cannot be specified together.")
    offset = options.one("offset")
    if offset and offset.lower() not in ("earliest", "latest") and not is_number(offset):
        raise UsageError(
            f"The provided offset value '{offset}' is incorrect. Valid values are "
            "'earliest', 'latest', or a non-negative long."
        )
    level = options.one("isolation-level", "read_uncommitted")
    if level not in ("read_committed", "read_uncommitted"):
        raise UsageError(
            f"isolation level {level!r} is neither read_committed nor read_uncommitted"
        )
    name = options.one("formatter").rpartition(".")[2]
    if name and name not in FORMATTERS:
        raise UsageError(f"formatter {name} is not one of {', '.join(FORMATTERS)}")


def consumer_properties(options: Options) -> dict[str, str]:
    """The properties of the consumer, from a file and from flags."""
    properties = properties_of(options)
    for flag in ("consumer-property", "command-property"):
        properties.update(pairs(options.all(flag), f"--{flag}"))
    if options.has("isolation-level"):
        properties["isolation.level"] = options.one("isolation-level")
    groups = {one for one in (options.one("group"), properties.get("group.id", "")) if one}
    if len(groups) > 1:
        shown = ", ".join(f"'{one}'" for one in sorted(groups))
        raise UsageError(
            "The group ids provided in different places (directly using '--group', via "
            "'--consumer-property', or via '--consumer.config') do not match. "
            f"Detected group ids: {shown}"
        )
    if groups and options.has("partition"):
        raise UsageError("Options group and partition cannot be specified together.")
    reset = properties.get("auto.offset.reset", "earliest")
    if options.has("from-beginning") and reset != "earliest":
        raise Failed(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}',"
            " please remove one option"
        )
    return properties


def reading(options: Options, properties: Mapping[str, str]) -> Reading:
    """The partitions to read."""
    offset = options.one("offset", "latest").lower()
    start = EARLIEST if offset == "earliest" or options.has("from-beginning") else LATEST
    if properties.get("auto.offset.reset") == "earliest" and not options.has("partition"):
        start = EARLIEST        # with --partition, only flags say where to begin
    if offset.isdecimal():
        start = int(offset)
    include = options.one("include") or options.one("whitelist")
    java_regex(include)             # raises Failed for text that is no pattern
    idle = options.number("timeout-ms", -1)
    return Reading(
        topics=[options.one("topic")] if options.has("topic") else [],
        pattern=COMMA.sub("|", include),
        group=options.one("group") or properties.get("group.id", ""),
        start=start,
        committed=properties.get("isolation.level") == "read_committed",
        all_exist=False,        # Kafka's tool waits for a missing partition
        partitions=[options.number("partition", 0)] if options.has("partition") else None,
        idle_ms=idle if idle >= 0 else None,
    )


def formatter(options: Options) -> Callable[[Any], bytes]:
    """The function that converts a record to text."""
    if options.one("formatter").endswith("NoOpMessageFormatter"):
        return lambda record: b""
    properties: dict[str, str] = {}
    if options.has("formatter-config"):
        properties.update(read_properties(options.one("formatter-config")))
    for flag in ("property", "formatter-property"):
        properties.update(pairs(options.all(flag), f"--{flag}"))
    for part in ("key", "value"):
        if options.has(f"{part}-deserializer"):
            properties[f"{part}.deserializer"] = options.one(f"{part}-deserializer")
    logged = options.one("formatter").endswith("LoggingMessageFormatter")
    return Formatter(properties, logged, options.has("skip-message-on-error")).show


class Formatter:
    """Formats records as DefaultMessageFormatter does."""

    def __init__(self, properties: Mapping[str, str], logged: bool, lenient: bool) -> None:
        def switch(name: str, default: str = "false") -> bool:
            return properties.get(f"print.{name}", default).strip().lower() == "true"

        def text(name: str, default: str) -> bytes:
            given = properties.get(name, default)
            return given.replace("\\t", "\t").replace("\\n", "\n").encode()

        self.timestamp, self.key = switch("timestamp"), switch("key")
        self.offset, self.partition = switch("offset"), switch("partition")
        self.headers, self.epoch = switch("headers"), switch("epoch")
        self.value = switch("value", "true")
        self.key_separator = text("key.separator", "\t")
        self.line_separator = text("line.separator", "\n")
        self.headers_separator = text("headers.separator", ",")
        self.null = text("null.literal", "null")
        self.key_of = deserializer(properties.get("key.deserializer", ""))
        self.value_of = deserializer(properties.get("value.deserializer", ""))
        self.header_of = deserializer(properties.get("headers.deserializer", ""))
        self.logged, self.lenient = logged, lenient

    def show(self, record: Any) -> bytes:
        """The text of a record. If the record cannot be deserialized, raises Failed; with
        --skip-message-on-error, returns an empty text instead."""
        try:
            return self.key_separator.join(self.parts(record)) + self.line_separator
        except (struct.error, ValueError) as wrong:
            if self.lenient:
                return b""
            raise Failed(
                f"{record.topic}-{record.partition}: the record at offset {record.offset} cannot be"
                f" deserialized: {wrong}"
            ) from wrong

    def parts(self, record: Any) -> list[bytes]:
        """The printed parts of a record, in Kafka's order."""
        pieces: list[bytes] = []
        if self.timestamp:
            kind = TIMESTAMP_TYPES.get(record.timestamp_type)
            pieces.append(f"{kind}:{record.timestamp}".encode() if kind else b"NO_TIMESTAMP")
        if self.partition:
            pieces.append(b"Partition:%d" % record.partition)
        if self.offset:
            pieces.append(b"Offset:%d" % record.offset)
        if self.epoch:
            pieces.append(b"Epoch:NOT_PRESENT")
        if self.headers:
            pairs_of = [
                key.encode() + b":" + self.shown(value, self.header_of)
                for key, value in record.headers
            ]
            pieces.append(self.headers_separator.join(pairs_of) or b"NO_HEADERS")
        if self.key:
            pieces.append(self.shown(record.key, self.key_of))
        if self.value:
            pieces.append(self.shown(record.value, self.value_of))
        return pieces

    def shown(self, data: bytes | None, reader: Callable[[bytes], bytes]) -> bytes:
        """A key, value or header as text."""
        return self.null if data is None else reader(data)


def deserializer(name: str) -> Callable[[bytes], bytes]:
    """The function that converts bytes to text as Kafka's deserializer of this name does."""
    kind = name.rpartition(".")[2].removesuffix("Deserializer")
    numbers = {"Long": ">q", "Integer": ">i", "Short": ">h", "Boolean": ">?"}
    if kind in numbers:
        return lambda data: str(struct.unpack(numbers[kind], data)[0]).lower().encode()
    if kind in ("Double", "Float"):
        form = ">d" if kind == "Double" else ">f"
        return lambda data: java_double(struct.unpack(form, data)[0]).encode()
    return lambda data: data
