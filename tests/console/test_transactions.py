"""Transactions that hang: found, and ended by hand."""

from __future__ import annotations

import shutil
from pathlib import Path

from confluent_kafka import Producer

from ottla.client.cluster import ClusterClient
from ottla.console.sweeps import Sweep
from ottla.tools.admin import topics
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
