"""What a transaction coordinator refuses, each with Kafka's code."""

from __future__ import annotations

from ottla.wire.errors import ErrorCode, ProtocolError


class ConcurrentTransactions(ProtocolError):
    """The transaction before this one has not ended everywhere; the client asks again."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class ProducerFenced(ProtocolError):
    """A newer producer has taken over the transactional id: this one is a zombie."""

    code = ErrorCode.PRODUCER_FENCED


class InvalidProducerIdMapping(ProtocolError):
    """The producer id is not the one that the transactional id stands for."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class InvalidTransactionState(ProtocolError):
    """The transaction is not in a state that allows this."""

    code = ErrorCode.INVALID_TXN_STATE


class TransactionAbortable(ProtocolError):
    """The partition is not in the transaction, which can only be aborted (KIP-890, KIP-1050)."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class InvalidTransactionTimeout(ProtocolError):
    """Not positive, or above transaction.max.timeout.ms."""

    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class TransactionalIdNotFound(ProtocolError):
    """No such transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


class NeedsProducerId(ProtocolError):
    """Ask again with a new producer id at hand. Never told to a client."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
