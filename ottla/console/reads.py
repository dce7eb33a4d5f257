"""GET: the data of the pages. Each function answers one path of the table in `api`."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import StreamingResponse

from ottla.client.addresses import show_address
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClientError, Refused
from ottla.console import (
    access_pages,
    broker_reports,
    cluster_pages,
    group_pages,
    picture,
    search_process,
)
from ottla.console.documents import event
from ottla.console.filters import Filters
from ottla.console.recorder import series_of
from ottla.console.requests import ApiRequest, BadRequest, answer_of
from ottla.console.search import (
    BYTES_MAX,
    LIMIT_MAX,
    RECORDS_MAX,
    SECONDS_MAX,
    Budget,
    Tell,
    Wanted,
)
from ottla.tools.admin import configs, offsets
from ottla.tools.admin.offsets import EARLIEST, LATEST
from ottla.tools.admin.topics import leaders

SEARCHES_MAX = 2
"""The most searches of one user at a time. Without authentication all visitors are one user, who
may have ten times as many."""
KINDS = ("total", "topic", "group")
MEASURES = ("lag", "lag_bytes", "lag_seconds", "offset", "bytes", "records_per_second")
ISOLATIONS = ("read_uncommitted", "read_committed")
BUSY_SECONDS = 2.0
LOOK_SECONDS = 0.2
"""How often a search checks whether its browser has disconnected."""
TIME_MAX = 10**18
"""A timestamp later than that of any record."""
EVENTS, EVENTS_HEADERS = "text/event-stream", {
    "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
Row = dict[str, Any]
Step = tuple[str, Row]
"""The name and the data of an event."""


async def overview(request: ApiRequest) -> Row:
    """The cluster on one page: brokers, totals, and problems with their reasons. In a stream,
    fields that have not been read yet are null, and listed in `pending`."""
    notes: list[str] = []
    members, taken, reports, groups, transactions, authorizer = await asyncio.gather(
        request.part(picture.members), request.soon(picture.take),
        request.soon(cluster_pages.status_reports), known_groups(request, notes),
        request.soon(access_pages.long_open_rows), request.soon(access_pages.has_authorizer),
    )
    notes += broker_reports.refusals(request.visitor.views.memory)
    found: Row = await request.visitor.views.derived(
        "overview",
        (members, taken, reports, groups or groups is None,
         transactions or transactions is None, authorizer),
        lambda: cluster_pages.overview(
            members, taken, reports, groups, notes, transactions, authorizer=authorizer))
    return found


async def known_groups(request: ApiRequest, notes: list[str]) -> list[Row] | None:
    """The groups; None while they are being read. If the user may not see groups, returns an empty
    list and adds a note."""
    try:
        found: list[Row] | None = await request.soon(group_pages.group_rows)
    except ClientError as refused:
        notes.append(f"groups: {refused}")
        return []
    return found


async def brokers(request: ApiRequest) -> Row:
    """The brokers: address, state, uptime, leaders, replicas, disk."""
    members, taken, reports = await asyncio.gather(
        request.part(picture.members), request.soon(picture.take),
        request.soon(cluster_pages.status_reports))
    rows = await request.visitor.views.derived(
        "brokers", (members, taken, reports),
        lambda: cluster_pages.broker_rows(members, taken, reports or {}))
    return {"key": "broker", "rows": rows}


async def broker_config(request: ApiRequest) -> Row:
    """The settings of a broker with their sources."""
    if not request.path("broker").isdecimal():
        raise BadRequest(f"broker {request.path('broker')!r}: expected a number", 404)
    rows = await request.view(cluster_pages.setting_rows, configs.BROKER, request.path("broker"))
    return {"key": "setting", "rows": rows}


async def log_directories(request: ApiRequest) -> Row:
    """The log directories of all brokers: size, replicas, free space."""
    taken = await request.view(picture.take)
    return {"key": "id", "rows": cluster_pages.directory_rows(taken.disks)}


async def topics(request: ApiRequest) -> Row:
    """The topics: partitions, size, records, rate, and the slowest group with its lag. In a stream,
    fields that have not been read yet are null, and listed in `pending`."""
    taken, lags = await asyncio.gather(request.part(picture.take), slowest(request))
    rows = await request.visitor.views.derived(
        "topics", (taken, lags), lambda: cluster_pages.topic_rows(taken, lags))
    return {"key": "topic", "pending": cluster_pages.pending_of(taken, lags), "rows": rows}


async def slowest(request: ApiRequest) -> cluster_pages.Lags | None:
    """The slowest group of each topic; None while groups are being read; empty if the user may not
    see groups."""
    known = await known_groups(request, [])
    if known is None:
        return None
    views = request.visitor.views
    found: cluster_pages.Lags = await views.derived(
        "slowest", (known or None,), lambda: group_pages.slowest(views.memory) if known else {})
    return found


async def topic(request: ApiRequest) -> Row:
    """A topic: its partitions with leader, replicas, offsets and size, and its groups."""
    name = request.path("topic")
    taken, known, lags = await asyncio.gather(
        request.part(picture.take), known_groups(request, []), slowest(request))
    groups = group_pages.groups_of_topic(request.visitor.views.memory, known or [], name)
    found = cluster_pages.topic_page(taken, name, groups, lags)
    if found is None:
        raise BadRequest(f"topic {name!r} does not exist, or you may not see it", 404, "NOT_FOUND")
    return {"key": "partition", **found}


async def topic_config(request: ApiRequest) -> Row:
    """The settings of a topic with their sources."""
    rows = await request.view(cluster_pages.setting_rows, configs.TOPIC, request.path("topic"))
    return {"key": "setting", "rows": rows}


async def topic_producers(request: ApiRequest) -> Row:
    """The idempotent producers that have recently written to a topic."""
    rows = await request.view(cluster_pages.producer_rows, request.path("topic"))
    return {"key": "id", "rows": rows}


async def topic_why(request: ApiRequest) -> Row:
    """The reports of a topic's leaders: which replicas are out of sync, since when, and events."""
    name = request.path("topic")
    if name not in (await request.part(picture.take)).topics.by_name:
        raise BadRequest(f"topic {name!r} does not exist, or you may not see it", 404, "NOT_FOUND")
    found: Row = await request.view(group_pages.why, "topics", name)
    return found


