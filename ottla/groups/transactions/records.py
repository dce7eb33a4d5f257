"""The contents of `__transaction_state` for a transactional id, in Kafka's format.

    key     | version i16 = 0 | transactional id
    value   | version i16 = 1 | fields of schema/records/transaction_log.txt   | null: remove the id
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from ottla.groups.topic_indexes import indexes_by_topic
from ottla.wire.errors import MalformedMessage
from ottla.wire.messages import TransactionLogKey, TransactionLogValue

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 2**15 - 1

TopicIndex = tuple[str, int]
"""A topic's name and a partition's index."""


class TransactionState(IntEnum):
    """The state of a transactional id; Kafka's numbers.

        Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing -> ...
                         -> PrepareAbort  -> CompleteAbort  -> Ongoing -> ...
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name as tools show it, such as PrepareCommit."""
        return self.name.title().replace("_", "")


@dataclass(frozen=True, slots=True)
class TransactionValue:
    """The state of a transactional id in one record. Times are Unix times in ms."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicIndex] = frozenset()
    updated_ms: int = -1
    started_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    """The previous producer id, whose epochs were used up."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id to be used once the ending transaction has ended (KIP-890)."""
    client_version: int = 0
    """2 if the client's epoch grows with every transaction (KIP-890), else 0."""
    last_epoch: int = NO_EPOCH
    """The previous epoch, to recognize a repeated InitProducerId. Not stored in the log."""

    @property
    def is_ending(self) -> bool:
        """Whether its markers are being written."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def commits(self) -> bool:
        """Whether the transaction that is ending or has ended was committed."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no further epoch for a client."""
        return is_exhausted(self.epoch)


def is_exhausted(epoch: int) -> bool:
    """Whether clients can get no epoch above this one. The last epoch is reserved, so that a
    producer with the epoch before it can still be fenced."""
    return epoch >= EPOCH_MAX - 1


class TransactionRecord(NamedTuple):
    """A transactional id with its new value, or with None to remove it."""

    transactional_id: str
    value: TransactionValue | None


_I16 = struct.Struct(">h")
_KEY_VERSION = _I16.pack(0)
_VALUE_VERSION = _I16.pack(1)


def encode_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """A record's key and value as bytes."""
    transactional_id, value = record
    key = _KEY_VERSION + TransactionLogKey(transactional_id=transactional_id).encode(0)
    return key, None if value is None else _VALUE_VERSION + _encode_value(value)


def _encode_value(value: TransactionValue) -> bytes:
    partitions = None
    if value.state is not TransactionState.EMPTY:
        made = TransactionLogValue.TransactionPartition
        partitions = [
            made(topic=topic, partition_ids=indexes)
            for topic, indexes in indexes_by_topic(value.partitions).items()
        ]
    message = TransactionLogValue(
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.epoch,
        transaction_timeout_ms=value.timeout_ms,
        transaction_status=int(value.state),
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=value.updated_ms,
        transaction_start_timestamp_ms=value.started_ms,
        client_transaction_version=value.client_version,
    )
    encoded: bytes = message.encode(1)
    return encoded


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """The record of these bytes; None for a key of an unknown version.

    Raises MalformedMessage for bytes that are cut off, and for a value of an unknown version or
    state.
    """
    if len(key) < 2:
        raise MalformedMessage("a key of __transaction_state is shorter than its two-byte version")
    if key[:2] != _KEY_VERSION:
        return None
    transactional_id = TransactionLogKey.decode(key[2:], 0).transactional_id
    if value is None:
        return TransactionRecord(transactional_id, None)
    if len(value) < 2:
        raise MalformedMessage(
            "a value of __transaction_state is shorter than its two-byte version"
        )
    version = _I16.unpack_from(value)[0]
    if version not in (0, 1):
        raise MalformedMessage(f"a value of __transaction_state has version {version}, not 0 or 1")
    return TransactionRecord(transactional_id, _decode_value(value[2:], version))


def _decode_value(data: bytes, version: int) -> TransactionValue:
    message = TransactionLogValue.decode(data, version)
    try:
        state = TransactionState(message.transaction_status)
    except ValueError:
        raise MalformedMessage(
            f"a transaction has state {message.transaction_status}, but only states 0 to 7 exist"
        ) from None
    return TransactionValue(
        message.producer_id,
        message.producer_epoch,
        message.transaction_timeout_ms,
        state,
        frozenset(
            (topic.topic, index)
            for topic in message.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        message.transaction_last_update_timestamp_ms,
        message.transaction_start_timestamp_ms,
        *((message.previous_producer_id, message.next_producer_id,
           message.client_transaction_version) if version >= 1 else ()),
    )
