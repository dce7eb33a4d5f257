"""kcat -C and -G, which print records, and -P, which sends standard input or files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO

from ottla.client.errors import ClientError
from ottla.client.similar_names import similar
from ottla.tools.admin import offsets, topics
from ottla.tools.admin.offsets import EARLIEST, LATEST, Place
from ottla.tools.cli.consume import OFFSETS, by_number, by_time
from ottla.tools.cli.offset_text import number_of
from ottla.tools.cli.produce import RECORD_MAX, pieces
from ottla.tools.cli.target_topic import TargetTopic, create_aloud
from ottla.tools.kcat.listing import COMMITTED, checked, connected
from ottla.tools.kcat.options import Chosen, Misused
from ottla.tools.kcat.text import shower
from ottla.tools.stream.client_settings import check_together, librdkafka_settings
from ottla.tools.stream.reader import Reading, places_of, print_records, read_to_the_end
from ottla.tools.stream.record_output import RecordOutput
from ottla.tools.stream.served_input import served
from ottla.tools.stream.writer import Writer, producer_settings


def properties_of(chosen: Chosen) -> dict[str, str]:
    """The settings of -X and -z, under the names of Java's clients."""
    properties = checked(chosen)
    if chosen.codec:
        properties["compression.type"] = chosen.codec
    return properties


def consume(chosen: Chosen) -> None:
    """Prints records until -c, -e, or a signal such as Ctrl-C ends the command."""
    names = chosen.rest if chosen.mode == "G" else [chosen.topic()]
    if not names:
        raise Misused("-G <group> needs at least one topic: -G <group> <topic> …")
    properties = properties_of(chosen)
    if properties:
        check_together("Consumer", librdkafka_settings(properties))
    properties.setdefault("isolation.level", COMMITTED)
    committed = properties["isolation.level"] == COMMITTED
    until: int | None = None
    for text in chosen.offsets:
        if text.startswith("e@"):
            until = number(text[2:], "-o")
    with connected(chosen) as cluster:
        wanted = Reading(
            topics=names, group=chosen.group, until=until, most=chosen.count, committed=committed)
        if chosen.partition >= 0:
            wanted.partitions = [chosen.partition]
        leaders = dict[Place, int]()
        if not any(name.startswith("^") for name in names):
            leaders = topics.leaders(cluster, names)
        elif chosen.mode == "G":
            wanted.topics, wanted.pattern = [], "|".join(f"(?:{name})" for name in names)
        place_start(chosen, cluster, wanted)
        if chosen.exit and not chosen.group:
            stored = Reading(topics=names, partitions=wanted.partitions, ends={})
            places = places_of(cluster, stored)
            wanted.ends = offsets.required(
                cluster, dict.fromkeys(places, offsets.LATEST), committed=committed
            )
        elif chosen.exit:
            read_to_the_end(cluster, wanted, committed=committed)
        print_records(cluster, wanted, properties, shower(chosen, leaders))
        if wanted.taken != chosen.count or not chosen.count:
            say_ends(chosen, wanted)


def say_ends(chosen: Chosen, wanted: Reading) -> None:
    """Report on stderr that everything is read."""
    if chosen.quiet or not wanted.ends:
        return
    *others, last = sorted(wanted.ends.items())
    for (topic, index), offset in [*others, last]:
        end = ": exiting" if (topic, index) == last[0] else ""
        print(f"% Reached end of topic {topic} [{index}] at offset {offset}{end}", file=sys.stderr)


def place_start(chosen: Chosen, cluster: object, wanted: Reading) -> None:
    """Applies -o, the offset to begin at. Without -o, a group begins at its committed offset, and
    other readers begin at the first record."""
    from ottla.client.cluster import ClusterClient

    assert isinstance(cluster, ClusterClient)
    wanted.start = LATEST if chosen.group else EARLIEST
    for text in chosen.offsets:
        if text.startswith("e@"):
            continue
        if text in ("beginning", "end"):
            wanted.start = EARLIEST if text == "beginning" else LATEST
            wanted.anew, wanted.stored = bool(chosen.group), False
        elif text == "stored":
            if not chosen.group:
                raise Misused("-o stored requires -G")
        elif chosen.group:
            raise Misused(
                f"-o {text} cannot be used with -G: use beginning, end, stored or e@MS")
        elif text.startswith("s@"):
            wanted.starts = by_time(cluster, wanted, number(text[2:], "-o"))
        else:
            wanted.starts = by_number(
                cluster, wanted, number(text, "-o"), last=text.startswith("-"))


def number(text: str, flag: str) -> int:
    """A number from the command line."""
    if not text.removeprefix("-").isdecimal():
        raise Misused(f"{flag} {text}: expected beginning, end, stored, N, -N, s@MS or e@MS"
                      f"{similar(text, OFFSETS)}")
    return number_of(text, flag)


def produce(chosen: Chosen) -> None:
    """Sends standard input, or files. Waits until all records are acknowledged."""
    topic = chosen.topic()
    if chosen.lines and len(chosen.rest) != 1:
        raise Misused("-l requires exactly one file")
    properties = properties_of(chosen)
    if "transactional.id" in properties:
        raise ClientError("Ottla's kcat does not support -X transactional.id")
    if properties:
        check_together("Producer", producer_settings(properties))
    with connected(chosen) as cluster:
        cluster.any()           # an unreachable broker is reported at once
        if chosen.partition >= 0:
            TargetTopic(cluster, topic).look(chosen.partition)
        writer, out = Writer(cluster, properties), RecordOutput() if chosen.tee else None
        try:
            for count, (key, value) in enumerate(records(chosen, writer.serve)):
                if chosen.count is not None and count >= chosen.count:
                    break
                if not count:
                    create_aloud(cluster, topic, lambda said: print(f"% {said}", file=sys.stderr))
                send(chosen, writer, topic, key, value, out)
        finally:
            writer.close()


def send(
    chosen: Chosen, writer: Writer, topic: str, key: bytes | None, value: bytes | None,
    out: RecordOutput | None,
) -> None:  # fmt: skip
    """Sends one record. With -T, also prints its value."""
    partition = chosen.partition if chosen.partition >= 0 else None
    writer.send(topic, key, value, chosen.headers, partition)
    if out is not None:
        out.write((value or b"") + chosen.delimiter)
        out.flush()


def records(
    chosen: Chosen, serve: Callable[[], None]
) -> Iterator[tuple[bytes | None, bytes | None]]:
    """The key and the value of each record. A file is one record; with -l, or without files, a text
    between two delimiters is one record."""
    if chosen.rest and not chosen.lines:
        for name in chosen.rest:
            with open(name, "rb") as file:
                data = file.read(RECORD_MAX + 1)
            if len(data) > RECORD_MAX:
                raise ClientError(
                    f"{name} has more than {RECORD_MAX} bytes, the maximum size of a record")
            yield chosen.key, data
        return
    if chosen.lines:
        with open(chosen.rest[0], "rb") as file:
            yield from split(chosen, file)
        return
    yield from split(chosen, served(sys.stdin.buffer, serve))


def split(chosen: Chosen, file: BinaryIO) -> Iterator[tuple[bytes | None, bytes | None]]:
    """A record for each piece between delimiters. Empty pieces are skipped, as in kcat."""
    for piece in pieces(file, chosen.delimiter):
        if not piece:
            continue
        key, value = chosen.key, piece
        if chosen.key_delimiter:
            before, found, after = piece.partition(chosen.key_delimiter)
            if found:
                key, value = before, after
        if chosen.null:
            yield key or None, value or None
        else:
            yield key, value
