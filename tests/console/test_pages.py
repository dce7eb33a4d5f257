"""What the API says about a cluster, and what its changes do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from ottla.client.cluster import ClusterClient
from ottla.console import group_pages
from ottla.console.api import PREFIX, TABLE, openapi
from ottla.tools.admin import groups, offsets
from ottla.tools.admin.groups import Group, Listed, Member
from ottla.tools.admin.offsets import ListedOffset, Place
from ottla.tools.stream.partitions import partition_of
from tests.console.consoles import Console
from tests.waiting import until


def rows(console: Console, path: str, **wanted: Any) -> list[dict[str, Any]]:
    found = console.get(path)["rows"]
    return [row for row in found if all(row[name] == value for name, value in wanted.items())]


def test_the_overview_counts_and_names_what_is_unhealthy(console: Console) -> None:
    found = console.get("/overview")
    assert [one["state"] for one in found["brokers"]] == ["up"]
    assert found["topics"] == 2 and found["records"] >= 100 and found["groups"] == 3
    assert found["brokers"][0]["free_bytes"] > 0 and found["bytes"] > 0
    assert (found["partitions"], found["internal_partitions"]) == (3, 2)
    assert found["authorizer"] is False
    [problem] = [one for one in found["problems"] if one["what"] == "group/billing"]
    assert problem["why"].startswith("Group billing has no members and is 40 records behind. Its"
                                     " offsets were set "), "it was just reset"
    assert problem["severity"] == "note"


def test_topics_and_groups_have_their_lag(console: Console) -> None:
    [topic] = rows(console, "/topics", topic="orders")
    assert (topic["partitions"], topic["records"], topic["lag"]) == (2, 100, 49)
    assert topic["slowest_group"] == "a/b .."
    [group] = rows(console, "/groups", group="billing")
    assert (group["state"], group["lag"], group["topics"]) == ("Empty", 40, ["orders"])
    assert group["lag_bytes"] > 0 and group["lag_seconds"] > 0
    page = console.get("/groups/billing")
    assert [(row["offset"], row["end"], row["lag"]) for row in page["rows"]] == [
        (10, 50, 40), (50, 50, 0)]


def test_names_may_have_any_character(console: Console) -> None:
    assert console.get("/groups/a%2Fb%20..")["group"] == "a/b .."
    assert console.ask("/groups/~..").status == 404
    assert "'..'" in console.ask("/groups/~..").json["message"]
    assert console.ask("/groups/%2e%2e%2f%2e%2e").status == 404


def test_what_could_be_cleaned_up_has_a_reason(console: Console) -> None:
    [found] = console.get("/clean-up")["rows"]
    assert (found["kind"], found["group"]) == ("group", "stale")
    assert "the records at its offsets have been deleted" in found["reason"]
    assert console.ask("/groups/stale", "DELETE", {"confirm": "stale"}).status == 200
    until(lambda: not console.get("/clean-up")["rows"], "its end", between=0.2)


def of_group(
    monkeypatch: pytest.MonkeyPatch, group: Group, committed: dict[Place, int],
    ends: dict[Place, int],
) -> list[str]:
    """What the page says about a group. All records of the partitions in `ends` are deleted; the
    leaders of the other partitions do not answer."""
    unused: Any = None
    listed = Listed(group.id, group.type, group.state, group.protocol_type)
    for module, name, answer in (
        (groups, "committed", {place: (offset, -1) for place, offset in committed.items()}),
        (groups, "describe", group), (group_pages, "ends_of", ends),
        (offsets, "at", {place: ListedOffset(end, -1, -1) for place, end in ends.items()}),
    ):
        monkeypatch.setattr(module, name, lambda *_, answer=answer: answer)
    rows = group_pages.of_group(unused, listed, {"t", "u"})
    return [row["reason"] for row in rows]


def test_a_group_is_not_superfluous_while_a_leader_of_its_partitions_is_away(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = Group("g", "classic", "Empty", "", [])
    ends = {("t", 0): 9}
    [reason] = of_group(monkeypatch, empty, {("t", 0): 3}, ends)
    assert "the records at its offsets have been deleted" in reason
    assert of_group(monkeypatch, empty, {("t", 0): 3, ("u", 0): 3}, ends) == []
    gone, deleted = of_group(monkeypatch, empty, {("t", 0): 3, ("gone", 0): 3}, ends)
    assert "The topic gone does not exist" in gone and "have been deleted" in deleted


def test_only_members_that_consume_need_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect's workers are members of a group, too: they get connectors and tasks."""
    members = [Member("m", "client", "/host")]
    consumers = Group("g", "classic", "Stable", "range", members)
    assert len(of_group(monkeypatch, consumers, {("t", 0): 3}, {})) == 1
    workers = Group("g", "classic", "Stable", "sessioned", members, protocol_type="connect")
    assert of_group(monkeypatch, workers, {("t", 0): 3}, {}) == []


