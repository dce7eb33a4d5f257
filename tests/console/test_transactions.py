"""Transactions that hang: found, and ended by hand; open ones: what they hold back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Producer

from ottla.client.cluster import ClusterClient
from ottla.client.errors import Refused
from ottla.console import access_pages, group_pages
from ottla.console.access_pages import described
from ottla.console.cluster_pages import held_back
from ottla.console.sweeps import Sweep
from ottla.tools.admin import groups, topics
from ottla.tools.admin.transactions import list_transactions
from ottla.wire.errors import ErrorCode
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
        producer = Producer({"bootstrap.servers": f"{host}:{port}", "transactional.id": "ledger"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for _ in range(3):
            producer.produce("paid", b"reserved", partition=1)
        assert producer.flush(30) == 0
        memory: dict[Any, Any] = {"group lags": {"billing": {("paid", 1): 3}, "other": {}}}
        [listed] = list_transactions(cluster)
        assert described(cluster, memory, [listed])[0]["held_back"] is None, "it is young"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(access_pages, "HELD_MS", 0)
            [row] = described(cluster, memory, [listed])
    assert (row["held_back"], row["groups"], row["topics"]) == (3, ["billing"], ["paid"])
    assert row["ends_ms"] == row["started_ms"] + row["timeout_ms"]
    found = held_back({**row, "age_ms": 725_000, "timeout_ms": 900_000})
    assert found["why"] == (
        f"The transaction of ledger (producer id {row['producer']}) has been open for 12 min and"
        " holds back 3 records of paid-1 from consumers that read with"
        " isolation.level=read_committed. 1 group has lag there: billing. Its timeout of 15 min"
        " ends it.")
    assert (found["what"], found["since_ms"]) == ("transaction/ledger", row["started_ms"])
    assert service.stop() == 0


def test_a_report_hides_the_transaction_of_an_id_that_the_user_may_not_see(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    def describe(cluster: Any, name: str) -> None:
        if name == "secret":
            raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    monkeypatch.setattr("ottla.tools.admin.transactions.describe", describe)
    reports = {0: {"events": [], "now": [
        {"kind": "open_transaction", "topic": "paid", "partition": 1, "stable_offset": 7,
         "text": f"of {name}", "transactional_id": name, "client": "c"}
        for name in ("ledger", "secret")
    ]}}
    monkeypatch.setattr(group_pages, "read_all", lambda *asked: reports)
    ledger, secret = group_pages.why(cast(ClusterClient, None), {}, "groups", "billing")["now"]
    assert ledger["client"] == "c" and "secret" not in json.dumps(secret)
    assert secret["text"].startswith("paid-1: a transaction is open since offset 7") and (
        "client" not in secret)
