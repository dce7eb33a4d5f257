"""Metadata records as text: each is a compact JSON array that begins with the kind of record.

A standalone broker's log and a cluster's nodes in ZooKeeper use the same form, which people can
read:

    ["TopicCreated", {"name": "t", "topic_id": "0f…", "partitions": [[0, 0, [0], [0], 0, 3]]}]

A partition is an array: leader, leader epoch, replicas, in-sync replicas, partition epoch, then an
object with the rarer fields (`PartitionExtra`) if there are any. Consecutive equal partitions of a
topic are written once, followed by their count. A reader refuses a field that it does not know,
instead of skipping it: metadata must not be guessed.
"""

from __future__ import annotations

import json
from itertools import chain, groupby, repeat
from typing import Any

from ottla.replication.metadata import (
    BackupAdopted,
    BackupAdopting,
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
    RecentlyGone,
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
        RecentlyGone,
        BrokerLeaving,
        ControllerElected,
        ProducerIdsTaken,
        FeatureSet,
        EpochsRaised,
        BackupAdopting,
        BackupAdopted,
        ScramSet,
        QuotaSet,
        RuleSet,
        TokenSet,
    )
}


GARBAGE = (
    ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError,
)
"""The exceptions that code may raise when it reads JSON of an unexpected form."""

STRING, NUMBER = (str,), (int,)
PLAIN: dict[str, tuple[type, ...]] = {
    "name": STRING, "topic": STRING, "resource_type": STRING, "resource_name": STRING,
    "user": STRING, "key": STRING, "token_id": STRING, "present": (bool,),
    "index": NUMBER, "node_id": NUMBER, "epoch": NUMBER, "next_id": NUMBER, "level": NUMBER,
    "by": NUMBER, "mechanism": NUMBER, "value": (str, float, int, type(None)),
}
"""The types of the fields with a simple value. Numbers are from 0 to NUMBER_MAX."""
NUMBER_MAX = (1 << 63) - 1
NODE_MAX = (1 << 31) - 1
OPTIONAL = ("company",)
"""Fields that are written only if they are not empty, since older versions do not know them."""
PARTITIONS_MAX = 1_000_000
"""The most partitions that a record may have, so that a wrong number does not fill the memory."""


class UnreadableMetadata(ValueError):
    """This version cannot read the metadata. The broker must not start with only those parts that
    it can read."""


def encode_record(record: MetadataRecord) -> bytes:
    """One record as UTF-8 text."""
    fields = ((name, getattr(record, name)) for name in record.__match_args__)
    body = {name: _to_json(value) for name, value in fields if value or name not in OPTIONAL}
    return json.dumps([type(record).__name__, body], separators=(",", ":")).encode()


def decode_record(data: bytes) -> MetadataRecord:
    """Decode a record that `encode_record` wrote. Raises UnreadableMetadata for anything else."""
    try:
        kind, body = json.loads(data)
        record: MetadataRecord = KINDS[kind](**{k: _from_json(k, v) for k, v in body.items()})
    except GARBAGE as error:
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
        # A standalone broker has neither an incarnation nor directories in the image: its records
        # keep the shorter form of older versions.
        more = [value.incarnation, list(value.directories)]
        return body + more if any(more) else body
    if isinstance(value, ScramCredential):
        keys = (value.salt, value.stored_key, value.server_key)
        return [value.iterations, *(key.hex() for key in keys)]
    if isinstance(value, AccessRule | DelegationToken):
        return [getattr(value, name) for name in value.__match_args__]
    if isinstance(value, tuple):
        if value and isinstance(value[0], tuple) and isinstance(value[0][-1], PartitionState):
            return [[index, *_state(state)] for index, state in value]
        if value and isinstance(value[0], PartitionState):
            # On a standalone broker, all states are equal: ten thousand partitions are encoded as
            # one state and a count.
            return [_repeated(state, len(list(same))) for state, same in groupby(value)]
        return [_to_json(item) for item in value]
    return value


def _state(state: PartitionState) -> list[Any]:
    row = [state.leader, state.leader_epoch, state.replicas, state.isr, state.partition_epoch]
    if state.extra is None:
        return row
    extra = {name: getattr(state.extra, name) for name in PartitionExtra.__match_args__}
    return [*row, {name: nodes for name, nodes in extra.items() if nodes}]