def test_a_reset_is_shown_before_it_is_made(console: Console) -> None:
    wanted = {"to": "+5", "dry_run": True}
    shown = console.ask("/groups/billing/reset", "POST", wanted).json["rows"]
    assert [(row["old"], row["new"]) for row in shown] == [(10, 15), (50, 50)]
    assert console.get("/groups/billing")["rows"][0]["offset"] == 10
    refused = console.ask("/groups/billing/reset", "POST", {"to": "+5", "dry_run": False})
    assert refused.status == 400 and "'confirm'" in refused.json["message"]
    confirmed = {"to": "+5", "dry_run": False, "confirm": "billing"}
    assert console.ask("/groups/billing/reset", "POST", confirmed).status == 200
    assert console.get("/groups/billing")["rows"][0]["offset"] == 15
    rows_of_a_file = [{"topic": "orders", "partition": 0, "offset": 10}]
    restored = {"offsets": rows_of_a_file, "dry_run": False, "confirm": "billing"}
    assert console.ask("/groups/billing/reset", "POST", restored).status == 200
    assert console.get("/groups/billing")["rows"][0]["offset"] == 10


def test_a_reset_sets_what_was_shown_or_says_that_the_group_has_changed(
    console: Console, bootstrap: str
) -> None:
    with ClusterClient(bootstrap) as cluster:
        groups.commit(cluster, "shown", {("orders", 0): 10, ("orders", 1): 50})
    path = "/groups/shown/reset"
    report = console.ask(path, "POST", {"to": "@1000", "dry_run": True}).json
    assert report["at_ms"] == 1000
    assert [(row["new"], row["lag"]) for row in report["rows"]] == [(0, 50), (0, 50)]
    kept = [{"topic": row["topic"], "partition": row["partition"], "offset": row["new"],
             "old": row["old"]} for row in report["rows"]]
    with ClusterClient(bootstrap) as cluster:
        groups.commit(cluster, "shown", {("orders", 1): 49})
    wanted = {"offsets": kept, "dry_run": False, "confirm": "shown"}
    refused = console.ask(path, "POST", wanted)
    assert (refused.status, refused.json["error"]) == (409, "CHANGED")
    assert "offset in orders-1 was 50 in the preview, and is 49 now" in refused.json["message"]
    assert [row["offset"] for row in console.get("/groups/shown")["rows"]] == [10, 49]
    kept[1]["old"], kept[1]["offset"] = 49, 51
    refused = console.ask(path, "POST", wanted)
    assert refused.status == 409 and "no longer has offset 51" in refused.json["message"]
    kept[1]["offset"] = 0
    assert console.ask(path, "POST", wanted).status == 200
    assert [row["offset"] for row in console.get("/groups/shown")["rows"]] == [0, 0]
    gone = console.ask("/groups/shown", "DELETE", {"confirm": "shown"})
    assert gone.status == 200


