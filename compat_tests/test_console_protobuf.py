"""The console shows Protobuf values as JSON and searches them by path. If it cannot decode a value,
it shows the reason."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from ottla.client.protobuf import compile_proto, message_class
from ottla.console.filters import path_test
from ottla.console.schemas import NotDecoded, Schemas
from ottla.console.shown import shown

pytestmark = pytest.mark.one_broker
PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  message Line { string sku = 1; int64 count = 2; }
  int64 id = 1;
  string note = 2;
  repeated Line lines = 3;
  bytes seal = 4;
  google.protobuf.Timestamp at = 5;
  map<string, double> weights = 6;
  Order before = 7;
}
message Empty {}
message Bomb { repeated Empty empty = 1; }
"""


def framed(number: int, payload: bytes, path: bytes = b"\0") -> bytes:
    return b"\0" + struct.pack(">I", number) + path + payload


def order(**fields: Any) -> Any:
    return message_class(compile_proto(PROTO), "shop.Order")(**fields)


@pytest.fixture
def schemas(tmp_path: Path) -> Schemas:
    (tmp_path / "orders-value").mkdir()
    (tmp_path / "orders-value" / "7.proto").write_text(PROTO)
    (tmp_path / "8.proto").write_text("message {")
    (tmp_path / "9.proto").write_text('syntax = "proto3";')
    return Schemas(str(tmp_path))


class Record:
    def __init__(self, value: bytes) -> None:
        self.bytes = value

    def value(self) -> bytes:
        return self.bytes


def test_values_are_shown_as_json_and_found_by_a_path(schemas: Schemas) -> None:
    message = order(id=2**40, note="<b>", lines=[{"sku": "A", "count": 2}], seal=b"\xff",
                    weights={"a": 0.5}, before={"id": 1})
    message.at.FromJsonString("2026-06-01T10:00:00Z")
    value = framed(7, message.SerializeToString())
    found = shown(value, schemas=schemas)
    assert found is not None and (found["kind"], found["schema"]) == ("protobuf", 7)
    assert json.loads(found["text"]) == {
        "id": 2**40, "note": "<b>", "lines": [{"sku": "A", "count": 2}], "seal": "/w==",
        "at": "2026-06-01T10:00:00Z", "weights": {"a": 0.5}, "before": {"id": 1}}
    assert path_test("$.lines[0].count == 2", schemas)(Record(value))
    assert not path_test("$.lines[0].count == 3", schemas)(Record(value))


def test_the_path_before_a_value_says_which_message_it_is(schemas: Schemas) -> None:
    line = order().lines.add(sku="A").SerializeToString()
    found = schemas.decoded(framed(7, line, b"\x04\0\0"))         # two indexes: [0, 0]
    assert found is not None and found.document == {"sku": "A"}


def test_a_few_bytes_do_not_become_many_fields(schemas: Schemas) -> None:
    found = schemas.decoded(framed(7, b"\x0a\0" * 1000, b"\x02\x04"))   # one index: [2]
    assert found is not None and found.document == {"empty": [{}] * 1000}


@pytest.mark.parametrize(("value", "says"), [
    (framed(7, b"\xff\xff"), "the bytes are not a valid protobuf value of schema 7"),
    (framed(7, b"", b"\x02\x63"), "no message"),
    (framed(7, b"", b"\xff" * 9), "schema 7"),
    (framed(7, b"", b"\x02\x01"), "no message"),
    (framed(8, b""), "8.proto does not compile"),
    (framed(9, b""), "no message"),
    (framed(10, b""), "has no file 10.avsc or 10.proto"),
])
def test_what_does_not_fit_is_hex_and_says_why(
    schemas: Schemas, value: bytes, says: str
) -> None:
    with pytest.raises(NotDecoded, match=says):
        schemas.decoded(value)
    found = shown(value, schemas=schemas)
    assert found is not None and found["kind"] == "hex" and says in found["problem"]
