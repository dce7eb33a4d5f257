"""Metadata records as text: one compact JSON array, its first element the kind of record.

The same form is used in the log of a standalone broker and in the nodes of a cluster, and people
can read it:

    ["TopicCreated", {"name": "t", "topic_id": "0f…", "partitions": [[0, 0, [0], [0], 0, 3]]}]

A partition is leader, leader epoch, replicas, in-sync replicas and partition epoch, then an object
of the rarer fields (`PartitionExtra`) if there are any. Consecutive partitions of a topic that are
equal are written once, followed by their number. A field that a reader does not know is refused,
not skipped: metadata must not be guessed.
"""

from __future__ import annotations

import json
from dataclasses import fields
from itertools import chain, groupby
from typing import Any

from ottla.replication.metadata import (
    BrokerGone,
    BrokerImage,
    BrokerLeaving,
    BrokerRegistered,
    ConfigSet,
    ControllerElected,
    Endpoint,
    EpochsRaised,
    FeatureSet,
    MetadataRecord,
    PartitionChanged,
    PartitionExtra,
    PartitionsAdded,
    PartitionsChanged,
    PartitionState,
    ProducerIdsTaken,
    TopicCreated,
    TopicDeleted,
)
from ottla.replication.principals import (
    AccessRule,
    DelegationToken,
    QuotaSet,
    RuleSet,
    ScramCredential,
    ScramSet,
    TokenSet,
)

KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        TopicCreated,
        PartitionsAdded,
        PartitionChanged,
        PartitionsChanged,
        TopicDeleted,
        ConfigSet,
        BrokerRegistered,
        BrokerGone,
        BrokerLeaving,
        ControllerElected,
        ProducerIdsTaken,
        FeatureSet,
        EpochsRaised,
        ScramSet,
        QuotaSet,
        RuleSet,
        TokenSet,
    )
}


class UnreadableMetadata(ValueError):
    """A metadata record that this version cannot read; the broker must not start with a part of
    them.
    """


def encode_record(record: MetadataRecord) -> bytes:
    """One record as UTF-8 text."""
    body = {f.name: _to_json(getattr(record, f.name)) for f in fields(record)}
    return json.dumps([type(record).__name__, body], separators=(",", ":")).encode()


def decode_record(data: bytes) -> MetadataRecord:
    """Decode a record that `encode_record` wrote. Raises UnreadableMetadata for anything else."""
    try:
        kind, body = json.loads(data)
        record: MetadataRecord = KINDS[kind](**{k: _from_json(k, v) for k, v in body.items()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableMetadata(
            f"metadata record {data[:200]!r} is not readable by this version: {error!r}"
        ) from error
    return record


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, PartitionState):
        return _state(value)
    if isinstance(value, BrokerImage):
        addresses = [[e.listener, e.host, e.port] for e in value.endpoints]
        body = [value.node_id, value.epoch, addresses, value.rack]
        # A standalone broker has neither, and the form of its records stays the same.
        more = [value.incarnation, list(value.directories)]
        return body + more if any(more) else body
    if isinstance(value, ScramCredential):
        keys = (value.salt, value.stored_key, value.server_key)
        return [value.iterations, *(key.hex() for key in keys)]
    if isinstance(value, AccessRule | DelegationToken):
        return [getattr(value, each.name) for each in fields(value)]
    if isinstance(value, tuple):
        if value and isinstance(value[0], tuple) and isinstance(value[0][-1], PartitionState):
            return [[index, *_state(state)] for index, state in value]
        if value and isinstance(value[0], PartitionState):
            # On one broker all are equal: decoding ten thousand of them takes no longer than one.
            return [_repeated(state, len(list(same))) for state, same in groupby(value)]
        return [_to_json(item) for item in value]
    return value


def _state(state: PartitionState) -> list[Any]:
    row = [state.leader, state.leader_epoch, state.replicas, state.isr, state.partition_epoch]
    if state.extra is None:
        return row
    extra = {f.name: getattr(state.extra, f.name) for f in fields(state.extra)}
    return [*row, {name: nodes for name, nodes in extra.items() if nodes}]


def _repeated(state: PartitionState, count: int) -> list[Any]:
    return [*_state(state), count] if count > 1 else _state(state)


def _from_json(name: str, value: Any) -> Any:
    match name:
        case "topic_id":
            return bytes.fromhex(value)
        case "partitions":
            return tuple(chain.from_iterable(_row(item) for item in value))
        case "state":
            return _partition(value)
        case "rows":
            return tuple((index, _partition(state)) for index, *state in value)
        case "broker":
            return _broker(*value)
        case "credential" if value is not None:
            iterations, *keys = value
            return ScramCredential(iterations, *(bytes.fromhex(key) for key in keys))
        case "token" if value is not None:
            token_id, owner, requester, renewers, *times = value
            return DelegationToken(token_id, owner, requester, tuple(renewers), *times)
        case "rule":
            return AccessRule(*value)
        case "entity":
            return tuple((kind, of) for kind, of in value)
    return value


def _broker(
    node_id: int, epoch: int, addresses: Any, rack: str | None, incarnation: str = "",
    directories: Any = (),
) -> BrokerImage:
    endpoints = tuple(Endpoint(*address) for address in addresses)
    return BrokerImage(node_id, epoch, endpoints, rack, incarnation, tuple(directories))


def _row(value: Any) -> tuple[PartitionState, ...]:
    """A number of equal partitions; one if the number is missing."""
    if len(value) > 5 and isinstance(value[-1], int):
        *state, count = value
        repeated: tuple[PartitionState, ...] = (_partition(state),) * count
        return repeated
    return (_partition(value),)


def _partition(value: Any) -> PartitionState:
    leader, leader_epoch, replicas, isr, partition_epoch, *more = value
    extra = None
    if more:
        (found,) = more
        extra = PartitionExtra(**{name: tuple(nodes) for name, nodes in found.items()})
    return PartitionState(leader, leader_epoch, tuple(replicas), tuple(isr), partition_epoch, extra)