def test_topics_are_created_changed_trimmed_and_deleted(console: Console) -> None:
    made = {"topic": "made", "partitions": 1, "replication_factor": 1,
            "configs": {"retention.ms": "1000000"}}
    assert console.ask("/topics", "POST", made).status == 200
    again = console.ask("/topics", "POST", made)
    assert (again.status, again.json["error"]) == (400, "TOPIC_ALREADY_EXISTS")
    assert console.ask("/topics/made/grow", "POST", {"count": 3}).status == 200
    assert len(console.get("/topics/made")["rows"]) == 3
    changed = {"set": {"retention.ms": "2000000"}}
    assert console.ask("/topics/made/config", "PATCH", changed).status == 200
    [setting] = rows(console, "/topics/made/config", setting="retention.ms")
    assert (setting["value"], setting["source"]) == ("2000000", "DYNAMIC_TOPIC_CONFIG")
    sent = {"key": "k", "value": "v", "partition": 2, "headers": [{"name": "h", "value": "x"}]}
    assert console.ask("/topics/made/records", "POST", sent).json["offset"] == 0
    for key in "acfgh":         # as Java's clients choose partitions
        by_key = console.ask("/topics/made/records", "POST", {"key": key, "value": "v"}).json
        assert by_key["partition"] == partition_of(key.encode(), 3)
    trimmed = {"before": {"2": -1}, "confirm": "made"}
    done = console.ask("/topics/made/trim", "POST", trimmed)
    assert done.json["rows"] == [{"partition": 2, "start": 1}]
    assert console.ask("/topics/made", "DELETE", {"confirm": "other"}).status == 400
    assert console.ask("/topics/made", "DELETE", {"confirm": "made"}).status == 200
    assert console.ask("/topics/made").status == 404


def test_who_writes_to_a_topic_and_who_reads_it_is_known(
    console: Console, bootstrap: str
) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "shop", "linger.ms": 0})

    def seen() -> bool:
        producer.produce("old", b"x")
        producer.flush(10)
        return bool([row for row in console.get("/topics/old/clients")["rows"]
                     if row["client_id"] == "shop" and row["writes"] and not row["reads"]])

    until(seen, "the broker's next sample", between=0.5)
    assert "shop" not in {row["client_id"] for row in console.get("/topics/orders/clients")["rows"]}


def test_a_move_of_replicas_is_asked_of_the_broker(console: Console) -> None:
    same = {"topic": "orders", "replicas": {"0": [console.get("/brokers")["rows"][0]["broker"]]}}
    assert console.ask("/reassignments", "POST", same).json == {"partitions": 1}
    for replicas, says in (({"0": []}, "a list of brokers"), ({"0": [True]}, "a list of brokers"),
                           ({}, "at least one"), ({"0": [99]}, "99"), ({"77": [0]}, "77")):
        wrong = console.ask("/reassignments", "POST", {"topic": "orders", "replicas": replicas})
        assert 400 <= wrong.status < 500 and says in wrong.json["message"], wrong
    idle = console.ask("/reassignments", "DELETE", {"topic": "orders", "partition": 0})
    assert idle.json["error"] == "NO_REASSIGNMENT_IN_PROGRESS"


def test_users_and_quotas_are_set_and_removed(console: Console) -> None:
    wanted = {"mechanism": "SCRAM-SHA-512", "password": "p"}
    assert console.ask("/users/ann", "POST", wanted).status == 200
    assert len(rows(console, "/users", user="ann")) == 1
    gone = {"mechanism": "SCRAM-SHA-512", "confirm": "ann"}
    assert console.ask("/users/ann", "DELETE", gone).status == 200
    entity = {"user": None}
    quota = {"entity": entity, "set": {"producer_byte_rate": 1e6}}
    assert console.ask("/quotas", "PATCH", quota).status == 200
    assert [row["value"] for row in console.get("/quotas")["rows"]] == [1e6]
    reset = {"entity": entity, "reset": ["producer_byte_rate"]}
    assert console.ask("/quotas", "PATCH", reset).status == 200
    assert console.get("/quotas")["rows"] == []


