"""`ottla consume`: prints records as lines, as JSON, as hexadecimal digits or in a given format."""

from __future__ import annotations

import json
import re
import sys
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.client.similar_names import similar
from ottla.tools.admin import groups, offsets
from ottla.tools.admin.offsets import EARLIEST, LATEST, Place
from ottla.tools.cli.bootstrap import connect, properties_of
from ottla.tools.cli.moments import milliseconds
from ottla.tools.cli.offset_text import BEGINNING, END, check_offset
from ottla.tools.cli.record_format import escaped, formatted
from ottla.tools.progress_line import ProgressLine
from ottla.tools.stream.client_settings import check_together, librdkafka_settings
from ottla.tools.stream.json_lines import line_of
from ottla.tools.stream.reader import Reading, places_of, print_records, read_to_the_end
from ottla.tools.usage import WrongUsage, one_of, without_effect
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

Show = Callable[[Any], bytes]
OUTPUTS = ("lines", "jsonl", "json", "hex")
OFFSETS = ("beginning", "end", "stored")
NAMED = 3
"""How many partitions a message names."""
OFFSET = re.compile("beginning|earliest|start|end|latest|stored|-?[0-9]+|s?@.+")


def consume(options: Namespace) -> None:
    choose_output(options)
    check_output(options)
    choose_offset(options)
    properties = properties_of(options)
    if options.committed:
        properties["isolation.level"] = "read_committed"
    if options.property:
        check_together("Consumer", librdkafka_settings(properties))
    show = printer(options)
    until = milliseconds(options.until) if options.until else None
    with connect(options) as cluster:
        committed = properties.get("isolation.level") == "read_committed"
        written = high_watermarks(cluster, options) if committed and options.exit else {}
        wanted = reading(options, cluster, committed=committed)
        wanted.until, wanted.most = until, options.count
        if options.dry_run and wanted.group:
            without_the_group(cluster, wanted)
        line = progress(options, cluster, wanted)
        try:
            print_records(cluster, wanted, properties, show, line.add)
        finally:
            line.clear()
        if options.count is None or wanted.taken < options.count:
            say_what_is_open(cluster, wanted, written)


def choose_output(options: Namespace) -> None:
    """Check the value of -o: a format or, as in kcat, an offset. Raises WrongUsage."""
    text = options.output
    if text is None or text in OUTPUTS:
        return
    if options.offset is not None or not OFFSET.fullmatch(text):
        raise WrongUsage(f"-o {text}: expected {', '.join(OUTPUTS)}, or an offset"
                         f"{similar(text, (*OUTPUTS, *OFFSETS))}")
    check_offset(text, "-o", OFFSETS)
    options.offset, options.output = text, None


def check_output(options: Namespace) -> None:
    """Raises WrongUsage if a flag would have no effect because of another flag."""
    one_of(output=options.output, format=options.format)
    one_of(format=options.format, key_delimiter=options.key_delimiter)
    if options.output in ("json", "jsonl"):
        without_effect(f"with -o {options.output}, which prints keys anyway",
                       key_delimiter=options.key_delimiter)


def choose_offset(options: Namespace) -> None:
    """Set the default of --offset, and check its value. Raises WrongUsage."""
    if options.offset is None:
        options.offset = "stored" if options.group else "beginning"
    check_offset(options.offset, "--offset", OFFSETS)
    if options.offset == "stored" and not options.group:
        raise WrongUsage("--offset stored needs --group")
    if options.group and options.offset not in ("stored", *BEGINNING, *END):
        raise WrongUsage(
            "with --group, the value of --offset must be `stored`, `beginning` or `end`; the last"
            " two are only for partitions without a committed offset"
        )


def progress(options: Namespace, cluster: ClusterClient, wanted: Reading) -> ProgressLine:
    """The progress line. It is shown if the records go to a file or a pipe, and their number is
    known."""
    line = ProgressLine(options.count or 0)
    if sys.stdout.isatty() or (options.count is None and wanted.ends is None):
        line.wanted = False
    if line.wanted and wanted.ends is not None:
        begin = offsets.required(cluster, dict.fromkeys(wanted.ends, wanted.start)) | wanted.starts
        due = sum(max(0, end - begin[place]) for place, end in wanted.ends.items())
        line.total = min(due, line.total or due)
    return line


def reading(options: Namespace, cluster: ClusterClient, *, committed: bool) -> Reading:
    """Determines where to begin and where to end. With `committed`, partitions end at the last
    stable offset, before open transactions."""
    found = Reading(topics=options.topic, group=options.group or "", committed=committed)
    if options.partition:
        found.partitions = options.partition
    text = options.offset
    if options.exit:
        existing(cluster, options.topic)
    if found.group and text != "stored":
        say_where_it_goes_on(cluster, found, text)
    # With an offset or a time: in new partitions, and where retention passes the position.
    found.start = LATEST if text in END else EARLIEST
    if text.startswith(("s@", "@")):
        found.starts = by_time(cluster, found, milliseconds(text.partition("@")[2]))
    elif text not in ("stored", *BEGINNING, *END):
        found.starts = by_number(cluster, found, int(text), last=text.startswith("-"))
    if options.exit and not found.group:
        asked = Reading(topics=found.topics, partitions=found.partitions, ends={})
        places = places_of(cluster, asked)
        found.ends = offsets.required(
            cluster, dict.fromkeys(places, LATEST), committed=committed
        )
    elif options.exit:
        read_to_the_end(cluster, found, committed=committed)
    return found


