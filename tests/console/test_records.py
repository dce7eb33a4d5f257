"""Searches: what they find, where they end, and records that are hard to show."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Producer

from ottla.client.cluster import ClusterClient
from ottla.console.filters import BadFilter, Filters
from ottla.console.shown import SHOWN_MAX, shown
from ottla.tools.admin import topics
from tests.console.consoles import Console


class Record:
    """Takes the place of a record of confluent-kafka."""

    def __init__(self, value: bytes | None = None, key: bytes | None = None) -> None:
        self.parts = value, key

    def value(self) -> bytes | None:
        return self.parts[0]

    def key(self) -> bytes | None:
        return self.parts[1]

    def headers(self) -> list[tuple[str, bytes]]:
        return [("trace", b"1")]


DOCUMENT = Record(
    b'{"user": {"id": 42, "name": "Z\xc3\xbcrich"}, "items": [{"sku": "a", "n": 1}, {"sku": "b"}],'
    b' "ok": true, "odd name": null}', b"key-1")


@pytest.mark.parametrize(
    ("given", "passes"),
    [
        ({"text": "zÜRICH"}, True), ({"text": "KEY-1"}, True), ({"text": "basel"}, False),
        ({"regex": r"id.: \d+"}, True), ({"regex": "^key-1$"}, True), ({"regex": "x{3}"}, False),
        ({"key": "key-1"}, True), ({"key": "key"}, False),
        ({"header": "trace"}, True), ({"header": "trace=1"}, True), ({"header": "trace=2"}, False),
        ({"path": "$.user.id"}, True), ({"path": "$.user.age"}, False),
        ({"path": "$.user.id == 42"}, True), ({"path": "$.user.id != 42"}, False),
        ({"path": "$.user.id >= 42"}, True), ({"path": "$.user.id < 42"}, False),
        ({"path": "$.user.id > a"}, False), ({"path": '$.user.name contains "rich"'}, True),
        ({"path": "$.items[1].sku == b"}, True), ({"path": '$.items[*].sku == "a"'}, True),
        ({"path": "$.items[9]"}, False), ({"path": "$.ok == 1"}, False),
        ({"path": "$.ok == true"}, True), ({"path": '$["odd name"] == null'}, True),
        ({"text": "key", "path": "$.user.id == 1"}, False),
    ],
)  # fmt: skip
def test_a_filter_passes_what_it_describes(given: dict[str, str], passes: bool) -> None:
    assert all(test(DOCUMENT) for test in Filters(**given).tests()) is passes


@pytest.mark.parametrize(
    "given",
    [{"regex": "("}, {"regex": "a" * 3000}, {"regex": "(((a{100}){100}){100})"}, {"path": "user"},
     {"path": "$.a ~ 3"}, {"path": "$" + ".a" * 60}, {"path": r'$["\x"]'}, {"path": '$["\n"]'}],
)
def test_a_filter_that_is_not_understood_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(BadFilter):
        Filters(**given).tests()


def test_hostile_documents_pass_no_filter_and_break_nothing() -> None:
    tests = Filters(path="$.a").tests()
    for value in (b"[" * 200_000, b"\xff\xfe", b"", None, b'{"a"', b"NaN"):
        assert not any(test(Record(value)) for test in tests)


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (b"plain", "text", "plain"), (b'{"a": 1}', "json", '{"a": 1}'),
        (b"\xff\x00", "hex", "ff 00"), (b"<script>", "text", "<script>"),
        (b"ring\x07 the bell of the tower", "text", "ring\x07 the bell of the tower"),
        (b"\x00\x01\x02", "hex", "00 01 02"), (b"", "text", ""),
    ],
)
def test_bytes_are_shown_as_what_they_are(data: bytes, kind: str, text: str) -> None:
    found = shown(data)
    assert found is not None
    assert (found["kind"], found["text"], found["bytes"]) == (kind, text, len(data))


def test_a_long_value_is_cut_between_characters() -> None:
    found = shown("ü".encode() * SHOWN_MAX)
    assert found is not None and found["cut"] and set(found["text"]) == {"ü"}
    assert found["bytes"] == 2 * SHOWN_MAX


def offsets(answer: dict[str, Any]) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in answer["rows"]]


def test_searches_begin_where_they_are_told(console: Console) -> None:
    base = "/topics/orders/records?limit=2&partition=1"
    assert offsets(console.get(base)) == [(1, 49), (1, 48)]
    assert offsets(console.get(f"{base}&from=oldest")) == [(1, 0), (1, 1)]
    assert offsets(console.get(f"{base}&from=offset:7")) == [(1, 7), (1, 8)]
    [row] = console.get("/topics/orders/records?partition=1&from=offset:7&limit=1")["rows"]
    at = f"{base}&from=time:{row['timestamp']}"
    assert console.get(at)["rows"][0]["timestamp"] == row["timestamp"]
    assert console.get(f"{base}&from=time:9999999999999")["rows"] == []


def test_a_search_ends_with_its_budget_and_goes_on_from_there(console: Console) -> None:
    query = quote("$.order == 99")
    base = f"/topics/orders/records?json={query}&max_records=30&from="
    found, rounds, start = console.get(base + "oldest"), 1, ""
    assert found["ended"] == "records" and found["scanned"]["records"] == 30
    while not found["rows"]:
        start, rounds = found["next"], rounds + 1
        found = console.get(base + start)
    assert rounds == 4 and offsets(found) == [(1, 49)]


def test_a_search_from_the_newest_names_no_place_to_go_on(console: Console) -> None:
    base = f"/topics/orders/records?json={quote('$.order == 99')}"
    found = console.get(f"{base}&max_records=30")
    assert (found["ended"], found["rows"], found["next"]) == ("records", [], None)
    assert console.get(base)["rows"], "a greater budget finds it"


def test_the_newest_record_that_passes_is_found_behind_thousands(console: Console) -> None:
    found = console.get("/topics/orders/records?key=key-3&header=trace%3D3")
    assert offsets(found) == [(1, 1)] and found["ended"] == "end"


@pytest.mark.parametrize("filters", ["", "&text=key-7"])
def test_the_events_of_a_search_end_with_its_result(console: Console, filters: str) -> None:
    path = f"/topics/orders/records?partition=1&limit=2{filters}"
    answer = console.ask(path, headers={"Accept": "text/event-stream"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *_, last = answer.body.decode().strip().split("\n\n")
    name, data = last.split("\n")
    assert name == "event: result"
    assert offsets(json.loads(data.removeprefix("data: "))) == offsets(console.get(path))
    refused = console.ask(f"{path}&regex=(", headers={"Accept": "text/event-stream"})
    assert refused.status == 400 and "RE2" in refused.json["message"]


DAY = 86_400_000


@pytest.fixture(scope="module")
def late(bootstrap: str) -> str:
    """Create a topic whose log has a record of the first day after records of the third day;
    returns the beginning of the path of its searches."""
    with ClusterClient(bootstrap) as cluster:
        topics.create(cluster, "late", partitions=1, replication_factor=1)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, day in enumerate((1, 2, 2, 3, 3, 1, 2, 3)):
        producer.produce("late", f"day {day}", timestamp=day * DAY + number)
    producer.flush(60)
    return "/topics/late/records?from="


@pytest.mark.parametrize(
    ("query", "found", "outside"),
    [
        (f"time:{2 * DAY}", [1, 2, 3, 4, 6, 7], 1),
        (f"time:{2 * DAY}&until={3 * DAY}", [1, 2, 6], 4),
        (f"oldest&until={2 * DAY}", [0, 5], 6),
        (f"newest&until={3 * DAY}", [6, 2, 1, 5, 0], 3),
        (f"time:{2 * DAY}&until={3 * DAY}&text=2&partition=0", [1, 2, 6], 4),
        (f"time:{3 * DAY}&until={2 * DAY}", [], 5),
    ],
)
def test_a_time_range_has_only_its_records(
    console: Console, late: str, query: str, found: list[int], outside: int
) -> None:
    """This holds even if timestamps go back in the log. Records outside the range are counted."""
    answer = console.get(late + query)
    assert [offset for _, offset in offsets(answer)] == found
    assert answer["scanned"]["outside"] == outside and answer["ended"] == "end"


def test_a_search_that_goes_on_keeps_its_time_range(console: Console, late: str) -> None:
    first = console.get(f"{late}time:{2 * DAY}&until={3 * DAY}&limit=2")
    rest = console.get(f"{late}{first['next']}&until={3 * DAY}")
    assert [offset for _, offset in offsets(first) + offsets(rest)] == [1, 2, 6]
    assert console.ask(f"{late}oldest&until=soon").status == 400


def test_a_partition_ends_where_the_broker_set_too_late_a_time(
    console: Console, bootstrap: str
) -> None:
    with ClusterClient(bootstrap) as cluster:
        topics.create(cluster, "stamped", partitions=1, replication_factor=1,
                      configs={"message.timestamp.type": "LogAppendTime"})
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for _ in range(3):
        producer.produce("stamped", "x")
        producer.flush(60)
    scanned = console.get("/topics/stamped/records?from=oldest&until=1")["scanned"]
    assert (scanned["records"], scanned["outside"]) == (1, 1)


def test_records_that_are_hard_to_show_are_shown(console: Console, bootstrap: str) -> None:
    with ClusterClient(bootstrap) as cluster:
        topics.create(cluster, "hard", partitions=1, replication_factor=1)
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 60_000_000})
    large = b"0123456789abcdef" * (50_000_000 // 16)
    values = [large, b"\xff\xfe\x00", b"<script>alert(1)</script>", b"red \x1b[31m and bell \x07",
              None]
    for value in values:
        producer.produce("hard", value)
    producer.produce("hard", b"x", headers=[(f"h{n}", b"v") for n in range(10_000)])
    producer.flush(60)
    found = console.get("/topics/hard/records?from=oldest")["rows"]
    assert [row["value"] and row["value"]["bytes"] for row in found] == [
        50_000_000, 3, 25, 20, None, 1]
    assert found[0]["value"]["cut"] and len(found[0]["value"]["text"]) == SHOWN_MAX
    assert found[1]["value"]["kind"] == "hex"
    assert found[2]["value"]["text"] == "<script>alert(1)</script>"
    assert found[5]["header_count"] == 10_000 and len(found[5]["headers"]) == 100
    whole = console.ask("/topics/hard/partitions/0/records/0")
    assert whole.body == large and whole.headers["content-type"] == "application/octet-stream"
    assert whole.headers["content-disposition"].startswith("attachment")
    for at, name in ((0, "0-0.txt"), (1, "0-1.bin"), (5, "0-5.txt")):
        told = console.ask(f"/topics/hard/partitions/0/records/{at}").headers
        assert told["content-disposition"] == f'attachment; filename="record-{name}"'
    told = console.ask("/topics/orders/partitions/1/records/3").headers
    assert told["content-disposition"].endswith('"record-1-3.json"')
    assert console.ask("/topics/hard/partitions/0/records/4").status == 404
    assert console.ask("/topics/hard/partitions/0/records/99").status == 404
    assert console.ask("/topics/hard", "DELETE", {"confirm": "hard"}).status == 200


def test_a_tail_has_what_is_written_and_passes(console: Console) -> None:
    connection = console.connection()
    connection.request("GET", "/api/v1/topics/orders/live?text=bell")
    answer = connection.getresponse()
    rows: list[Any] = []
    while not rows:
        for value in ("a whistle", "a Bell"):
            console.ask("/topics/orders/records", "POST", {"value": value, "partition": 0})
        while not (line := answer.readline()).startswith(b"data: "):
            assert line
        rows = json.loads(line[6:])["rows"]
    assert {row["value"]["text"] for row in rows} == {"a Bell"}
    connection.close()
