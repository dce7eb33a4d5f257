"""Translates a coordinator's error into a code that the producer knows. Which codes it knows is
derived from the version of its Produce request."""

from __future__ import annotations

from ottla.wire.errors import ErrorCode, ProtocolError

GENERIC_ERRORS_FROM = 11
"""First Produce version whose clients know TRANSACTION_ABORTABLE (KIP-890)."""
IMPLICIT_FROM = 12
"""First Produce version that adds its partitions to the transaction implicitly (KIP-890)."""
_AWAY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def as_produce_error(error: ProtocolError, version: int) -> ProtocolError:
    """A coordinator's error as a code that producers with this Produce version understand."""
    code = error.code
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code is ErrorCode.TRANSACTION_ABORTABLE and version < GENERIC_ERRORS_FROM:
        code = ErrorCode.INVALID_TXN_STATE
    elif code in _AWAY or (
        code is ErrorCode.CONCURRENT_TRANSACTIONS and version < IMPLICIT_FROM
    ):
        # Every client retries after this code, without a refresh of its metadata.
        code = ErrorCode.NOT_ENOUGH_REPLICAS
    return ProtocolError(error.message, code)
