"""Server-sent events: all live updates of a page in one stream, and the tail of a topic.

A page names the paths that it shows. The stream reads each path repeatedly, through the views that
all pages share, and sends the changes; for a list it sends only the changed rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.responses import StreamingResponse

from ottla.client.errors import ClientError
from ottla.console.documents import bytes_of, event, framed, is_long
from ottla.console.reads import EVENTS, EVENTS_HEADERS, prepared, wanted_of
from ottla.console.requests import ApiRequest, BadRequest, answer_of
from ottla.console.search import Reader, Wanted, row_of
from ottla.console.views import SOON_SECONDS

EVERY_SECONDS = 2.0
QUIET_SECONDS = 15.0
PATHS_MAX = 8
STREAMS_MAX = 20
"""The most streams of one user. Without authentication all visitors are one user, who may have
ten times as many."""
TAIL_ROWS_MAX = 100
"""The most rows that a tail sends per interval. If more records arrive, the oldest are counted and
omitted."""
TAIL_SECONDS = 0.5
TAIL_BYTES_MAX = 8 << 20
"""The most bytes that a tail reads per second: watching a fast topic must not slow down its
consumers."""
ENDLESS = 1 << 62
Answer = Callable[[str, ApiRequest], Awaitable[Any]]


def opened(request: ApiRequest, events: AsyncIterator[bytes]) -> StreamingResponse:
    """A stream of these events. Raises BadRequest if the user has too many streams."""
    visitor = request.visitor
    if visitor.streams >= STREAMS_MAX * (10 if visitor.name is None else 1):
        raise BadRequest("too many pages with live updates are open: close one", 429, "BUSY")
    visitor.streams += 1

    async def counted() -> AsyncIterator[bytes]:
        try:
            async with contextlib.aclosing(events):  # type: ignore[type-var]
                async for event in events:
                    yield event
        finally:
            visitor.streams -= 1

    return StreamingResponse(counted(), media_type=EVENTS, headers=EVENTS_HEADERS)


def live(request: ApiRequest, answer: Answer) -> StreamingResponse:
    """A stream of the values of several paths and of their changes. Raises BadRequest."""
    paths = request.request.query_params.getlist("path")
    if not 0 < len(paths) <= PATHS_MAX:
        raise BadRequest(f"expected the parameter 'path' 1 to {PATHS_MAX} times")
    return opened(request, changes(request, paths, answer))


async def changes(request: ApiRequest, paths: list[str], answer: Answer) -> AsyncIterator[bytes]:
    """Events until the browser disconnects or its session ends. No path waits for other paths."""
    before: dict[str, Any] = {}
    said = time.monotonic()
    service = request.service
    due = dict.fromkeys(paths, 0.0)
    reading: dict[str, asyncio.Task[Any]] = {}
    stopping = asyncio.create_task(service.stop.wait())
    try:
        while not service.stopping and service.still_open(request):
            now = time.monotonic()
            for path in due:
                if path not in reading and due[path] <= now:
                    reading[path] = asyncio.create_task(value_of(path, request, answer))
                    due[path] = now + EVERY_SECONDS
            left = min((at for path, at in due.items() if path not in reading),
                       default=now + EVERY_SECONDS) - now
            await asyncio.wait({*reading.values(), stopping}, timeout=left,
                               return_when=asyncio.FIRST_COMPLETED)
            for path in [path for path, task in reading.items() if task.done()]:
                value = reading.pop(path).result()
                if pending(value):
                    due[path] = now + SOON_SECONDS
                if value != before.get(path):
                    said = time.monotonic()
                    yield await change(path, before.get(path), value)
                    before[path] = value
            if time.monotonic() - said > QUIET_SECONDS:
                said = time.monotonic()
                yield b": still here\n\n"
        yield event("end", {})
    finally:
        for task in (stopping, *reading.values()):
            task.cancel()


async def value_of(path: str, request: ApiRequest, answer: Answer) -> Any:
    """The value of a path, or the error if it was refused."""
    try:
        return await answer(path, request)
    except ClientError as failed:
        return answer_of(failed)[1]


def pending(value: Any) -> bool:
    """Whether a part of a value is still being read."""
    return isinstance(value, dict) and bool(value.get("pending"))


async def change(path: str, old: Any, new: Any) -> bytes:
    """The event with the changes of a path; a thread encodes a long value."""
    if is_long(new):
        return await asyncio.to_thread(change_of, path, old, new)
    return change_of(path, old, new)


def change_of(path: str, old: Any, new: Any) -> bytes:
    """The event with the changes of a path, encoded by the calling thread."""
    return framed("change", bytes_of({"path": path, **difference(old, new)}))


def difference(old: Any, new: Any) -> dict[str, Any]:
    """The changes from old to new: the whole value, or the changed rows of a list."""
    if not isinstance(old, dict) or "rows" not in old or "rows" not in new or "key" not in new:
        return {"value": new}
    key = new["key"]
    known = {row[key]: row for row in old["rows"]}
    there = {row[key] for row in new["rows"]}
    return {
        "value": {name: value for name, value in new.items() if name != "rows"},
        "changed": [row for row in new["rows"] if known.get(row[key]) != row],
        "removed": [name for name in known if name not in there],
    }


async def tail(request: ApiRequest) -> StreamingResponse:
    """Records as they are written, filtered on the server."""
    wanted = wanted_of(request)
    bounds, _, bootstrap = await request.visitor.connections.run(prepared, wanted)
    return opened(request, tailed(request, wanted, bounds, bootstrap))


async def tailed(
    request: ApiRequest, wanted: Wanted, bounds: dict[int, tuple[int, int]], bootstrap: str
) -> AsyncIterator[bytes]:
    """Events with the new rows, at most one every half second."""
    stop, rows, counts = threading.Event(), deque[Any](maxlen=TAIL_ROWS_MAX), [0, 0]
    ranges = {index: (end, ENDLESS) for index, (_, end) in bounds.items()}
    failure: list[str] = []

    def read() -> None:
        reader = None
        try:
            reader = Reader(request.visitor.properties, bootstrap, wanted.committed)
            tests = wanted.filters.tests(wanted.schemas)
            second, size = time.monotonic(), 0
            for message in reader.read(wanted.topic, ranges, stop, endless=True):
                if time.monotonic() - second > 1:
                    second, size = time.monotonic(), 0
                if message is None:
                    continue
                counts[0] += 1
                size += len(message.value() or b"") + len(message.key() or b"")
                if size > TAIL_BYTES_MAX:
                    stop.wait(max(second + 1 - time.monotonic(), 0))
                if all(test(message) for test in tests):
                    counts[1] += 1
                    rows.append(row_of(message, schemas=wanted.schemas))
        except Exception as failed:
            failure.append(str(failed))
        finally:
            if reader is not None:
                reader.close()

    thread = threading.Thread(target=read, name="tail", daemon=True)
    thread.start()
    said = time.monotonic()
    try:
        while not request.service.stopping and request.service.still_open(request):
            taken = [rows.popleft() for _ in range(len(rows))]
            if taken or time.monotonic() - said > QUIET_SECONDS / 5:
                said = time.monotonic()
                yield event("records", {
                    "rows": taken, "scanned": counts[0], "found": counts[1],
                })
            if failure:
                yield event("failed", {"message": failure[0]})
                return
            await request.service.wait(TAIL_SECONDS)
        yield event("end", {})
    finally:
        stop.set()