async def groups(request: ApiRequest) -> Row:
    """The groups: state, members, topics, lag in records, bytes and seconds."""
    return {"key": "group", "rows": await request.view(group_pages.group_rows)}


async def group(request: ApiRequest) -> Row:
    """A group: its members with their partitions, and its offset and lag in each partition."""
    return {"key": "id", **await request.view(group_pages.group_page, request.path("group"))}


async def clean_up(request: ApiRequest) -> Row:
    """Dead groups, offsets of deleted topics, members without partitions, with reasons."""
    await request.part(picture.take)
    return {"key": "id", **await request.view(group_pages.clean_up)}


async def topic_clients(request: ApiRequest) -> Row:
    """The clients that write to a topic or read it, as recently seen by the brokers."""
    name = request.path("topic")
    rows = await request.view(cluster_pages.connection_rows)
    return {"key": "id", "rows": [
        {**row, "writes": name in row["produces_to"], "reads": name in row["fetches_from"]}
        for row in rows if name in row["produces_to"] or name in row["fetches_from"]
    ]}


async def connections(request: ApiRequest) -> Row:
    """The clients of the brokers: client id, software, address, user, rates. `notes` name the
    brokers that do not report their clients."""
    rows = await request.view(cluster_pages.connection_rows)
    notes = broker_reports.refusals(request.visitor.views.memory)
    return {"key": "id", "notes": notes, "rows": rows}


async def client_metrics(request: ApiRequest) -> Row:
    """The clients that push their own metrics, and the metrics requested from each."""
    return {"key": "id", "rows": await request.view(cluster_pages.client_metric_rows)}


async def audit(request: ApiRequest) -> Row:
    """The newest lines of the brokers' audit logs, for users who may alter the cluster. `notes`
    name the brokers that did not send a log."""
    return {"key": "id", **await request.view(access_pages.audit_rows)}


async def transactions(request: ApiRequest) -> Row:
    """All transactional ids; for an open transaction also its age and its partitions."""
    return {"key": "id", "rows": await request.view(access_pages.transaction_rows)}


async def hanging(request: ApiRequest) -> Row:
    """Open transactions that no coordinator knows. If there are many topics, each request checks
    some of them; `left` is the number of topics not checked yet."""
    minutes = request.number("minutes", access_pages.HANGING_MINUTES, 1_000_000)
    return {"key": "id", **await request.view(access_pages.hanging_rows, minutes)}


async def reassignments(request: ApiRequest) -> Row:
    """Partitions that are being moved, with their progress in bytes."""
    return {"key": "id", "rows": await request.view(cluster_pages.reassignment_rows)}


async def acls(request: ApiRequest) -> Row:
    """The ACLs."""
    return {"key": "id", "rows": await request.view(access_pages.acl_rows)}


async def users(request: ApiRequest) -> Row:
    """The users with SCRAM credentials."""
    return {"key": "id", "rows": await request.view(access_pages.user_rows)}