def _repeated(state: PartitionState, count: int) -> list[Any]:
    return [*_state(state), count] if count > 1 else _state(state)


def _from_json(name: str, value: Any) -> Any:
    types = PLAIN.get(name)
    if types is not None:
        return _plain(types, value)
    match name:
        case "topic_id":
            return bytes.fromhex(value)
        case "partitions":
            rows = [_row(item) for item in value]
            if sum(count for _, count in rows) > PARTITIONS_MAX:
                raise ValueError(f"the record has more than {PARTITIONS_MAX} partitions")
            return tuple(chain.from_iterable(repeat(state, count) for state, count in rows))
        case "state":
            return _partition(value)
        case "rows":
            return tuple((_plain(NUMBER, index), _partition(state)) for index, *state in value)
        case "company" | "awaited" | "nodes":
            return _nodes(value)
        case "broker":
            return _broker(*value)
        case "credential" if value is not None:
            iterations, *keys = value
            _plain(NUMBER, iterations)
            return ScramCredential(iterations, *(bytes.fromhex(key) for key in keys))
        case "token" if value is not None:
            token_id, owner, requester, renewers, *times = value
            _each(str, [token_id, owner, requester, *renewers])
            _each(int, times)
            times = [min(ms, NUMBER_MAX) for ms in times]   # earlier versions stored later times
            return DelegationToken(token_id, owner, requester, tuple(renewers), *times)
        case "rule":
            rule = AccessRule(*value)
            _each(str, [rule.resource_name, rule.principal, rule.host])
            _each(int, [rule.resource_type, rule.pattern_type, rule.operation, rule.permission])
            return rule
        case "entity":
            _each(str, [text for kind, of in value for text in (kind, of or "")])
            return tuple((kind, of) for kind, of in value)
    return value


def _plain(types: tuple[type, ...], value: Any) -> Any:
    """Return the value if it is of one of these types and in range. Raises TypeError or
    ValueError."""
    if type(value) not in types:
        expected = " or ".join(kind.__name__ for kind in types)
        raise TypeError(f"{value!r:.100} is not of type {expected}")
    if type(value) is int and not 0 <= value <= NUMBER_MAX:
        raise ValueError(f"{value!r:.100} is not from 0 to {NUMBER_MAX}")
    return value


def _each(kind: type, values: list[Any]) -> None:
    """Raise TypeError unless all values are of type `kind`."""
    for value in values:
        if type(value) is not kind:
            raise TypeError(f"{value!r:.100} is not of type {kind.__name__}")


def _nodes(value: Any) -> tuple[int, ...]:
    """Return a list of node ids as a tuple. Raises TypeError or ValueError."""
    if type(value) is not list:
        raise TypeError(f"{value!r:.100} is not a list of nodes")
    for node in value:
        if type(node) is not int or not 0 <= node <= NODE_MAX:
            raise ValueError(f"{node!r:.100} is not a node id")
    return tuple(value)


def _broker(
    node_id: int, epoch: int, addresses: Any, rack: str | None, incarnation: str = "",
    directories: Any = (),
) -> BrokerImage:
    endpoints = tuple(
        Endpoint(_plain(STRING, listener), _plain(STRING, host), _plain(NUMBER, port))
        for listener, host, port in addresses
    )
    if rack is not None:
        _plain(STRING, rack)
    return BrokerImage(
        _nodes([node_id])[0], _plain(NUMBER, epoch), endpoints, rack, _plain(STRING, incarnation),
        tuple(_plain(STRING, each) for each in directories),
    )


def _row(value: Any) -> tuple[PartitionState, int]:
    """The state in a row, and how many consecutive partitions have it: 1 if the row has no
    count."""
    if len(value) > 5 and isinstance(value[-1], int):
        *state, count = value
        return _partition(state), _plain(NUMBER, count)
    return _partition(value), 1


def _partition(value: Any) -> PartitionState:
    leader, leader_epoch, replicas, isr, partition_epoch, *more = value
    extra = None
    if more:
        (fields,) = more
        extra = PartitionExtra(**{name: _nodes(nodes) for name, nodes in fields.items()})
    if leader != -1:
        _nodes([leader])
    _plain(NUMBER, leader_epoch)
    _plain(NUMBER, partition_epoch)
    return PartitionState(
        leader, leader_epoch, _nodes(replicas), _nodes(isr), partition_epoch, extra
    )
