"""Avro values with a schema are shown as JSON and can be searched by a path. Values that do not fit
their schema, and invalid schemas, cause clear errors."""

from __future__ import annotations

import io
import json
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fastavro
import pytest
from confluent_kafka import Producer

from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClientError
from ottla.console.schemas import NotDecoded, Schemas
from ottla.tools.admin import topics
from tests.console.consoles import Console

ORDER = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]},
    {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9,
                             "scale": 2}}]}


def framed(number: int, payload: bytes) -> bytes:
    return b"\0" + struct.pack(">I", number) + payload


def order(number: int) -> bytes:
    from decimal import Decimal

    out = io.BytesIO()
    fastavro.schemaless_writer(
        out, fastavro.parse_schema(ORDER),
        {"id": number, "note": "<b>", "sum": Decimal("12.50")})
    return framed(7, out.getvalue())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "orders-value").mkdir()
    (tmp_path / "orders-value" / "7.avsc").write_text(json.dumps(ORDER))
    return tmp_path


def test_avro_values_are_shown_and_found_by_a_path(bootstrap: str, folder: Path) -> None:
    with ClusterClient(bootstrap) as cluster:
        topics.create(cluster, "avro", partitions=1, replication_factor=1)
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in (*map(order, range(5)), framed(8, b"\x02"), framed(7, b"\xff" * 20), b"text"):
        producer.produce("avro", value)
    producer.flush(30)
    with Console(bootstrap, folder, "--schemas", str(folder), "--allow-changes") as console:
        rows = console.get("/topics/avro/records?from=oldest")["rows"]
        first, unknown, broken, plain = (rows[place]["value"] for place in (0, 5, 6, 7))
        assert (first["kind"], first["schema"]) == ("avro", 7)
        assert json.loads(first["text"]) == {"id": 0, "note": "<b>", "sum": "12.50"}
        assert unknown["kind"] == "hex" and "8.avsc" in unknown["problem"]
        assert broken["kind"] == "hex" and "schema 7" in broken["problem"]
        assert plain == {"kind": "text", "text": "text", "bytes": 4, "cut": False}
        found = console.get(f"/topics/avro/records?json={quote('$.id == 3')}")["rows"]
        assert [row["offset"] for row in found] == [3]
        assert console.ask("/topics/avro/partitions/0/records/3").body == order(3)
        assert console.ask("/topics/avro", "DELETE", {"confirm": "avro"}).status == 200


@pytest.fixture
def registry() -> Iterator[tuple[str, list[str]]]:
    """Yields the address of a registry with an Avro schema and a JSON schema, and the list of
    requested paths."""
    asked: list[str] = []

    class Registry(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            known = {"/schemas/ids/7": {"schema": json.dumps(ORDER)},
                     "/schemas/ids/9": {"schema": "{}", "schemaType": "JSON"}}
            found = known.get(self.path)
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(json.dumps(found or {"error_code": 40403}).encode())

        def log_message(self, *given: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_registry_is_asked_once_for_each_schema(registry: tuple[str, list[str]]) -> None:
    address, asked = registry
    now = [0.0]
    schemas = Schemas(address, lambda: now[0])
    for number in range(3):
        found = schemas.decoded(order(number))
        assert found is not None and (found.kind, found.document["id"]) == ("avro", number)
    assert asked == ["/schemas/ids/7"]
    for _ in range(3):
        with pytest.raises(NotDecoded, match="404"):
            schemas.decoded(framed(8, b"\0"))
    assert asked.count("/schemas/ids/8") == 1, "not again so soon"
    now[0] = 31.0
    with pytest.raises(NotDecoded):
        schemas.decoded(framed(8, b"\0"))
    assert asked.count("/schemas/ids/8") == 2
    with pytest.raises(NotDecoded, match="JSON, neither Avro nor Protobuf"):
        schemas.decoded(framed(9, b"\0"))


@pytest.mark.parametrize("items", [
    "null", {"type": "record", "name": "Empty", "fields": []},
    {"type": "fixed", "name": "None", "size": 0},
])
def test_a_few_bytes_do_not_stand_for_endless_arrays(tmp_path: Path, items: Any) -> None:
    within = {"type": "record", "name": "R", "fields": [
        {"name": "a", "type": ["null", {"type": "array", "items": items}]}]}
    (tmp_path / "1.avsc").write_text(json.dumps(within))
    huge = framed(1, b"\x02" + b"\xfe" * 8 + b"\x01" + b"\0")
    with pytest.raises(NotDecoded, match="whose items take no bytes"):
        Schemas(str(tmp_path)).decoded(huge)


@pytest.mark.parametrize("text", ["{", '"unknown"', '{"type": "record"}', "[]", "5"])
def test_a_schema_that_is_none_is_said_to_be_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "1.avsc").write_text(text)
    with pytest.raises(NotDecoded):
        Schemas(str(tmp_path)).decoded(framed(1, b"\x01\x01"))
    with pytest.raises(ClientError, match="the directory does not exist"):
        Schemas(str(tmp_path / "nowhere"))
