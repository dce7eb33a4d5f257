"""Records of KRaft's metadata log, `__cluster_metadata`, and of its snapshots (KIP-631).

    value   | frame version, 1 | type | version | fields of schema/kraft/<type>.txt
              '-------- unsigned varints -----'

Control records of the quorum (a new leader, the voters) have the form of transaction markers. Their
key contains the type. Their value begins with the version of its fields.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ottla.wire import messages
from ottla.wire.errors import MalformedMessage
from ottla.wire.schema_parser import SCHEMA_FOLDER, camel_case, read_first_lines, snake_case

if TYPE_CHECKING:
    from ottla.wire.records import Record
    from ottla.wire.structs import Message

FRAME_VERSION = 1
VARINT_BYTES_MAX = 5

QUORUM_RECORDS = {
    2: ("LeaderChange:", "LeaderChangeMessage"),
    3: ("SnapshotHeader", "SnapshotHeaderRecord"),
    4: ("SnapshotFooter", "SnapshotFooterRecord"),
    5: ("KRaftVersion", "KRaftVersionRecord"),
    6: ("KRaftVoters", "VotersRecord"),
}
"""Control records of the quorum, by type: the label that Kafka prints, and their class."""


class UnknownKraftRecord(ValueError):
    """A record of a type or version that is unknown to this release."""


@cache
def kraft_classes() -> dict[int, type[Message]]:
    """The classes of metadata records, by their type."""
    classes: dict[int, type[Message]] = {}
    for path in sorted((SCHEMA_FOLDER / "kraft").glob("*.txt")):
        with path.open(encoding="ascii") as file:
            first = read_first_lines(file)
        if first.key is not None:
            classes[first.key] = getattr(messages, camel_case(first.name))
    return classes


def kind_name(message: Message) -> str:
    """The type of a record as Kafka prints it: TOPIC_RECORD."""
    return snake_case(type(message).__name__).upper()


def decode_kraft_record(data: bytes) -> tuple[Message, int]:
    """A metadata record and its version. Raises UnknownKraftRecord, MalformedMessage."""
    frame, at = read_varint(data, 0)
    if frame != FRAME_VERSION:
        raise UnknownKraftRecord(
            f"a metadata record has frame version {frame}, expected {FRAME_VERSION}")
    kind, at = read_varint(data, at)
    version, at = read_varint(data, at)
    message_class = kraft_classes().get(kind)
    if message_class is None:
        raise UnknownKraftRecord(f"the metadata record type {kind} is unknown")
    if version not in message_class.VERSIONS:
        raise UnknownKraftRecord(
            f"version {version} of the metadata record {message_class.__name__} is unknown"
        )
    return message_class.decode(memoryview(data)[at:], version), version


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned varint and the position after it."""
    value = 0
    for count in range(VARINT_BYTES_MAX):
        if at >= len(data):
            raise MalformedMessage("a metadata record is cut off inside its header")
        value |= (data[at] & 0x7F) << 7 * count
        at += 1
        if data[at - 1] < 0x80:
            return value, at
    raise MalformedMessage("a varint of a metadata record is too long")


def quorum_record(kind: int, record: Record) -> tuple[str, Any, int] | None:
    """Name, content and version of a control record of the quorum; None for other records."""
    if kind not in QUORUM_RECORDS or record.value is None or len(record.value) < 2:
        return None
    label, class_name = QUORUM_RECORDS[kind]
    message_class: type[Message] = getattr(messages, class_name)
    version = int.from_bytes(record.value[:2], "big")
    known = min(version, message_class.VERSIONS[-1])
    try:
        return label, message_class.decode(record.value, known), known
    except MalformedMessage:
        return None
