"""The names of a partition's files, and the content of `partition.metadata`."""

from base64 import urlsafe_b64encode

UNFINISHED = (".tmp", ".cleaned", ".deleted")
"""Suffixes of files that an interrupted write, compaction or deletion leaves; a start removes
them."""
EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
COPIED_GAPS = "copied-gaps"
"""A file beside a replica's log. It says that compaction of the leader's log left gaps between
offsets, which the replica has copied."""
CUT = ".cut"
"""Suffix of a note beside a segment from which recovery has cut off a damaged end. The note is
removed once the truncation has been reported."""


def file_name(offset: int, suffix: str) -> str:
    """A segment file's name: the base offset in twenty digits, and the suffix."""
    return f"{offset:020d}{suffix}"


def offset_in(name: str) -> int:
    """The offset that a file's name begins with."""
    return int(name.partition(".")[0])


def by_suffix(names: list[str]) -> dict[str, list[str]]:
    """Groups file names by suffix, such as `.log`; a name without a dot is its own suffix."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name[max(name.rfind("."), 0):], []).append(name)
    return groups


def partition_metadata(topic_id: bytes) -> bytes:
    """The content of `partition.metadata`: the id of the partition's topic."""
    encoded = urlsafe_b64encode(topic_id).rstrip(b"=")
    return b"version: 0\ntopic_id: " + encoded + b"\n"
