"""The errors of a transaction coordinator, each with Kafka's code."""

from __future__ import annotations

from ottla.wire.errors import ErrorCode, ProtocolError


class ConcurrentTransactions(ProtocolError):
    """The previous transaction has not ended in all partitions; the client retries."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class ProducerFenced(ProtocolError):
    """A newer producer has taken over the transactional id: this producer is a zombie."""

    code = ErrorCode.PRODUCER_FENCED


class InvalidProducerIdMapping(ProtocolError):
    """The producer id is not the one assigned to the transactional id."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class InvalidTransactionState(ProtocolError):
    """The transaction is not in a state that allows the request."""

    code = ErrorCode.INVALID_TXN_STATE


FINAL = (ProducerFenced, InvalidProducerIdMapping, InvalidTransactionState)
"""Errors after which a producer gives up."""


class TransactionAbortable(ProtocolError):
    """The partition is not in the transaction: the producer has to abort (KIP-890, KIP-1050)."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class InvalidTransactionTimeout(ProtocolError):
    """The timeout is not positive, or is above transaction.max.timeout.ms."""

    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class TransactionalIdNotFound(ProtocolError):
    """The transactional id does not exist."""

    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


class NeedsProducerId(ProtocolError):
    """The broker has to retry with a new producer id. This error is never sent to a client."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


REFUSALS = (*FINAL, TransactionAbortable)
"""Refusals of a batch after which the producer gives up, or aborts its transaction."""
