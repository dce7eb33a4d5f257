"""The JSON of /api/v1 about one group or topic: /api/v1/groups/NAME/why and the like.

Names are percent-encoded. An error is an object, too: `error` is the name of its code, `message`
says what is wrong, and `coordinator` is the broker to ask if another one coordinates the group.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ottla.groups.errors import NotCoordinator
from ottla.groups.routing import OFFSETS_TOPIC, partition_for
from ottla.wire.errors import ErrorCode, ProtocolError

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext
    from ottla.broker.http.monitor import Monitor

Answer = Callable[["Monitor", str], Awaitable[Any]]
PREFIX = "/api/v1/"
STATUS = {
    ErrorCode.GROUP_ID_NOT_FOUND: 404, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.NOT_COORDINATOR: 421, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: 503,
}


async def _why_group(monitor: Monitor, name: str) -> Any:
    from ottla.broker.history.group_answer import why_group

    connected: dict[tuple[str | None, str], float] = {}
    now = monitor.loop.time()
    for each in monitor.connections():
        key = each.client.client_id, each.client.host.lstrip("/")
        connected[key] = max(connected.get(key, 0), 1000 * (now - each.opened_at))
    return await why_group(monitor.broker, monitor.asked_lags(), name, connected)


async def _lag(monitor: Monitor, name: str) -> Any:
    from ottla.broker.history.group_answer import lag_rows

    shard = monitor.broker.coordinators.groups.runtime.shard(name)
    return await lag_rows(monitor.broker, monitor.asked_lags(), shard, name)


async def _why_topic(monitor: Monitor, name: str) -> Any:
    from ottla.broker.history.topic_answer import why_topic

    return await why_topic(monitor.broker, name)


DETAILS: dict[tuple[str, str], Answer] = {
    ("groups", "why"): _why_group,
    ("groups", "lag"): _lag,
    ("topics", "why"): _why_topic,
}


def find(path: str) -> tuple[Answer, str] | None:
    """The function that answers a path, with the name in the path; None if no function does."""
    words = path.removeprefix(PREFIX).split("/") if path.startswith(PREFIX) else []
    answer = DETAILS.get((words[0], words[2])) if len(words) == 3 else None
    return None if answer is None else (answer, unquote(words[1]))


async def answer(monitor: Monitor, asked: tuple[Answer, str]) -> tuple[int, Any]:
    """Call the function that `find` returned; returns the HTTP status and the JSON document."""
    function, name = asked
    try:
        return 200, await function(monitor, name)
    except ProtocolError as error:
        document = {"error": error.code.name, "message": error.message}
        if isinstance(error, NotCoordinator):
            document["coordinator"] = _coordinator(monitor.broker, name)
        return STATUS.get(error.code, 500), document


def _coordinator(broker: BrokerContext, group_id: str) -> Any:
    """The broker that coordinates a group, None if there is none."""
    topic = broker.image.topics.get(OFFSETS_TOPIC)
    if topic is None:
        return None
    leader = topic.partitions[partition_for(group_id, len(topic.partitions))].leader
    return None if leader < 0 else leader
