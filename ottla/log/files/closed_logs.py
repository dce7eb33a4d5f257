"""The state of every log at a clean stop, so that the next start need not open any of them.

A clean stop writes the file `.ottla-closed-logs` of each log directory, then the clean-shutdown
marker; the next start removes both. The file has a version, the number of entries, then one entry
per line.

    0
    1
    events 0 AAECAwQFBgcICQoLDA0ODw 0 1312 4 1 90112 1700000000000 34 1290
    topic, partition, topic id (- if unknown), log start, log end, latest leader epoch,
    number of segments, size in bytes, highest timestamp of the first segment, bytes of all
    transaction indexes, first offset of an open transaction

An entry is used only if its log end equals the log's recovery point in the checkpoint. If the two
differ, another program has changed the log, and the start reads the log itself.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.log.files.checkpoints import Partition
from ottla.log.files.disk import Disk
from ottla.log.files.topic_ids import NO_ID, id_of, id_text

CLOSED_LOGS = ".ottla-closed-logs"
DISTRUSTED = -2
"""An impossible size: the next start never finds indexes of this size, so it rebuilds them."""


class ClosedLog(NamedTuple):
    """One log as it was when it was closed.

    `first_ms` is -1 if the first segment's timestamps were not known. `aborted_bytes` is -1 if an
    older version closed the log, and DISTRUSTED if the transaction indexes have to be rebuilt.
    `first_open` is -1 without an open transaction. If `segments` is 0, the log has no files.
    """

    topic_id: bytes | None
    log_start_offset: int
    log_end_offset: int
    latest_epoch: int
    segments: int
    size_bytes: int
    first_ms: int
    aborted_bytes: int = -1
    first_open: int = -1


def encode(logs: Mapping[Partition, ClosedLog]) -> bytes:
    """The text of the file."""
    lines = ["0", str(len(logs))]
    for (topic, partition), log in logs.items():
        lines.append(
            f"{topic} {partition} {id_text(log.topic_id)} {log.log_start_offset}"
            f" {log.log_end_offset} {log.latest_epoch} {log.segments} {log.size_bytes}"
            f" {log.first_ms} {log.aborted_bytes} {log.first_open}"
        )
    return ("\n".join(lines) + "\n").encode()


def decode(data: bytes) -> dict[Partition, ClosedLog]:
    """Parses the text of the file. Raises ValueError."""
    lines = data.decode().split("\n")
    if lines[0] != "0":
        raise ValueError(f"the list of closed logs has version {lines[0]!r}, expected 0")
    closed: dict[Partition, ClosedLog] = {}
    topic_ids: dict[str, bytes | None] = {NO_ID: None}
    for line in lines[2:-1]:
        topic, partition, text, *numbers = line.split(" ")
        topic_id = topic_ids.get(text)
        if topic_id is None and text != NO_ID:
            # All partitions of a topic share one bytes object, which saves memory.
            topic_id = topic_ids[text] = id_of(text)
        if len(ClosedLog._fields) - len(numbers) not in (1, 2, 3):
            raise ValueError(f"{line!r} in the list of closed logs is not a valid entry")
        closed[topic, int(partition)] = ClosedLog(topic_id, *map(int, numbers))
    if len(closed) != int(lines[1]):
        raise ValueError(f"the list of closed logs has {len(closed)} entries, expected {lines[1]}")
    return closed


def read(disk: Disk, path: str) -> dict[Partition, ClosedLog]:
    """The entries of the file; empty if it is missing or damaged: the start is then slower."""
    try:
        return decode(disk.read_bytes(path))
    except (FileNotFoundError, ValueError, IndexError):
        return {}
