"""`ottla produce`: lines, JSON lines or a whole file become records."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import Any, BinaryIO

from ottla.client.command_line import INT32_MOST
from ottla.client.errors import ClientError, NotAllowed, Refused
from ottla.tools.cli.bootstrap import connect, properties_of
from ottla.tools.cli.output import done
from ottla.tools.cli.record_format import escaped
from ottla.tools.cli.target_topic import Copied, TargetTopic, to_be_created
from ottla.tools.progress_line import ProgressLine
from ottla.tools.properties import pairs
from ottla.tools.stream.batches import Headers
from ottla.tools.stream.client_settings import check_together
from ottla.tools.stream.json_lines import Line, parsed
from ottla.tools.stream.served_input import CHUNK, ahead, served
from ottla.tools.stream.writer import CLOSE_SECONDS, Writer, producer_settings
from ottla.tools.usage import WrongUsage, one_of, without_effect
from ottla.wire.apis import ApiKey
from ottla.wire.wording import counted

RECORD_MAX = 64 << 20
"""Maximum bytes of one record in the input; a longer record is an error."""
TOO_LARGE = (
    f"the input has a record of more than {RECORD_MAX} bytes, the most that this command sends")

PARTITION = b'"partition"'
"""The field of a line of JSON that names a partition."""

PATIENCE_SECONDS = 1.0
"""How long Ctrl-C waits for acknowledgements before it prints that it waits."""

SIZE_LIMITS = {"message.max.bytes", "max.request.size"}
"""The client's own limit of a record's size, under librdkafka's name and under Java's."""


def produce(options: Namespace) -> None:
    check_flags(options)
    properties = properties_of(options)
    if options.compression:
        properties["compression.type"] = options.compression
    if options.acks:
        properties["acks"] = options.acks
    if not SIZE_LIMITS & properties.keys():     # the broker decides what is too large
        properties["message.max.bytes"] = str(RECORD_MAX)
    if options.property:
        check_together("Producer", producer_settings(properties))
    if options.dry_run:
        rehearse(options)
        return
    # A missing file is reported before a topic is created.
    with source(options) as file, connect(options) as cluster:
        cluster.any().version_of(ApiKey.PRODUCE)  # reports an unreachable broker at once
        target = TargetTopic(cluster, options.topic)
        target.look(options.partition)
        writer = Writer(cluster, properties)
        try:
            send(options, file, writer, target)
        except (NotAllowed, Refused):      # print the count before the error, not in it
            if writer.written:
                print(sent_text(writer), file=sys.stderr)
            raise
        except ClientError as failed:
            raise ClientError(f"{failed} ({sent_text(writer)})") from failed
        except KeyboardInterrupt:
            if writer.written < writer.sent:
                print(sent_text(writer), file=sys.stderr)
            raise
        if sys.stderr.isatty():
            print(sent_text(writer), file=sys.stderr)


def check_flags(options: Namespace) -> None:
    """Raises WrongUsage for a wrong value, or for a flag that another flag makes useless."""
    for name in ("delimiter", "key_delimiter"):
        if getattr(options, name) is not None and not escaped(getattr(options, name)):
            raise WrongUsage(f"--{name.replace('_', '-')} '': expected one or more characters")
    headers_of(options)
    one_of(partition=options.partition, any_partition=options.any_partition)
    one_of(key=options.key, key_delimiter=options.key_delimiter)
    kind = options.input or "lines"
    if kind != "jsonl":
        without_effect("without -i jsonl", any_partition=options.any_partition)
    if kind != "lines":
        without_effect(f"with -i {kind}", key_delimiter=options.key_delimiter, null=options.null)
    if kind == "jsonl":
        without_effect("with -i jsonl, whose lines have keys", key=options.key)
    if kind == "raw":
        without_effect("with -i raw", delimiter=options.delimiter)


def headers_of(options: Namespace) -> Headers:
    """The headers of every record. A record may have several headers of one name."""
    return tuple(
        (name, value.encode())
        for text in options.header for name, value in pairs([text], "--header").items()
    )


def send(options: Namespace, file: BinaryIO, writer: Writer, target: TargetTopic) -> None:
    """Sends all records. If reading the input fails, or Ctrl-C ends it, the records that were read
    until then are still sent."""
    if not options.file and sys.stdin.isatty():
        print("type one record per line; to finish, press Ctrl-D at the beginning of a line",
              file=sys.stderr)
    size = os.fstat(file.fileno()).st_size if options.file else 0
    line = ProgressLine(size, "bytes")
    drawn = line.wanted and size > 0  # standard input may be typed: show no progress
    if not options.file or not file.seekable():
        file = served(file, writer.serve)
    try:
        for topic, key, value, headers, partition, timestamp in records(options, file, target):
            if target.partitions is None:
                target.check(partition)
            if timestamp is not None:
                target.check_age(timestamp)
            writer.send(topic, key, value, headers, partition, timestamp)
            if drawn:
                line.reach(file.tell())
        line.clear()
    except KeyboardInterrupt:       # a second Ctrl-C in this block ends the command
        line.clear()
        if left := writer.left(PATIENCE_SECONDS):
            print(f"waiting up to {CLOSE_SECONDS} s for the broker to acknowledge"
                  f" {counted(left, 'record')}; to give up, press Ctrl-C again", file=sys.stderr)
        writer.close()
        raise
    except Exception:
        writer.close()
        raise
    writer.close()


def sent_text(writer: Writer) -> str:
    """How many records were acknowledged ("sent"), and how many others were not."""
    lost = writer.sent - writer.written
    text = f"{counted(writer.written, 'record')} sent"
    return text + (f", {lost:,} not acknowledged" if lost else "")


def rehearse(options: Namespace) -> None:
    """Read everything that would be sent, and check it against the topics."""
    from ottla.tools.stream.rehearsal import RehearsalWriter

    def missing(topic: str) -> Any:
        made = to_be_created(cluster, topic)
        if made is not None and options.input == "jsonl" and options.partition is None:
            made.num_partitions = INT32_MOST    # the records determine how many it gets
        return made

    with connect(options) as cluster, source(options) as file:
        writer = RehearsalWriter(cluster, missing)
        for topic, key, value, headers, partition, timestamp in records(options, file):
            writer.send(topic, key, value, headers, partition, timestamp)
    sent = counted(writer.sent, "record")
    done(options, f"sent {sent}, {counted(writer.size, 'byte')} in total before compression")


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
    options: Namespace, file: BinaryIO, target: TargetTopic | None = None
) -> Iterator[Sent]:
    """Topic, key, value, headers, partition and timestamp of each record. With `target`, checks the
    partitions named in lines of JSON."""
    kind = options.input or "lines"
    topic, partition, key = options.topic, options.partition, fixed_key(options)
    headers = headers_of(options)
    if kind == "raw":
        data = file.read(RECORD_MAX + 1)
        if len(data) > RECORD_MAX:
            raise ClientError(TOO_LARGE)
        yield topic, key, data, headers, partition, None
        return
    delimiter = escaped(options.delimiter) if options.delimiter else b"\n"
    if kind == "jsonl":
        yield from json_records(options, file, delimiter, headers, target)
        return
    separator = escaped(options.key_delimiter) if options.key_delimiter is not None else None
    for number, line in enumerate(pieces(file, delimiter), 1):
        value: bytes | None = line
        if separator is not None:
            key, found, value = line.partition(separator)
            if not found:
                shown = line[:60].decode(errors="backslashreplace")
                raise ClientError(
                    f"line {number} has no key delimiter {options.key_delimiter!r}: {shown!r}")
        if options.null:
            yield topic, key or None, value or None, headers, partition, None
        else:
            yield topic, key, value, headers, partition, None


def json_records(
    options: Namespace, file: BinaryIO, delimiter: bytes, headers: Headers,
    target: TargetTopic | None,
) -> Iterator[Sent]:  # fmt: skip
    """The records in lines of JSON. Each goes to the partition that its line names, unless a flag
    chooses the partition."""
    named = options.partition is None and not options.any_partition
    copied = None
    if named and target is not None:
        copied = copied_records(file, delimiter, every=target.partitions is None)
    for number, one in json_lines(file, delimiter):
        partition = one.partition if named else options.partition
        if copied is not None and target is not None:
            target.check_copy(copied.with_line(one))
            copied = None
        if named and target is not None:
            target.check_line(number, partition, delimiter)
        yield options.topic, one.key, one.value, (*headers, *one.headers), partition, one.timestamp


def copied_records(file: BinaryIO, delimiter: bytes, every: bool) -> Copied:
    """Looks ahead at the lines of JSON, and returns the topics and partitions that they name. Reads
    a whole file, but only the beginning of a pipe. The next read gets the same lines again. Unless
    `every` is set, parses only lines that name a partition."""
    if file.seekable():
        here, lines, whole = file.tell(), file, True
    else:
        data, whole = ahead(file, PARTITION)
        lines = io.BytesIO(data if whole else data[: max(data.rfind(delimiter), 0)])
    copied = Copied(whole)
    for number, line in enumerate(pieces(lines, delimiter), 1):
        if line.strip() and (every or PARTITION in line):       # parsing is slow
            copied = copied.with_line(parsed(line, number))
    if file.seekable():
        file.seek(here)
    return copied


def json_lines(file: BinaryIO, delimiter: bytes) -> Iterator[tuple[int, Line]]:
    """The records in lines of JSON, each with its line number. Empty lines are skipped."""
    for number, line in enumerate(pieces(file, delimiter), 1):
        if line.strip():
            yield number, parsed(line, number)


def fixed_key(options: Namespace) -> bytes | None:
    """The key of --key."""
    return options.key.encode() if options.key is not None else None


def pieces(file: BinaryIO, delimiter: bytes) -> Iterator[bytes]:
    """The parts between delimiters; the last one may lack its delimiter."""
    if delimiter == b"\n":
        for line in iter(lambda: file.readline(RECORD_MAX), b""):
            if len(line) == RECORD_MAX:
                raise ClientError(TOO_LARGE)
            yield line.removesuffix(b"\n").removesuffix(b"\r")
        return
    rest = b""
    while chunk := file.read(CHUNK):
        rest += chunk
        *whole, rest = rest.split(delimiter)
        yield from whole
        if len(rest) > RECORD_MAX:
            raise ClientError(TOO_LARGE)
    if rest:
        yield rest
