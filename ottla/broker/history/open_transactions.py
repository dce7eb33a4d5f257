"""The open transaction that holds back read_committed consumers: who opened it, when, and when it
will be aborted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ottla.broker.threads.slices import Slices, in_parts
from ottla.groups.transactions.records import TransactionState
from ottla.wire.errors import ProtocolError
from ottla.wire.wording import duration

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext
    from ottla.groups.transactions.records import TransactionValue
    from ottla.replication.partition import Partition


OPENED_MAX = 50
"""In one answer, `opened` looks for the producer in at most this many partitions: it reads all
producers of each of them."""
IDS_A_STEP = 500

Ongoing = Mapping[int, "tuple[str, TransactionValue]"]
"""The open transactions with their transactional ids, by producer id."""


async def ongoing(broker: BrokerContext, slices: Slices) -> Ongoing:
    """The open transactions that this broker coordinates. They are collected in slices, since there
    can be 100,000 transactional ids."""
    found: dict[int, tuple[str, TransactionValue]] = {}
    for shard in broker.coordinators.transactions.runtime.shards():
        for ids in in_parts(list(shard.transactions), IDS_A_STEP):
            for transactional_id in ids:
                value = shard.transactions.get(transactional_id)
                if value is not None and value.state is TransactionState.ONGOING:
                    found[value.producer_id] = transactional_id, value
            if slices.over:
                await slices.pause()
    return found


def briefly(stable: int) -> tuple[str, dict[str, Any]]:
    """What can be said without looking for the producer."""
    return f"a transaction is open since offset {stable}", {"stable_offset": stable}


def opened(
    broker: BrokerContext, partition: Partition, stable: int, known_open: Ongoing
) -> tuple[str, dict[str, Any]]:
    """A sentence about the transaction that begins at the last stable offset of a partition, and
    the fields of the finding. Only the coordinator knows the transactional id and the times."""
    text, fields = briefly(stable)
    try:
        producers = partition.log.active_producers()
    except (OSError, ProtocolError):
        return text, fields
    state = next((one for one in producers if one.transaction_start == stable), None)
    if state is None:
        return text, fields
    fields |= {"producer_id": state.producer_id, "producer_epoch": state.epoch}
    known = known_open.get(state.producer_id)
    if known is None:
        return f"{text} (producer id {state.producer_id})", fields
    transactional_id, value = known
    ends_ms = value.started_ms + value.timeout_ms
    fields |= {
        "transactional_id": transactional_id, "since_ms": value.started_ms,
        "timeout_ms": value.timeout_ms, "ends_ms": ends_ms,
    }
    client = broker.histories.producing.of(transactional_id)
    who = ""
    if client is not None:
        fields |= {"user": client.user, "client": client.client, "host": client.host}
        who = f" of client {client.client} at {client.host.lstrip('/')}"
    age = duration(max(0, broker.clock.now_ms() - value.started_ms))
    return (
        f"{text}: {transactional_id} (producer id {state.producer_id}){who} began it {age} ago, at"
        f" {clock(value.started_ms)}; unless it ends before, it is aborted at"
        f" {clock(ends_ms)}, after its timeout of {duration(value.timeout_ms)}", fields)


def clock(ms: int) -> str:
    """A moment, such as 2026-01-31 12:00:00 UTC."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
