"""The open transaction that holds back read_committed consumers: whose it is, since when, and when
it will be aborted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ottla.groups.transactions.records import TransactionState
from ottla.wire.errors import ProtocolError
from ottla.wire.wording import duration

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext
    from ottla.groups.transactions.records import TransactionValue
    from ottla.replication.partition import Partition


def opened(broker: BrokerContext, partition: Partition, stable: int) -> tuple[str, dict[str, Any]]:
    """A sentence about the transaction that begins at the last stable offset of a partition, and
    its fields. Only the coordinator knows the transactional id and the times."""
    fields: dict[str, Any] = {"stable_offset": stable}
    text = f"a transaction is open since offset {stable}"
    try:
        producers = partition.log.active_producers()
    except (OSError, ProtocolError):
        return text, fields
    state = next((one for one in producers if one.transaction_start == stable), None)
    if state is None:
        return text, fields
    fields |= {"producer_id": state.producer_id, "producer_epoch": state.epoch}
    known = _of_producer(broker, state.producer_id)
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
        f" {clock(value.started_ms)}; if it does not end before, it is aborted at"
        f" {clock(ends_ms)}, after its timeout of {duration(value.timeout_ms)}", fields)


def _of_producer(broker: BrokerContext, producer_id: int) -> tuple[str, TransactionValue] | None:
    """The open transaction of a producer, if this broker coordinates it."""
    for shard in broker.coordinators.transactions.runtime.shards():
        for transactional_id, value in shard.transactions.items():
            if value.producer_id == producer_id and value.state is TransactionState.ONGOING:
                return transactional_id, value
    return None


def clock(ms: int) -> str:
    """A moment, such as 2026-01-31 12:00:00 UTC."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
