"""/api/v1/groups/NAME/why and /lag on a running broker."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer

from ottla.broker.history import group_answer, topic_answer
from ottla.broker.history.group_answer import _growth
from ottla.broker.history.lag_samples import Change
from ottla.broker.history.open_transactions import opened
from ottla.client.cluster import ClusterClient
from ottla.client.errors import Refused
from ottla.groups.shard import OFFSETS_AT_ONCE
from ottla.tools.admin import groups, topics, transactions
from ottla.tools.stream.batches import SingleSender
from ottla.wire.records import Record
from tests.broker.running import RunningBroker, WireClient
from tests.broker.transactions import add, find, init, write
from tests.waiting import until


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path, ottla_http_listener="127.0.0.1:0") as running:
        yield running


def get(broker: RunningBroker, path: str) -> tuple[int, Any]:
    assert broker.server.http is not None
    try:
        with urlopen(f"http://127.0.0.1:{broker.server.http.port}{path}") as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


def test_a_group_without_members_says_so_and_how_much_waits(broker: RunningBroker) -> None:
    with ClusterClient(f"127.0.0.1:{broker.port}") as cluster:
        topics.create(cluster, "t", partitions=2)
        now_ms = broker.server.clock.now_ms()
        for _ in range(3):
            SingleSender(cluster).send("t", Record(-1, now_ms - 5000, None, bytes(1000), ()), 0)
        groups.commit(cluster, "a/b c", {("t", 0): 1})
    code, found = get(broker, "/api/v1/groups/a%2Fb%20c/why")
    assert (code, found["group"], found["state"], found["members"]) == (200, "a/b c", "Empty", 0)
    nobody, lag = found["now"]
    assert nobody["kind"] == "no_members" and nobody["text"].endswith(": nobody reads")
    assert lag["text"].startswith("2 records (2.1 KiB) wait in 1 partition, the oldest is")
    assert lag["text"].endswith("old, not counting 1 partition without a committed offset")
    assert (lag["lag"], lag["lag_bytes"], lag["uncommitted"]) == (2, 2140, 1)
    code, [row, never_committed] = get(broker, "/api/v1/groups/a%2Fb%20c/lag")
    assert code == 200
    assert (row["topic"], row["partition"], row["committed"], row["end"]) == ("t", 0, 1, 3)
    assert (row["lag"], row["lag_bytes"], row["member"]) == (2, 2140, None)
    assert (never_committed["partition"], never_committed["lag"], never_committed["end"]) == (
        1, None, 0)
    code, rows = get(broker, "/api/v1/groups")
    assert [(each["group"], each["lag_bytes"]) for each in rows] == [("a/b c", 2140)]


def test_a_group_whose_log_takes_no_writes_says_why_and_where_to_look(
    broker: RunningBroker
) -> None:
    with ClusterClient(f"127.0.0.1:{broker.port}") as cluster:
        topics.create(cluster, "t", partitions=1)
        groups.commit(cluster, "g", {("t", 0): 0})
    _, found = get(broker, "/api/v1/groups/g/why")
    assert "log_takes_no_writes" not in [each["kind"] for each in found["now"]]
    [directory] = broker.server.storage.directories
    directory.space.refused(OSError(errno.ENOSPC, "no space left"))
    _, found = get(broker, "/api/v1/groups/g/why")
    now = found["now"][0]
    assert (now["kind"], now["reason_kind"]) == ("log_takes_no_writes", "directory_full")
    log = f"__consumer_offsets-{now['partition']}"
    assert now["text"].startswith(
        f"the group's log, {log}, accepts no writes, so the group can neither rebalance nor commit:"
        f" log directory {directory.path} on broker {broker.server.config.node_id} is full")
    assert now["text"].endswith("; `ottla topic why __consumer_offsets` shows more")


def test_an_unknown_group_is_refused_with_a_document(broker: RunningBroker) -> None:
    with ClusterClient(f"127.0.0.1:{broker.port}") as cluster:
        topics.create(cluster, "t", partitions=1)
        groups.commit(cluster, "other", {("t", 0): 0})
    for word in ("why", "lag"):
        code, document = get(broker, f"/api/v1/groups/none/{word}")
        assert (code, document["error"]) == (404, "GROUP_ID_NOT_FOUND")
        assert "'none'" in document["message"]


def test_offsets_that_no_member_has_set_are_an_event_and_an_audit_line(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ottla.audit")
    with ClusterClient(f"127.0.0.1:{broker.port}", client_id="tool") as cluster:
        topics.create(cluster, "t", partitions=1)
        for offset in (5, 6, 7, 2, 3):
            groups.commit(cluster, "g", {("t", 0): offset})
    _, found = get(broker, "/api/v1/groups/g/why")
    who = "User:ANONYMOUS, client tool, of 127.0.0.1, not a member, set the offsets of t"
    assert [(each["kind"], each["text"], each["times"]) for each in found["events"]] == [
        ("offsets_set", f"{who} (4 times)", 4),
        ("offsets_set", f"{who} back by 5 records", 1),
    ]
    lines = [each.getMessage() for each in caplog.records if "OffsetCommit" in each.getMessage()]
    assert [line.split(": ", 1)[1].split(" ")[1:3] for line in lines] == [
        ["t-0", f"committed_offset={offset}"] for offset in (5, 2)
    ]


def test_a_commit_of_many_partitions_is_one_event_and_audited_once(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ottla.audit")
    count = OFFSETS_AT_ONCE + 1
    with ClusterClient(f"127.0.0.1:{broker.port}", client_id="tool") as cluster:
        topics.create(cluster, "t", partitions=count)
        for offset in (5, 2):
            groups.commit(cluster, "g", {("t", index): offset for index in range(count)})
    _, found = get(broker, "/api/v1/groups/g/why")
    assert [(each["times"], each.get("back")) for each in found["events"]] == [
        (1, None), (1, 3 * count)]
    def lines() -> int:
        return sum("OffsetCommit" in each.getMessage() for each in caplog.records)

    until(lambda: lines() >= 2 * count, "all offsets are audited")
    assert lines() == 2 * count


def test_offsets_that_were_refused_are_no_event(broker: RunningBroker) -> None:
    with ClusterClient(f"127.0.0.1:{broker.port}", client_id="tool") as cluster:
        for name in ("t", "u"):
            topics.create(cluster, name, partitions=1)
        groups.commit(cluster, "g", {("t", 0): 5})
        with pytest.raises(Refused, match="offset metadata too large"):
            groups.commit(
                cluster, "g", {("t", 0): 1, ("u", 0): 1},
                {("t", 0): "x" * 5000, ("u", 0): "x" * 5000})
        with pytest.raises(Refused, match="offset metadata too large"):
            groups.commit(cluster, "g", {("t", 0): 1, ("u", 0): 1}, {("t", 0): "x" * 5000})
    _, found = get(broker, "/api/v1/groups/g/why")
    assert [(each["topics"], each["times"], each.get("back")) for each in found["events"]] == [
        (["t", "u"], 2, None)]


def test_an_open_transaction_has_a_name_and_its_abort_leaves_traces(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ottla.audit")
    with ClusterClient(f"127.0.0.1:{broker.port}") as cluster:
        topics.create(cluster, "t", partitions=1)
        groups.commit(cluster, "g", {("t", 0): 0})
        with WireClient(broker.address) as client:
            find(client, "ledger-1")
            producer = init(client, "ledger-1", timeout_ms=50_000)
            assert add(client, "ledger-1", producer, "t", 0) == [0]
            assert write(client, "ledger-1", producer, "t", b"a", b"b") == 0
        now = []
        for path in ("groups/g", "topics/t"):
            _, found = get(broker, f"/api/v1/{path}/why")
            of = found if path == "groups/g" else found["partitions"][0]
            now.append(next(one for one in of["now"] if one["kind"] == "open_transaction"))
        for one in now:
            assert f"ledger-1 (producer id {producer.producer_id}) of client test at" in one["text"]
            assert one["transactional_id"] == "ledger-1" and one["stable_offset"] == 0
            assert one["ends_ms"] - one["since_ms"] == one["timeout_ms"] == 50_000
        transactions.terminate(cluster, "ledger-1")
    event = f"the transaction of ledger-1 (producer id {producer.producer_id}), open for "
    _, found = get(broker, "/api/v1/topics/t/why")
    assert [one["text"].startswith(event) for one in found["events"]] == [True]
    _, found = get(broker, "/api/v1/groups/g/why")
    assert found["events"][-1]["text"].startswith(f"t-0: {event}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_answer, "EVENTS_MAX", 1)
        _, found = get(broker, "/api/v1/groups/g/why")
    assert [one["kind"] for one in found["events"]] == ["transaction_aborted"], "the newest"
    [line] = [each.getMessage() for each in caplog.records if "ledger-1" in each.getMessage()]
    assert "InitProducerId transactional_id=ledger-1 aborted its open transaction" in line
    assert line.endswith("partitions=t-0: done")
    with ClusterClient(f"127.0.0.1:{broker.port}") as cluster:
        groups.commit(cluster, "g", {("t", 0): 2})
    _, found = get(broker, "/api/v1/groups/g/why")
    lag = next(one for one in found["now"] if one["kind"] == "lag")
    assert "every record is read: the lag consists of transaction markers (1)" in lag["text"]


def test_the_producers_of_a_few_open_transactions_are_looked_for(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return opened(*arguments)

    for module in (group_answer, topic_answer):
        monkeypatch.setattr(module, "opened", counted)
    monkeypatch.setattr(group_answer, "FINDINGS_MAX", 3)
    monkeypatch.setattr(topic_answer, "OPENED_MAX", 3)
    with ClusterClient(f"127.0.0.1:{broker.port}") as cluster:
        topics.create(cluster, "t", partitions=5)
        groups.commit(cluster, "g", {("t", index): 0 for index in range(5)})
        with WireClient(broker.address) as client:
            find(client, "ledger-1")
            producer = init(client, "ledger-1")
            assert add(client, "ledger-1", producer, "t", *range(5)) == [0] * 5
            for index in range(5):
                assert write(client, "ledger-1", producer, "t", b"a", partition=index) == 0
    _, found = get(broker, "/api/v1/groups/g/why")
    assert [one["kind"] for one in found["now"]] == ["no_members", *["open_transaction"] * 2]
    assert len(calls) == 2
    _, found = get(broker, "/api/v1/topics/t/why")
    named = [each["now"][0].get("transactional_id") for each in found["partitions"]]
    assert named == ["ledger-1"] * 3 + [None] * 2 and len(calls) == 5
    _, rows = get(broker, "/api/v1/transactions")
    assert [(each["id"], each["client_id"]) for each in rows] == [("ledger-1", "test")]


def test_a_reset_is_no_growth_of_the_lag() -> None:
    text = _growth(Change(20_000, 5_419, -5_419))
    assert text == (
        "; the group's offsets were set back meanwhile, in all by 5,419 records: the lag is 5,419"
        " records more than 20 s ago")


def test_a_client_that_has_left_but_is_connected_is_named(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ClusterClient(f"127.0.0.1:{broker.port}") as cluster:
        topics.create(cluster, "t", partitions=1)
        settings = {
            "bootstrap.servers": f"127.0.0.1:{broker.port}", "group.id": "g", "client.id": "busy"}
        consumer, other = Consumer(settings), Consumer({**settings, "group.id": "other"})
        joined: list[Any] = []
        consumer.subscribe(["t"], on_assign=lambda _, places: joined.extend(places))
        other.list_topics(timeout=10)               # it stays connected
        while not joined:
            consumer.poll(0.1)
        consumer.close()
    _, found = get(broker, "/api/v1/groups/g/why")
    assert "left_but_connected" not in [one["kind"] for one in found["now"]], "it may be closing"
    monkeypatch.setattr(group_answer, "LEFT_MS", 0)
    _, found = get(broker, "/api/v1/groups/g/why")
    [left] = [one for one in found["now"] if one["kind"] == "left_but_connected"]
    assert left["text"].startswith(
        "client busy of 127.0.0.1 has left the group, and a client with the same id and host is")
    other.close()
