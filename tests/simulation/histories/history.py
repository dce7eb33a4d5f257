"""The requests of clients to coordinators, and the answers, in one sequence.

A client's connection (`network.Link`) notes each request when it is sent, and each answer when it
arrives. If a client repeats a request, this is another request.
"""

from __future__ import annotations

import copy
from typing import Any

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    EndTxnRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)
from tests.simulation.histories.search import NEVER, Operation

FOLLOWED = {
    each.API_KEY for each in (
        AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, DeleteGroupsRequest,
        DeleteTopicsRequest, EndTxnRequest, HeartbeatRequest, InitProducerIdRequest,
        JoinGroupRequest, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest,
        SyncGroupRequest, TxnOffsetCommitRequest,
    )
}
NOTHING_DONE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INVALID_GROUP_ID,
    ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE,
}
"""Errors of requests that were not executed. After any other error, the request may have been
executed, or may be executed later."""


class Call:
    """One request and, once there is one, its answer."""

    __slots__ = ("answer", "answered", "asked", "request")

    def __init__(self, request: Any, asked: int) -> None:
        self.request, self.asked = request, asked
        self.answer: Any = None
        self.answered = NEVER

    def did(self, code: int | None, *what: Any) -> Operation | None:
        """The operation of a request that was answered with this error code, or was not answered
        (`code` is None). Returns None if the request certainly did nothing."""
        if code in NOTHING_DONE:
            return None
        return Operation(self.asked, self.answered if code == 0 else NEVER, what)


class History:
    """All calls of a run, in the order of their requests."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.moment = 0

    def ask(self, request: Any) -> Call | None:
        """Note a copy of a request, because the client may modify the request later. Returns None
        if no history needs the request."""
        if request.API_KEY not in FOLLOWED:
            return None
        self.moment += 1
        call = Call(copy.copy(request), self.moment)
        self.calls.append(call)
        return call

    def answer(self, call: Call, answer: Any) -> None:
        """Note that the client has received the answer."""
        self.moment += 1
        call.answer, call.answered = answer, self.moment
