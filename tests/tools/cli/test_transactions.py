"""`ottla transaction …`, with a broker whose longest transaction timeout is shorter than usual."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from ottla.tools.admin.transactions import FENCE_TIMEOUT_MS
from tests.broker.running import RunningBroker
from tests.tools.cli.ottla_command import Ottla
from tests.tools.kafka_names.stage import OVERRIDES

TIMEOUT_MS = 30_000
SHORT = {"transaction.max.timeout.ms": str(TIMEOUT_MS)}


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ottla]:
    data = tmp_path_factory.mktemp("transactions") / "data"
    with RunningBroker(data, **OVERRIDES | SHORT) as running:
        ottla = Ottla(f"127.0.0.1:{running.port}")
        ottla.ok("topic create orders")
        yield ottla


def begun(ottla: Ottla, name: str) -> Producer:
    """A producer with an open transaction."""
    producer = Producer({
        "bootstrap.servers": ottla.address, "transactional.id": name,
        "transaction.timeout.ms": TIMEOUT_MS,
    })
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"x")
    producer.flush(30)
    return producer


@pytest.mark.parametrize("command", [
    "transaction abort {0} --yes",
    "kafka-transactions --bootstrap-server {1} forceTerminateTransaction --transactionalId {0}",
])
def test_a_transaction_is_aborted_however_short_the_longest_timeout_is(
    strict: Ottla, command: str
) -> None:
    assert FENCE_TIMEOUT_MS < TIMEOUT_MS
    name = f"long-{len(command)}"
    producer = begun(strict, name)
    done = strict(command.format(name, strict.address))
    assert done.status == 0, done
    assert done.err in ("", f"aborted the transaction of {name}\n")
    assert '"state": "Ongoing"' not in strict.ok(f"transaction describe {name} -o json")
    del producer


@pytest.mark.parametrize(("more", "would"), [("--yes", ""), ("--dry-run", "would have ")])
def test_an_abort_without_an_open_transaction_does_not_claim_one(
    strict: Ottla, more: str, would: str
) -> None:
    begun(strict, "ended").commit_transaction(30)
    assert strict(f"transaction abort ended {more}").err == (
        f"{would}fenced the producer of ended; it had no transaction to abort (state:"
        " CompleteCommit)\n")


def test_an_id_without_an_open_transaction_is_not_older_than_any_time(strict: Ottla) -> None:
    begun(strict, "committed").commit_transaction(30)
    producer = Producer({
        "bootstrap.servers": strict.address, "transactional.id": "unused",
        "transaction.timeout.ms": TIMEOUT_MS,
    })
    producer.init_transactions(30)
    opened = begun(strict, "opened")
    every = strict.ok("transaction list -o name").split()
    assert {"committed", "unused", "opened"} <= {*every}
    assert strict.ok("transaction list --older 0 -o name").split() == ["opened"]
    opened.abort_transaction(30)
