"""How handlers wait for a coordinator's answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ottla.broker.coordination.log_coordinator import LogCoordinator, S
from ottla.broker.network.promises import LateReply
from ottla.groups.errors import NotCoordinator
from ottla.groups.records import NO_PRODUCER, Producer
from ottla.groups.result import Answer, Result
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.structs import Message

Change = Callable[[str, Callable[[S, Result], Any], Answer], None]
"""`ShardRuntime.change` or `gather`: runs an operation and calls back with its answer."""


async def answer_of(
    coordinator: LogCoordinator[S],
    key: str,
    operation: Callable[[S, Result], Any],
    producer: Producer = NO_PRODUCER,
) -> Any:
    """Run an operation on the shard of a group or transactional id, and wait until its records are
    committed. Raises ProtocolError if the operation is refused."""
    return await begin_answer(coordinator, key, operation, producer)


def begin_answer(
    coordinator: LogCoordinator[S],
    key: str,
    operation: Callable[[S, Result], Any],
    producer: Producer = NO_PRODUCER,
) -> asyncio.Future[Any]:
    """Do the same as `answer_of`, but return a future. Raises ProtocolError if the shard is not on
    this broker, or not loaded yet."""
    future: asyncio.Future[Any] = coordinator.loop.create_future()
    coordinator.runtime.change(key, operation, deliver_to(future), producer)
    return future


def answer_later(
    change: Change[S],
    key: str,
    operation: Callable[[S, Result], Any],
    respond: Callable[[Any], Message],
) -> LateReply:
    """Do the same as `answer_of`, for a handler that is not a coroutine; `change` is the runtime's
    `change` or `gather`.

    `respond` makes the response from the operation's reply or from its ProtocolError. A coroutine
    would need a task, whose turns of the loop cost as much as the commit itself.
    """
    late = LateReply()

    def answer(reply: Any) -> None:
        try:
            late.deliver(respond(_for_clients(reply)))
        except Exception as error:
            late.deliver(error)

    try:
        change(key, operation, answer)
    except ProtocolError as error:
        answer(error)
    return late


def deliver_to(future: asyncio.Future[Any]) -> Callable[[Any], None]:
    """A callback that puts a reply into a future, unless the client has disconnected."""

    def deliver(reply: Any) -> None:
        if future.done():
            return
        if isinstance(reply, ProtocolError):
            future.set_exception(_for_clients(reply))
        else:
            future.set_result(reply)

    return deliver


def _for_clients(reply: Any) -> Any:
    """Return the reply. If it is KAFKA_STORAGE_ERROR, because the disk refused a record, return
    NOT_COORDINATOR instead, as Apache Kafka does: clients then look for the coordinator again.
    KAFKA_STORAGE_ERROR would make a consumer fail."""
    if isinstance(reply, ProtocolError) and reply.code is ErrorCode.KAFKA_STORAGE_ERROR:
        return NotCoordinator(reply.message)
    return reply
