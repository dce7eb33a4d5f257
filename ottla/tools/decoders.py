"""How `ottla log dump` shows keys and values: as text or numbers, or as records of Kafka's internal
topics.

A decoder gets a record and returns the texts of its key and of its value. None stands for a key
or value that is not shown.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.client.similar_names import similar
from ottla.groups.transactions.records import TransactionState
from ottla.tools.json_form import as_json, java_double, text_of
from ottla.tools.kraft_records import UnknownKraftRecord, decode_kraft_record, kind_name
from ottla.wire import messages
from ottla.wire.errors import MalformedMessage
from ottla.wire.records import Record
from ottla.wire.schema_parser import SCHEMA_FOLDER, camel_case, read_first_lines

if TYPE_CHECKING:
    from ottla.wire.structs import Message

Shown = tuple[str | None, str | None]
Decoder = Callable[[Record], Shown]


class NotDecodable(Exception):
    """A key or value that does not have the requested form."""


def as_text(data: bytes) -> str:
    """UTF-8, with a replacement for invalid bytes."""
    return data.decode("utf-8", "replace")


def as_number(form: str, kind: str) -> Callable[[bytes], str]:
    """The decoder of a big-endian number of a fixed size. Like Kafka's decoders, it ignores further
    bytes."""
    size = struct.calcsize(form)

    def decode(data: bytes) -> str:
        if len(data) < size:
            raise NotDecodable(f"{len(data)} bytes are not a {kind} of {size} bytes")
        value = struct.unpack_from(form, data)[0]
        return java_double(value) if isinstance(value, float) else str(value)

    return decode


PLAIN: dict[str, Callable[[bytes], str]] = {
    "String": as_text,
    "Long": as_number(">q", "long"),
    "Integer": as_number(">i", "integer"),
    "Double": as_number(">d", "double"),
    "Default": bytes.hex,
}
"""Decoders by the names of Kafka's classes, without package and ending: `Long` stands for
org.apache.kafka.tools.api.LongDecoder."""


def plain(name: str) -> Callable[[bytes], str]:
    """The decoder with this class name or short name. Raises ValueError."""
    short = name.rpartition(".")[2]
    for ending in ("Decoder", "Deserializer", "Serde"):
        short = short.removesuffix(ending) or short
    short = short[:1].upper() + short[1:].lower()
    try:
        return PLAIN[short]
    except KeyError:
        known = [f"{each}Decoder" for each in PLAIN]
        raise ValueError(
            f"decoder {name} is unknown; known are {', '.join(known)}{similar(name, known)}"
        ) from None


def plain_decoder(key: str, value: str) -> Decoder:
    """Returns a decoder of records. `key` names the decoder of keys, and `value` names the decoder
    of values. Raises ValueError."""
    of_key, of_value = plain(key), plain(value)

    def decode(record: Record) -> Shown:
        return (
            None if record.key is None else of_key(record.key),
            None if record.value is None else of_value(record.value),
        )

    return decode


CONSUMER_PROTOCOL: dict[str, type[Message]] = {
    "subscription": messages.ConsumerProtocolSubscription,
    "assignment": messages.ConsumerProtocolAssignment,
}
"""The fields of a group member that contain encoded messages of the consumer protocol."""


# Records of coordinators: the key begins with the type of the record. The value begins with the
# version of its fields.

def record_classes(topic: str) -> dict[int, tuple[type[Message], type[Message]]]:
    """The classes of an internal topic's keys and values, by the type of the record."""
    classes = {}
    for path in sorted((SCHEMA_FOLDER / "records").glob("*.txt")):
        with path.open(encoding="ascii") as file:
            first = read_first_lines(file)
        if first.topic == topic and first.key is not None:
            name = camel_case(first.name)
            classes[first.key] = getattr(messages, f"{name}Key"), getattr(messages, f"{name}Value")
    return classes


def coordinator_decoder(topic: str) -> Decoder:
    """The decoder of `__consumer_offsets`, `__transaction_state` or `__share_group_state`."""
    classes = record_classes(topic)

    def decode(record: Record) -> Shown:
        if record.key is None:
            raise NotDecodable(
                f"the record at offset {record.offset} has no key: is this a log of {topic}?"
            )
        if len(record.key) < 2:
            return f"Error at offset {record.offset}, skipping. The key has no type", None
        kind = int.from_bytes(record.key[:2], "big")
        if kind not in classes:
            return f"Unknown record type {kind} at offset {record.offset}, skipping.", None
        key_class, value_class = classes[kind]
        try:
            key = as_json(key_class.decode(record.key[2:], 0), 0)
            value = None if record.value is None else coordinator_value(value_class, record.value)
        except (MalformedMessage, NotDecodable) as error:
            return f"Error at offset {record.offset}, skipping. {error}", None
        shown = text_of({"type": str(kind), "data": key})
        return shown, "<DELETE>" if value is None else text_of(value)

    return decode


def coordinator_value(value_class: type[Message], data: bytes) -> dict[str, Any]:
    """The version of a value, and its content."""
    if len(data) < 2:
        raise NotDecodable("The value has no version")
    version = int.from_bytes(data[:2], "big")
    if version not in value_class.VERSIONS:
        raise NotDecodable(f"The value has version {version}, which this command does not know")
    message = value_class.decode(data[2:], version)
    body = as_json(message, version)
    if isinstance(message, messages.GroupMetadataValue) and message.protocol_type == "consumer":
        for shown, member in zip(body["members"], message.members, strict=True):
            for name, inner in CONSUMER_PROTOCOL.items():
                unfold(shown, name, getattr(member, name), inner)
    if isinstance(message, messages.TransactionLogValue):
        known = {each.value: each.label for each in TransactionState}
        status = body["transactionStatus"]
        body["transactionStatus"] = known.get(status, status)      # Kafka prints the name since 4.4
    return {"version": str(version), "data": body}


def unfold(shown: dict[str, Any], name: str, data: bytes, message_class: type[Message]) -> None:
    """Decodes the field `name`, which a consumer has encoded. Leaves it in base64 on an error."""
    version = int.from_bytes(data[:2], "big")
    if len(data) < 2 or version not in message_class.VERSIONS:
        return
    try:
        shown[name] = as_json(message_class.decode(data[2:], version), version)
    except MalformedMessage:
        return


# Records of KRaft's metadata log

def kraft_decoder(record: Record) -> Shown:
    """Decodes a record of a KRaft controller's `__cluster_metadata`."""
    try:
        message, version = decode_kraft_record(record.value or b"")
    except (MalformedMessage, UnknownKraftRecord) as error:
        return None, f"Error at {record.offset}, skipping. {error}"
    shown = {"type": kind_name(message), "version": version, "data": as_json(message, version)}
    return None, text_of(shown)