@pytest.mark.parametrize(
    ("method", "path", "body", "says"),
    [
        ("POST", "/topics", {"topic": 5}, "not of type string"),
        ("POST", "/topics", {}, "'topic' is missing"),
        ("POST", "/topics", [1], "not a JSON object"),
        ("POST", "/topics", b"{", "not JSON"),
        ("POST", "/topics", {"topic": "x" * 300}, "x"),
        ("POST", "/topics", {"topic": "t", "configs": {"a": 1}}, "expected a string"),
        ("POST", "/topics/orders/trim", {"before": {"x": 1}, "confirm": "orders"}, "an offset"),
        ("POST", "/groups/billing/reset", {"to": "sideways"}, "the field 'to' is sideways: "),
        ("POST", "/groups/billing/reset", {}, "send the field 'to' (beginning, end"),
        ("POST", "/groups/none/reset", {"to": "end"}, "in the field 'topics'"),
        ("DELETE", "/topics/orders", None, """'confirm' of the request's JSON object must """
         """repeat the name 'orders', as in {"confirm": "orders"}"""),
        ("DELETE", "/topics/orders", {"confirm": "order"}, "must repeat the name 'orders'"),
        ("DELETE", "/acls", None, "'resource' is missing"),
        ("POST", "/elect", None, "send Content-Type: application/json"),
        ("POST", "/topics/orders/records", {"value": "%", "encoding": "base64"}, "not base64"),
        ("PATCH", "/quotas", {"entity": {}, "set": {}}, "expected the fields 'entity'"),
        ("POST", "/acls", {"resource": "ANY"}, "expected TOPIC"),
        ("GET", "/topics/orders/records?limit=-1", None, "whole number"),
        ("GET", "/topics/orders/records?regex=(", None, "not valid for RE2"),
        ("GET", "/topics/orders/records?json=order", None, "expected $"),
        ("GET", "/topics/orders/records?from=never", None, "expected newest"),
        ("GET", "/topics/orders/records?partition=7", None, "no partition 7"),
        ("GET", "/topics/orders/records?kye=a", None, "unknown parameter 'kye'; expected from, "),
        ("GET", "/topics?path=x", None, "unknown parameter 'path'; expected no parameter"),
        ("POST", "/topics", {"topic": "x", "partitons": 3}, "unknown field 'partitons'; similar"),
        ("GET", "/stream", None, "expected the parameter 'path' 1 to 8 times"),
        ("GET", "/nothing", None, "no such path"),
        ("GET", "//api/v2/topics", None, "no such path; see /api/v1/openapi.json"),
        ("DELETE", "//api/none", None, "no such path; see /api/v1/openapi.json"),
    ],
)
def test_a_wrong_request_is_told_what_was_wrong(
    console: Console, method: str, path: str, body: Any, says: str
) -> None:
    answer = console.ask(path, method, body)
    assert 400 <= answer.status < 500 and says in answer.json["message"], answer


def test_a_stream_sends_what_changed_and_only_that(console: Console) -> None:
    connection = console.connection()
    connection.request("GET", "/api/v1/stream?path=/topics")
    answer = connection.getresponse()
    first = next_change(answer)
    assert "orders" in [row["topic"] for row in first["value"]["rows"]]
    while first["value"]["pending"]:            # on a slow machine, other fields of the rows follow
        first = next_change(answer)
    assert console.ask("/topics", "POST", {"topic": "fresh", "partitions": 1}).status == 200
    known = {row["topic"]: row for row in first["value"]["rows"]}

    def arrived() -> bool:
        for row in next_change(answer)["changed"]:
            assert row != known.get(row["topic"]), "only what has changed"
            known[row["topic"]] = row
        return "fresh" in known

    until(arrived, "the new topic")
    assert console.ask("/topics/fresh", "DELETE", {"confirm": "fresh"}).status == 200
    until(lambda: "fresh" in next_change(answer)["removed"], "its end")
    connection.close()


def test_the_overview_is_whole_for_who_asks_once_and_in_the_end_for_pages(
    console: Console
) -> None:
    assert console.get("/overview")["pending"] == console.get("/topics")["pending"] == []
    connection = console.connection()
    connection.request("GET", "/api/v1/stream?path=/overview&path=/history%3Fmeasure%3Dlag")
    answer = connection.getresponse()

    def whole() -> bool:
        change = next_change(answer)
        return change["path"] == "/overview" and not change["value"]["pending"]

    until(whole, "what is still being read")
    connection.close()


def next_change(answer: Any) -> Any:
    while not (line := answer.readline()).startswith(b"data: "):
        assert line, "the stream has ended"
    return json.loads(line[6:])


@pytest.mark.parametrize("wrong", [
    "/topics/orders/records?regex=(", "/topics/orders/records?json=order",
    "/topics/orders/records?limit=x", "/topics/orders/records?isolation=none",
    "/history?measure=lags", "/history?kind=x",
    "/topics/orders/partitions/0/records/0?part=x",
])  # fmt: skip
def test_every_bad_parameter_has_the_same_code(console: Console, wrong: str) -> None:
    answer = console.ask(wrong)
    assert (answer.status, answer.json["error"]) == (400, "BAD_REQUEST"), answer


