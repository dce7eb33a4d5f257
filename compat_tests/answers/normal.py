"""Answers as plain values, reduced to what must be equal on any broker.

Ids that a broker generates are replaced by the names that a scene gave them, times of the broker's
clock by `<time>`, and values such as addresses and disk sizes by `<host>` or `<bytes>`. Arrays are
sorted, except those whose elements are identified only by their position.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import Any

from ottla.wire.batch import batches
from ottla.wire.errors import ProtocolError
from ottla.wire.schema_parser import Field
from ottla.wire.structs import Struct

UUID_TEXT = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
NOW_MS_FROM = 1_700_000_000_001
"""Times from here on are from the broker's clock. The timestamps that scenes send are earlier, but
for a few that are far in the future."""
IN_ORDER = {"CreateAclsResponse.results", "DeleteAclsResponse.filter_results"}
KEYS = (
    "name", "topic", "topic_name", "topic_id", "group_id", "index", "partition_index", "partition",
    "partition_id", "api_key", "resource_type", "resource_name", "transactional_id", "member_id",
    "key", "entity", "user", "log_dir", "feature", "code", "producer_id", "entity_type",
    "mechanism", "pattern_type", "principal", "host", "operation", "permission_type",
)  # fmt: skip
"""Fields that identify an element of an array; elements are sorted by them."""
VARYING = {
    "host": "<host>", "port": "<port>", "cluster_id": "<cluster>", "total_bytes": "<bytes>",
    "usable_bytes": "<bytes>", "log_dir": "<directory>", "leader_directory_id": "<directory>",
    "replica_directory_id": "<directory>", "finalized_features_epoch": "<epoch>",
    "log_end_offset": "<offset>", "last_fetch_timestamp": "<time>",
    "last_caught_up_timestamp": "<time>",
}  # fmt: skip


class Names:
    """A scene's names for the ids that a broker has generated."""

    def __init__(self) -> None:
        self.of_uuid: dict[bytes, str] = {}
        self.of_producer: dict[int, str] = {}
        self.of_text: dict[str, str] = {}

    def topic_id(self, value: bytes, name: str) -> None:
        """Name an id after its topic."""
        self.of_uuid[value] = f"<id of {name}>"
        text = base64.urlsafe_b64encode(value).decode().rstrip("=")
        self.of_text[text] = f"<id of {name}>"

    def producer(self, value: int, name: str) -> None:
        """Name a producer id."""
        self.of_producer[value] = f"<producer {name}>"
        self.of_text[str(value)] = f"<producer {name}>"

    def text(self, value: str) -> str:
        """A text with names in place of ids; unknown UUIDs are numbered in order of appearance."""
        for made_up in UUID_TEXT.findall(value):
            self.of_text.setdefault(made_up, f"<uuid {len(self.of_text)}>")
        for known, name in self.of_text.items():
            if len(known) > 3 and known in value:
                value = value.replace(known, name)
        return value


def normal(answer: Struct, version: int, names: Names) -> Any:
    """An answer, or a request, as plain values that do not depend on the broker."""
    kind = type(answer)
    made = {}
    for field in kind.LAYOUT.fields:
        if version in field.versions:
            value = getattr(answer, field.name)
            place = f"{kind.__qualname__}.{field.name}"
            made[field.name] = _field(field, value, version, names, place)
    return made


def _field(field: Field, value: Any, version: int, names: Names, place: str) -> Any:
    if value is None:
        return None
    if field.is_struct and field.array:
        found = [normal(each, version, names) for each in value]
        return found if place in IN_ORDER else sorted(found, key=_order)
    if field.is_struct:
        return normal(value, version, names)
    if field.array:
        found = [_leaf(field, each, names) for each in value]
        return sorted(found, key=str)
    return _leaf(field, value, names)


def _order(element: Any) -> str:
    first = [json.dumps(element[key]) for key in KEYS if key in element]
    return json.dumps([first, element], sort_keys=True)


def _leaf(field: Field, value: Any, names: Names) -> Any:
    if field.name in VARYING and value not in (-1, "", bytes(16)):
        return VARYING[field.name]
    if field.type == "records":
        return records(value, names)
    if field.type == "uuid":
        return "0" if not any(value) else names.of_uuid.get(value, "<unknown id>")
    if field.type == "bytes":
        return shortened(value)
    if field.type == "string":
        return names.text(value)
    if field.type == "int64" and field.name == "producer_id":
        return names.of_producer.get(value, value)
    if field.type == "int64" and value >= NOW_MS_FROM and value < NOW_MS_FROM * 2:
        return "<time>"
    if field.name == "session_id" and value != 0:
        return "<session>"
    return value


def records(data: bytes, names: Names) -> Any:
    """Fetched records, batch by batch; the text of `shortened` if they are not of format 2."""
    try:
        return _batches(data, names)
    except ProtocolError:
        return shortened(data)


def shortened(data: bytes) -> str:
    """Bytes as text: all of them, or if they are long, the beginning and a checksum."""
    return data.hex() if len(data) <= 80 else f"{data[:40].hex()}... {zlib.crc32(data):08x}"


def _batches(data: bytes, names: Names) -> list[Any]:
    return [
        {
            "base_offset": each.base_offset,
            "leader_epoch": each.leader_epoch,
            "attributes": each.attributes,
            "producer_id": names.of_producer.get(each.producer_id, each.producer_id),
            "producer_epoch": each.producer_epoch,
            "base_sequence": each.base_sequence,
            "records": [
                [
                    record.offset,
                    "<time>" if record.timestamp >= NOW_MS_FROM else record.timestamp,
                    None if record.key is None else record.key.hex(),
                    None if record.value is None else record.value[:40].hex(),
                ]
                for record in each.records()
            ],
        }
        for each in batches(data)
    ]