def high_watermarks(cluster: ClusterClient, options: Namespace) -> dict[Place, int]:
    """The end of each partition, including open transactions. It must be asked before the last
    stable offsets: only then does a smaller last stable offset prove that a transaction is open."""
    asked = Reading(topics=options.topic, partitions=options.partition or None, ends={})
    return offsets.required(cluster, dict.fromkeys(places_of(cluster, asked), LATEST))


def say_what_is_open(
    cluster: ClusterClient, wanted: Reading, written: dict[Place, int]
) -> None:
    """Reports on stderr the offsets that an open transaction withholds from this reader, or from
    the other members of its group."""
    ends = wanted.group_ends or wanted.ends or {}
    starts = wanted.starts
    if wanted.group and any(end < written.get(place, 0) for place, end in ends.items()):
        committed = groups.committed(cluster, wanted.group)
        starts = {place: offset for place, (offset, _) in committed.items()} | wanted.reached
    held: dict[Place, int] = {}
    for place, end in sorted(ends.items()):
        begin = starts.get(place, wanted.start)
        if begin == LATEST and not wanted.group:        # only what is committed later was wanted
            continue
        if max(begin, end) < written.get(place, 0) and place not in wanted.finished:
            held[place] = max(begin, end)
    if not held:
        return
    count = sum(written[place] - offset for place, offset in held.items())
    where = [f"{topic}-{index} from offset {offset}" for (topic, index), offset in held.items()]
    more = f" and {counted(len(where) - NAMED, 'other partition')}" if len(where) > NAMED else ""
    print(
        f"{counted(count, 'offset')} not read because of an open transaction:"
        f" {', '.join(where[:NAMED])}{more}; to see all transactions: ottla transaction list",
        file=sys.stderr)


def say_where_it_goes_on(cluster: ClusterClient, wanted: Reading, text: str) -> None:
    """Reports on stderr if the group has committed offsets, which take precedence over --offset."""
    group = wanted.group
    if any(
        topic in wanted.topics and (wanted.partitions is None or index in wanted.partitions)
        for topic, index in groups.committed(cluster, group)
    ):
        print(
            f"group {group} continues at its committed offsets; --offset {text} applies only to"
            " partitions without a committed offset. To change the committed offsets:"
            f" ottla group reset {group} --to {text} --yes", file=sys.stderr)


def without_the_group(cluster: ClusterClient, wanted: Reading) -> None:
    """Changes `wanted` so that the command reads what the group would read next, but neither joins
    the group nor commits offsets."""
    committed = groups.committed(cluster, wanted.group)
    wanted.group = ""
    if wanted.group_ends:       # read all partitions, also those of the group's other members
        wanted.ends, wanted.group_ends, wanted.idle_ms = wanted.group_ends, {}, None
    wanted.starts = {
        place: offset for place, (offset, _) in committed.items() if place[0] in wanted.topics
    }


def existing(cluster: ClusterClient, names: list[str]) -> None:
    """Raises an error for topics that do not exist, instead of waiting for them."""
    from ottla.client.errors import check

    for topic in cluster.metadata(names).topics:
        check(topic.error_code, what=f"topic {topic.name!r}")


def by_time(cluster: ClusterClient, wanted: Reading, timestamp: int) -> dict[Place, int]:
    """In each partition, the offset of the first record at or after a time, or else the end."""
    places = places_of(cluster, wanted)
    found = offsets.required(cluster, dict.fromkeys(places, timestamp))
    ends = offsets.required(cluster, dict.fromkeys(places, LATEST))
    return {place: found[place] if found[place] >= 0 else ends[place] for place in places}


def by_number(
    cluster: ClusterClient, wanted: Reading, number: int, *, last: bool
) -> dict[Place, int]:
    """The offset `number` in each partition. With `last`, `number` is negative and counts from the
    partition's end. The offset is limited to the partition's range."""
    places = places_of(cluster, wanted)
    first = offsets.required(cluster, dict.fromkeys(places, EARLIEST))
    # A given offset after the last stable offset stays: the reader waits for the records there.
    ends = offsets.required(
        cluster, dict.fromkeys(places, LATEST), committed=last and wanted.committed)
    return {
        place: min(max(end + number if last else number, first[place]), end)
        for place, end in ends.items()
    }


def printer(options: Namespace) -> Show:
    """The function that converts a record to the bytes to print."""
    if options.format is not None:
        return formatted(options.format)
    kind = options.output or "lines"
    if kind == "jsonl":
        return lambda record: line_of(record).encode() + b"\n"
    if kind == "json":
        return lambda record: (
            json.dumps(json.loads(line_of(record)), indent=2, ensure_ascii=False).encode() + b"\n"
        )
    hexadecimal = kind == "hex"

    def data(value: bytes | None) -> bytes:
        if value is None:
            return b"null" if hexadecimal else b""
        return value.hex().encode() if hexadecimal else value

    if options.key_delimiter is None:
        return lambda record: data(record.value) + b"\n"
    between = escaped(options.key_delimiter)
    return lambda record: data(record.key) + between + data(record.value) + b"\n"
