"""An answer about a group says only what the broker knows for certain."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.history.group_answer import LEFT_MS, _hash_of, _left, _was_held_back
from ottla.broker.history.open_transactions import IDS_A_STEP, ongoing
from ottla.broker.history.transaction_memory import HeldBack
from ottla.broker.threads.slices import Slices
from ottla.groups.history.rings import Event, event
from ottla.groups.transactions.records import TransactionState


def left(at_ms: int, **fields: Any) -> Event:
    return event(at_ms, at_ms, "left", {"client": "c", "host": "h", **fields})


@pytest.mark.parametrize(("events", "connected", "named"), [
    ([left(0)], {("c", "h"): LEFT_MS + 1.0}, True),
    ([left(0)], {("c", "h"): LEFT_MS - 1.0}, False),                        # connected afterwards
    ([left(0)], {("c", "elsewhere"): LEFT_MS + 1.0}, False),
    ([left(0, by_administrator=True)], {("c", "h"): LEFT_MS + 1.0}, False),
    ([left(0), left(0, by_administrator=True)], {("c", "h"): LEFT_MS + 1.0}, False),
    ([left(1)], {("c", "h"): LEFT_MS + 1.0}, False),                        # it may be closing
])
def test_a_client_of_the_same_name_has_been_connected_since_before(
    events: list[Event], connected: dict[tuple[str | None, str], float], named: bool
) -> None:
    moment: Any = SimpleNamespace(wall_ms=LEFT_MS)
    group: Any = SimpleNamespace(members={})
    assert bool(list(_left(group, events, moment, connected))) is named


def test_only_the_leader_knows_that_a_transaction_has_ended() -> None:
    held, key = HeldBack(), ("g", "t", 0)
    held.note(key, 0)
    partition = SimpleNamespace(led_here=True)
    broker: Any = SimpleNamespace(
        histories=SimpleNamespace(held=held), clock=SimpleNamespace(monotonic_ms=lambda: 1_000),
        replicas=SimpleNamespace(partition=lambda topic, index: partition))
    row = {"topic": "t", "partition": 0, "committed_seconds_ago": 60.0}
    assert _was_held_back(broker, row, key)
    partition.led_here = False
    assert not _was_held_back(broker, row, key)


def test_many_transactional_ids_are_read_in_slices() -> None:
    def value(number: int) -> Any:
        state = TransactionState.ONGOING if number % 2 else TransactionState.EMPTY
        return SimpleNamespace(producer_id=number, state=state)

    known = {f"id-{number}": value(number) for number in range(3 * IDS_A_STEP)}
    runtime = SimpleNamespace(shards=lambda: [SimpleNamespace(transactions=known)])
    broker: Any = SimpleNamespace(coordinators=SimpleNamespace(
        transactions=SimpleNamespace(runtime=runtime)))

    def serve_others() -> None:
        del known[f"id-{3 * IDS_A_STEP - 1}"], known["id-1"]

    async def read() -> Any:
        asyncio.get_running_loop().call_soon(serve_others)
        return await ongoing(broker, Slices(0.0))

    found = asyncio.run(read())
    assert sorted(found) == [*range(1, 3 * IDS_A_STEP - 2, 2)]
    assert found[3][0] == "id-3"


def test_lag_is_compared_only_if_it_is_about_the_same_partitions() -> None:
    topics = {"t": SimpleNamespace(topic_id=b"1")}
    broker: Any = SimpleNamespace(image=SimpleNamespace(topics=topics))
    rows = [{"topic": "t", "partition": index, "committed": 5, "lag": 0} for index in range(3)]
    same = _hash_of(broker, rows)
    rows[0] |= {"committed": 6, "lag": 1}
    assert _hash_of(broker, rows) == same
    for gone in (rows[:2], [*rows[:2], rows[2] | {"committed": None}],
                 [*rows[:2], rows[2] | {"lag": None}]):
        assert _hash_of(broker, gone) != same
    topics["t"].topic_id = b"2"
    assert _hash_of(broker, rows) != same