async def quotas(request: ApiRequest) -> Row:
    """The quotas of users, client ids and addresses."""
    return {"key": "id", "rows": await request.view(access_pages.quota_rows)}


async def tokens(request: ApiRequest) -> Row:
    """The delegation tokens."""
    return {"key": "id", "rows": await request.view(access_pages.token_rows)}


async def history(request: ApiRequest) -> Row:
    """The recorded values of one `measure`, such as lag. `kind` and `name` select a topic or a
    group; `kind` total, without a name, selects the cluster."""
    kind, name = request.one_of("kind", KINDS), request.query("name") or ""
    measure = request.one_of("measure", MEASURES)
    if not await exists(request, kind, name):
        raise BadRequest(f"{kind} {name!r} does not exist, or you may not see it", 404)
    seconds = request.number("seconds", 3600, 7 * 86400)
    watched, recorder = request.service.history, request.service.sessions.recorder
    if recorder is not None and recorder is not request.visitor:
        whole = await recorder.views.part(picture.take)
        mine = await request.part(picture.take)
        if not whole.topics.by_name.keys() <= mine.topics.by_name.keys():
            recorder = None
    series = series_of(kind, recorder or request.visitor)
    return {
        "kind": kind, "name": name, "measure": measure,
        "points": await asyncio.to_thread(watched.points, series, name, measure, seconds),
    }


async def exists(request: ApiRequest, kind: str, name: str) -> bool:
    """Whether the user may see this topic or group. For a total, whether the name is empty."""
    if kind == "topic":
        return name in (await request.part(picture.take)).topics.by_name
    if kind == "group":
        return name in {one["group"] for one in await request.view(group_pages.group_rows)}
    return not name


def wanted_of(request: ApiRequest) -> Wanted:
    """The search that the parameters describe. Raises BadRequest or BadFilter."""
    given = request.query("partition")
    parts = given.split(",") if given else []
    if not all(one.isdecimal() and len(one) < 10 for one in parts) or len(parts) > 10_000:
        raise BadRequest(f"partition={given}: expected numbers separated by commas")
    isolation = request.one_of("isolation", ISOLATIONS)
    usual = Budget()
    wanted = Wanted(
        request.path("topic"),
        request.query("from") or "newest",
        tuple(int(one) for one in parts),
        Filters(*(request.query(name) for name in ("text", "regex", "json", "key", "header"))),
        max(request.number("limit", 100, LIMIT_MAX), 1),
        Budget(
            max(request.number("max_records", usual.records, RECORDS_MAX), 1),
            max(request.number("max_bytes", usual.bytes, BYTES_MAX), 1),
            max(request.number("max_seconds", int(usual.seconds), int(SECONDS_MAX)), 1),
        ),
        isolation == "read_committed",
        request.service.schemas,
        request.number("until", 0, TIME_MAX) if request.query("until") else None,
    )
    wanted.filters.tests()
    return wanted


async def records(request: ApiRequest) -> Row | StreamingResponse:
    """Records of a topic, searched on the server within a budget. With `Accept: text/event-stream`
    the answer is events: `progress` with what has been read so far, then `result` or `failed`."""
    steps = searching(request, wanted_of(request))
    first = await anext(steps)
    if request.request.headers.get("accept") == EVENTS:
        return StreamingResponse(events_of(first, steps), media_type=EVENTS,
                                 headers=EVENTS_HEADERS)
    found = first[1]
    async for _, said in steps:
        found = said
    return found


async def events_of(first: Step, steps: AsyncIterator[Step]) -> AsyncIterator[bytes]:
    """The steps of a search as events."""
    try:
        async with contextlib.aclosing(steps):  # type: ignore[type-var]
            yield event(*first)
            async for step in steps:
                yield await asyncio.to_thread(event, *step)
    except ClientError as failed:
        yield event("failed", answer_of(failed)[1])


async def searching(request: ApiRequest, wanted: Wanted) -> AsyncIterator[Step]:
    """Yields what a search has read so far, at least once, then its result. Raises ClientError."""
    visitor = request.visitor
    await take_place(visitor)
    try:
        bounds, begins, bootstrap = await visitor.connections.run(prepared, wanted)
    except BaseException:
        visitor.searches -= 1
        raise
    stop, read = threading.Event(), dict[str, float]()
    running = asyncio.get_running_loop().run_in_executor(
        request.service.search_threads, searched, request.service.search_processes,
        search_process.Task(wanted, bounds, begins, bootstrap, dict(visitor.properties)), stop,
        read.update,
    )
    running.add_done_callback(lambda done: ended(visitor, done))
    before: dict[str, float] | None = None
    try:
        while not running.done():
            if read != before:
                before = dict(read)
                yield "progress", before
            await asyncio.wait({running}, timeout=LOOK_SECONDS)
            if await request.request.is_disconnected():
                raise BadRequest("the client closed the connection")
        yield "result", running.result()
    finally:
        stop.set()