@pytest.mark.parametrize(("path", "body", "said"), [
    ("/reassignments", {"topic": "orders", "replicas": {"0": [1 << 31]}}, "replicas: 2147483648 "),
    ("/reassignments", {"topic": "orders", "replicas": {str(1 << 70): [0]}},
     "partition index: the number is not between "),
])
def test_a_number_that_no_request_can_hold_is_a_bad_request(
    console: Console, path: str, body: dict[str, object], said: str
) -> None:
    answer = console.ask(path, "POST", body)
    assert (answer.status, answer.json["error"]) == (400, "BAD_REQUEST"), answer
    assert answer.json["message"].startswith(said), answer


def test_a_parameter_that_must_be_a_number_is_described_as_one(console: Console) -> None:
    for entry in TABLE:
        described = openapi()["paths"][PREFIX + entry.path][entry.method.lower()]["parameters"]
        for one in described:
            if one["in"] == "query":
                asked = f"{entry.path.format(topic='orders')}?{one['name']}=x"
                refused = "expected a whole number" in console.ask(asked).json.get("message", "")
                assert (one["schema"]["type"] == "integer") is refused, asked


def test_every_path_is_described_and_answers(console: Console) -> None:
    document = console.get("/openapi.json")
    assert document == openapi()
    confirms = {
        (path, method): schema["properties"]["confirm"]["description"]
        for path, entry in document["paths"].items() for method, one in entry.items()
        for body in one.get("requestBody", {}).get("content", {}).values()
        if "confirm" in (schema := body["schema"])["properties"]
    }
    assert confirms[f"{PREFIX}/topics/{{topic}}", "delete"].startswith("must repeat the path's top")
    assert "the field principal," in confirms[f"{PREFIX}/acls", "delete"]
    assert "dry_run" in confirms[f"{PREFIX}/groups/{{group}}/reset", "post"]
    described = {(path, method) for path, each in document["paths"].items() for method in each}
    assert {(PREFIX + one.path, one.method.lower()) for one in TABLE} <= described
    assert all(each["summary"] for path in document["paths"].values() for each in path.values())
    for entry in TABLE:
        if entry.method == "GET" and "{" not in entry.path:
            answer = console.ask(entry.path)
            allowed = answer.json.get("error") in ("SECURITY_DISABLED", None) or (
                "TOKEN" in answer.json["error"])
            assert allowed, (entry.path, answer)


def test_the_front_end_asks_only_for_paths_that_exist() -> None:
    folder = Path(__file__).parents[2] / "ottla" / "console" / "static"
    text = "".join(path.read_text() for path in folder.glob("*.js"))
    known = {entry.path.split("/")[1] for entry in TABLE} | {"session", "stream"}
    asked = re.findall(r'(?:ask|useLive)\((?:"|`)/([a-z-]+)', text)
    assert len(asked) > 15 and set(asked) <= known, set(asked) - known


def test_the_front_end_makes_no_markup_and_loads_nothing_from_elsewhere() -> None:
    folder = Path(__file__).parents[2] / "ottla" / "console" / "static"
    for path in [*folder.glob("*.js"), *folder.glob("*.html"), *folder.glob("*.css")]:
        text = path.read_text()
        assert not re.search(r"innerHTML|outerHTML|document\.write|\beval\(|new Function", text)
        assert not re.search(r"https?://(?!www\.w3\.org)", text), path
    for name in ("preact", "htm", "signals", "signals-core", "uplot"):
        assert (folder / "vendor" / f"{name}.LICENSE").stat().st_size > 500


def test_a_group_that_has_committed_nothing_has_no_lag(console: Console, bootstrap: str) -> None:
    member = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "silent", "enable.auto.commit": False})
    member.subscribe(["orders"])
    while not member.assignment():
        member.poll(0.1)
    until(lambda: rows(console, "/groups", group="silent"), "its row", between=0.2)
    [listed], page = rows(console, "/groups", group="silent"), console.get("/groups/silent")
    assert (listed["lag"], page["lag"]) == (None, None)
    assert [row["lag"] for row in page["rows"]] == [None, None]
    member.close()
