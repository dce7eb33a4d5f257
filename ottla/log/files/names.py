"""The names of a partition's files, and the content of the one that names its topic."""

from base64 import urlsafe_b64encode

UNFINISHED = (".tmp", ".cleaned", ".deleted")
"""Suffixes of files that an interrupted write, compaction or deletion leaves; a start removes
them."""
EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
COPIED_GAPS = "copied-gaps"
"""A file that notes that a leader's compaction has left gaps in a copy, whatever its settings."""
CUT = ".cut"
"""A file beside a segment whose damaged end was cut off, until the broker has reported it."""


def file_name(offset: int, suffix: str) -> str:
    """A segment file's name: its base offset in twenty digits, and what it holds."""
    return f"{offset:020d}{suffix}"


def offset_in(name: str) -> int:
    """The offset that a file's name begins with."""
    return int(name.partition(".")[0])


def by_suffix(names: list[str]) -> dict[str, list[str]]:
    """The names of files, grouped by their suffix with its dot; the whole name without one."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name[max(name.rfind("."), 0):], []).append(name)
    return groups


def partition_metadata(topic_id: bytes) -> bytes:
    """The content of the file with the topic id of a directory."""
    encoded = urlsafe_b64encode(topic_id).rstrip(b"=")
    return b"version: 0\ntopic_id: " + encoded + b"\n"
