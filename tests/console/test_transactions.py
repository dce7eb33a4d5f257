"""Hanging transactions are found, and can be ended by hand. For open transactions, the console
shows which records they hold back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Producer

from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClientError, Refused, TimedOut
from ottla.console import access_pages, group_pages
from ottla.console.access_pages import described
from ottla.console.cluster_pages import held_back
from ottla.console.group_pages import EVENTS_MAX
from ottla.console.sweeps import Sweep
from ottla.tools.admin import groups, topics
from ottla.tools.admin.offsets import Place
from ottla.tools.admin.transactions import list_transactions
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    MetadataResponse,
)
from tests.broker.service import Service
from tests.console.consoles import Console


def test_a_transaction_that_no_coordinator_knows_is_found_and_ended(tmp_path: Path) -> None:
    settings = ("--override", "transaction.state.log.num.partitions=1")
    service = Service(tmp_path, *settings)
    host, port = service.ready()
    with ClusterClient(f"{host}:{port}") as cluster:
        topics.create(cluster, "paid", partitions=1, replication_factor=1)
    producer = Producer({"bootstrap.servers": f"{host}:{port}", "transactional.id": "payments"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("paid", b"never committed")
    assert producer.flush(30) == 0
    service.process.kill()
    service.process.wait()
    shutil.rmtree(next((tmp_path / "data").glob("__transaction_state-0")))
    again = Service(tmp_path, *settings)
    host, port = again.ready()

    with Console(f"{host}:{port}", tmp_path, "--allow-changes") as console:
        assert console.get("/transactions")["rows"] == []
        assert console.get("/transactions-hanging")["rows"] == [], "it is not 15 minutes old"
        found = console.get("/transactions-hanging?minutes=0")
        [row] = found["rows"]
        assert (row["topic"], row["partition"], row["first_offset"]) == ("paid", 0, 0)
        assert found["left"] == 0 < found["of"]
        wanted = {"topic": "paid", "partition": 0, "first_offset": 0, "minutes": 0}
        refused = console.ask("/transactions-hanging", "DELETE", {**wanted, "confirm": "x"})
        assert refused.status == 400
        other = {**wanted, "first_offset": 7, "confirm": "paid"}
        assert console.ask("/transactions-hanging", "DELETE", other).status == 404
        done = console.ask("/transactions-hanging", "DELETE", {**wanted, "confirm": "paid"})
        assert done.status == 200, done
        assert console.get("/transactions-hanging?minutes=0")["rows"] == []
        read = console.get("/topics/paid/records?isolation=read_committed&from=oldest")
        assert read["rows"] == [] and read["ended"] == "end"
    assert again.stop() == 0


def test_thousands_are_looked_at_a_part_at_a_time_the_oldest_first() -> None:
    now = [0.0]
    seen: list[str] = []

    def look(name: str) -> str:
        seen.append(name)
        now[0] += 1.0
        return name.upper()

    sweep: Sweep[str] = Sweep(lambda: now[0])
    names = [f"n{number}" for number in range(5)]
    assert sweep.look(names, look, 1.5) == {"n0": "N0", "n1": "N1"} and sweep.left == 3
    sweep.look(names, look, 1.5)
    assert sweep.look(names, look, 1.5).keys() == set(names) and sweep.left == 0
    assert seen == ["n0", "n1", "n2", "n3", "n4", "n0"]
    assert sweep.look(names[1:], look, 0.5).keys() == set(names[1:]), "what is gone is forgotten"


def test_an_open_transaction_that_holds_back_records_is_named(tmp_path: Path) -> None:
    service = Service(tmp_path)
    host, port = service.ready()
    with ClusterClient(f"{host}:{port}") as cluster:
        topics.create(cluster, "paid", partitions=2, replication_factor=1)
        groups.commit(cluster, "billing", {("paid", 1): 0})
        producers = []
        for name, records in (("ledger", 3), ("late", 2)):
            producer = Producer({"bootstrap.servers": f"{host}:{port}", "transactional.id": name})
            producer.init_transactions(30)
            producer.begin_transaction()
            for _ in range(records):
                producer.produce("paid", b"reserved", partition=1)
            assert producer.flush(30) == 0
            producers.append(producer)
        memory: dict[Any, Any] = {"group lags": {"billing": {("paid", 1): 3}, "other": {}}}
        listed = list_transactions(cluster)
        assert [one["held_back"] for one in described(cluster, memory, listed)] == [None, None], (
            "they are young")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(access_pages, "HELD_MS", 0)
            late, row = described(cluster, memory, listed)
            patch.setattr(access_pages, "HELD_PLACES_MAX", 0)
            unknown = described(cluster, memory, listed)
    assert [one["held_back"] for one in unknown] == [None, None], "no broker was asked who it is"
    assert (row["held_back"], row["groups"], row["topics"]) == (5, ["billing"], ["paid"])
    assert row["held_partitions"] == ["paid-1"]
    assert (late["id"], late["held_back"], late["groups"], late["partitions"]) == (
        "late", 0, [], ["paid-1"]), "the records of paid-1 wait for ledger"
    assert row["ends_ms"] == row["started_ms"] + row["timeout_ms"]
    found = held_back({**row, "age_ms": 725_000, "timeout_ms": 900_000})
    assert found["why"] == (
        f"The transaction of ledger (producer id {row['producer']}) has been open for 12 min and"
        " holds back 5 records of paid-1 from consumers that read with"
        " isolation.level=read_committed. 1 group has lag there: billing. The timeout of 15 min"
        " ends the transaction.")
    assert (found["what"], found["since_ms"]) == ("transaction/ledger", row["started_ms"])
    assert service.stop() == 0


def test_a_topic_that_the_user_may_not_read_leaves_the_others_known(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    def producers(cluster: Any, places: Iterable[Place]) -> dict[Place, list[Any]]:
        if any(topic == "secret" for topic, _ in places):
            raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return {place: [SimpleNamespace(producer_id=one, current_txn_start_offset=start)
                        for one, start in ((4, -1), (5, 7), (6, 9))] for place in places}

    monkeypatch.setattr("ottla.tools.admin.transactions.producers", producers)
    stable = {("paid", 0): 7, ("paid", 1): 8, ("secret", 0): 7}
    found = access_pages.first_producers(cast(ClusterClient, None), stable)
    assert found == {("paid", 0): 5, ("paid", 1): -1}


class Refusing:
    """A cluster whose brokers hide the transactional id `secret` and the topic `secret`."""

    def __init__(self, lost: ClientError | None = None) -> None:
        self.lost, self.asked = lost, list[list[str]]()

    def any(self) -> Refusing:
        return self

    def call(self, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        self.asked.append(list(request.transactional_ids))
        if self.lost is not None:
            raise self.lost
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return DescribeTransactionsResponse(transaction_states=[
            DescribeTransactionsResponse.TransactionState(
                transactional_id=one,
                error_code=refused if one == "secret" else ErrorCode.NOT_COORDINATOR)
            for one in request.transactional_ids])

    def metadata(self, names: list[str]) -> MetadataResponse:
        codes = {"secret": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                 "deleted": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        return MetadataResponse(topics=[
            MetadataResponse.Topic(name=one, error_code=codes.get(one, ErrorCode.NONE))
            for one in names])


def reports_of(monkeypatch: pytest.MonkeyPatch, now: list[Any], events: list[Any]) -> None:
    """Let one broker report these states and events under `/why`. No broker answers requests for
    `/lag` in time."""
    def read_all(cluster: Any, memory: Any, path: str) -> dict[int, Any]:
        return {0: {"now": now, "events": events}} if path.endswith("/why") else {}

    monkeypatch.setattr(group_pages, "read_all", read_all)


def test_a_report_hides_the_transaction_of_an_id_that_the_user_may_not_see(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [
        {"kind": "open_transaction", "topic": "paid", "partition": 1, "stable_offset": 7,
         "text": f"of {name}", "transactional_id": name, "client": "c"}
        for name in ("ledger", "secret")
    ]
    events = [
        {"kind": "transaction_aborted", "transactional_id": name, "last_ms": number}
        for number in range(EVENTS_MAX) for name in ("ledger", "secret", "late")
    ]
    reports_of(monkeypatch, now, events)
    cluster = Refusing()
    found = group_pages.why(cast(ClusterClient, cluster), {}, "groups", "billing")
    ledger, secret = found["now"]
    assert ledger["client"] == "c" and "secret" not in json.dumps([secret, found["events"]])
    assert secret["text"].startswith("paid-1: a transaction is open since offset 7") and (
        "client" not in secret)
    assert cluster.asked == [["late", "ledger", "secret"]], "one request for all ids"
    assert [one["last_ms"] for one in found["events"]] == sorted(
        (one["last_ms"] for one in events if one["transactional_id"] != "secret"),
        reverse=True)[:EVENTS_MAX]

    silent = Refusing(TimedOut("no answer"))
    found = group_pages.why(cast(ClusterClient, silent), {}, "groups", "billing")
    assert len(silent.asked) == 1 and found["events"] == []
    assert all("transactional_id" not in one for one in found["now"]), "hidden if in doubt"


def test_a_group_hides_topics_that_the_user_may_not_see_whatever_brokers_report_of_its_lag(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    now: list[dict[str, Any]] = [
        {"kind": "no_members"}, {"kind": "lag", "lag": 12},
        {"kind": "not_assigned", "topic": "secret"}, {"kind": "not_assigned", "topic": "paid"},
    ]
    events: list[dict[str, Any]] = [
        {"kind": "offsets_set", "topics": topics, "last_ms": -number}
        for number, topics in enumerate(
            (["paid", "…"], ["deleted"], ["other"], ["paid", "secret"]))
    ] + [
        {"kind": "subscription_changed", "added": ["secret"], "removed": []},
        {"kind": "transaction_aborted", "topic": "secret", "transactional_id": "ledger"},
    ]
    reports_of(monkeypatch, now, events)
    group = groups.Group("billing", "classic", "Empty", "", [])
    monkeypatch.setattr(groups, "describe", lambda *asked: group)
    monkeypatch.setattr(groups, "committed", lambda *asked: {("paid", 0): (5, -1)})
    monkeypatch.setattr(groups, "without_commit", lambda *asked: set())
    monkeypatch.setattr(group_pages, "ends_of", lambda *asked: {("paid", 0): 9})
    monkeypatch.setattr(group_pages, "coordinator_of", lambda *asked: 0)
    page = group_pages.group_page(cast(ClusterClient, Refusing()), {}, "billing")
    assert "secret" not in json.dumps(page)
    assert [one["kind"] for one in page["why"]["now"]] == ["no_members", "not_assigned"]
    assert [one["topics"] for one in page["why"]["events"]] == [
        ["paid", "…"], ["deleted"], ["other"]]
