"""The small text files of a log directory, in Kafka's formats, each written atomically.

An offset checkpoint: version, number of entries, then one line for each partition with its offset.

    0
    2
    events 0 1312
    events 1 977
"""

from collections.abc import Iterator, Mapping

from ottla.log.files.disk import Disk

Partition = tuple[str, int]
"""A topic's name and a partition's number."""


def partition_of(name: str) -> Partition | None:
    """The partition whose directory has this name; None if no partition's directory can have it."""
    topic, dash, number = name.rpartition("-")
    return (topic, int(number)) if dash and topic and number.isdecimal() else None


Offsets = Mapping[Partition, int]

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANED = "cleaner-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"


def offset_lines(offsets: Mapping[Partition, int]) -> Iterator[str]:
    """Yields the lines of an offset checkpoint one by one. With 100,000 partitions this takes long,
    so the task that writes a checkpoint pauses between lines."""
    yield "0"
    yield str(len(offsets))
    for (topic, partition), offset in offsets.items():
        yield f"{topic} {partition} {offset}"


def encode_offsets(offsets: Mapping[Partition, int]) -> bytes:
    """An offset checkpoint's text."""
    return join_lines(list(offset_lines(offsets)))


def join_lines(lines: list[str]) -> bytes:
    """The text made of these lines."""
    return ("\n".join(lines) + "\n").encode()


def decode_offsets(data: bytes) -> dict[Partition, int]:
    """Parses an offset checkpoint's text. A new file of Kafka's is empty, so an empty text is valid
    and has no entries. Raises ValueError."""
    if not data:
        return {}
    lines = data.decode().split("\n")
    if lines[0] != "0":
        raise ValueError(f"an offset checkpoint has version {lines[0]!r}, expected 0")
    if len(lines) < 2:
        raise ValueError("an offset checkpoint lacks its second line, the number of entries")
    count = int(lines[1])
    entries = [line.split(" ") for line in lines[2 : 2 + count]]
    if len(entries) != count or any(len(entry) != 3 for entry in entries):
        raise ValueError(f"an offset checkpoint does not have {count} valid entries")
    return {(topic, int(partition)): int(offset) for topic, partition, offset in entries}


def read_offsets(disk: Disk, path: str) -> dict[Partition, int]:
    """An offset checkpoint's entries; empty if the file is missing or damaged.

    A log without a recovery point is recovered from its beginning, which is slow but correct.
    """
    try:
        return decode_offsets(disk.read_bytes(path))
    except (FileNotFoundError, ValueError):
        return {}


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The text of a Java properties file."""
    return "".join(f"{key}={value}\n" for key, value in properties.items()).encode()


def decode_properties(data: bytes) -> dict[str, str]:
    """The entries of a Java properties file without escapes, such as `meta.properties`."""
    lines = [line.strip() for line in data.decode().splitlines()]
    pairs = [line.partition("=") for line in lines if line and line[0] not in "#!"]
    return {key.strip(): value.strip() for key, _, value in pairs}