async def take_place(visitor: Any) -> None:
    """Waits until the user may start another search, and counts this search. When a page changes
    its filter, the search with the old filter ends soon. Raises BadRequest."""
    until = asyncio.get_running_loop().time() + BUSY_SECONDS
    while visitor.searches >= SEARCHES_MAX * (10 if visitor.name is None else 1):
        if asyncio.get_running_loop().time() >= until:
            raise BadRequest("too many searches are running; wait until one ends", 429, "BUSY")
        await asyncio.sleep(LOOK_SECONDS)
    visitor.searches += 1


def ended(visitor: Any, done: asyncio.Future[Row]) -> None:
    """Notes the end of a search. Also fetches its error, which asyncio would otherwise log if
    nobody waits for the search any more."""
    visitor.searches -= 1
    if not done.cancelled():
        done.exception()


def searched(
    processes: search_process.SearchProcesses, task: search_process.Task, stop: threading.Event,
    tell: Tell,
) -> Row:
    """Search in this thread or, if the search may read many records, in another process."""
    perform = processes.run if task.wanted.looks_far else search_process.perform
    return {"key": "id", **perform(task, stop, tell)}


def prepared(
    cluster: ClusterClient, wanted: Wanted
) -> tuple[dict[int, tuple[int, int]], dict[int, int], str]:
    """The first and next offset of each partition, the offsets where the search starts, and the
    brokers' addresses. Raises ClientError."""
    known = [index for (_, index) in leaders(cluster, [wanted.topic])]
    if missing := sorted(set(wanted.partitions) - set(known)):
        raise BadRequest(f"topic {wanted.topic!r} has no partition {missing[0]}", 404)
    places = [(wanted.topic, index) for index in wanted.partitions or known]
    first = offsets.required(cluster, dict.fromkeys(places, EARLIEST))
    last = offsets.required(cluster, dict.fromkeys(places, LATEST), committed=wanted.committed)
    bounds = {place[1]: (first[place], last[place]) for place in places}
    begins = begin_offsets(cluster, wanted, bounds)
    at = ",".join(show_address(one) for one in cluster.bootstrap)
    return bounds, begins, at


def begin_offsets(
    cluster: ClusterClient, wanted: Wanted, bounds: dict[int, tuple[int, int]]
) -> dict[int, int]:
    """Where a search starts in each partition."""
    word, _, value = wanted.start.partition(":")
    if word in ("newest", "oldest") and not value:
        return {index: begin for index, (begin, _) in bounds.items()}
    if word == "offset" and value.isdecimal() and len(value) < 19:
        return {index: min(max(int(value), low), high) for index, (low, high) in bounds.items()}
    if word == "time" and value.isdecimal() and len(value) < 19:
        places = {(wanted.topic, index): int(value) for index in bounds}
        found = offsets.required(cluster, places)
        return {
            place[1]: offset if offset >= 0 else bounds[place[1]][1]
            for place, offset in found.items()
        }
    if word == "at":
        return {**{index: low for index, (low, _) in bounds.items()}, **given(value, bounds)}
    raise BadRequest(
        f"from={wanted.start}: expected newest, oldest, offset:N, time:MILLISECONDS, or the "
        "value of the field `next` in an earlier answer"
    )


def given(text: str, bounds: dict[int, tuple[int, int]]) -> dict[int, int]:
    """The offsets of `PARTITION=OFFSET,…`, each clamped to the range of its partition; `since=MS`
    may follow."""
    found = {}
    for part in filter(None, re.sub(r"\bsince=\d{1,18}$", "", text).split(",")):
        index, _, offset = part.partition("=")
        if not (index.isdecimal() and offset.isdecimal() and len(part) < 40):
            raise BadRequest(f"from=at:{text[:100]}: expected PARTITION=OFFSET,…")
        if int(index) in bounds:
            low, high = bounds[int(index)]
            found[int(index)] = min(max(int(offset), low), high)
    return found


def one_record(cluster: ClusterClient, topic: str, partition: int) -> tuple[tuple[int, int], str]:
    """First and next offset of a partition, and the addresses of brokers."""
    place = (topic, partition)
    if place not in leaders(cluster, [topic]):
        raise Refused(3, f"topic {topic!r} has no partition {partition}")
    low = offsets.required(cluster, {place: EARLIEST})[place]
    high = offsets.required(cluster, {place: LATEST})[place]
    return (low, high), ",".join(show_address(one) for one in cluster.bootstrap)
