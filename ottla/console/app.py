"""The application: the API's paths, streams, the login, and the files of the front end."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route, compile_path
from starlette.staticfiles import StaticFiles

from ottla import __version__
from ottla.client.errors import ClientError
from ottla.console import streams
from ottla.console.api import PREFIX, TABLE, Entry, openapi
from ottla.console.documents import encoded
from ottla.console.guard import Guard
from ottla.console.reads import one_record
from ottla.console.requests import ApiRequest, BadRequest, answer_of
from ottla.console.search import Reader
from ottla.console.service import Service
from ottla.console.shown import kind_of
from ottla.wire.errors import NumberOutOfRange

log = logging.getLogger("ottla.console")
STATIC = Path(__file__).parent / "static"
COMPRESSED_SIZE_MIN = 16 << 10
READ_SECONDS = 20.0
LIVE_PATHS = [
    (compile_path(entry.path)[0], entry) for entry in TABLE
    if entry.method == "GET" and not entry.path.endswith("/records")
]
NO_STORE = {"Cache-Control": "no-store"}
Ask = Callable[[ApiRequest], Awaitable[Any]]


def application(service: Service) -> Starlette:
    """The console as an ASGI application."""
    routes: list[Any] = [
        Route(PREFIX + entry.path, endpoint(service, of_entry(entry), entry.method),
              methods=[entry.method])
        for entry in TABLE
    ]
    routes += [
        Route(f"{PREFIX}/session", session(service), methods=["GET", "POST", "DELETE"]),
        Route(f"{PREFIX}/stream", endpoint(service, live)),
        Route(f"{PREFIX}/topics/{{topic}}/live", endpoint(service, streams.tail)),
        Route(f"{PREFIX}/topics/{{topic}}/partitions/{{partition:int}}/records/{{offset:int}}",
              endpoint(service, download)),
        Route(f"{PREFIX}/openapi.json", described),
        Route("/api/{rest:path}", missing, methods=["GET", "POST", "PATCH", "DELETE"]),
        Mount("/static", StaticFiles(directory=STATIC)),
        Route("/{rest:path}", page),
    ]
    options = service.options
    return Starlette(
        routes=routes,
        middleware=[
            Middleware(Guard, host=options.host, names=options.names, secure=service.secure),
            Middleware(GZipMiddleware, minimum_size=COMPRESSED_SIZE_MIN, compresslevel=1),
        ],
        exception_handlers={HTTPException: refused},  # type: ignore[dict-item]
    )


async def page(request: Request) -> Response:
    """The front end's page, which is the same for every address: its scripts read the address."""
    return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})


async def described(request: Request) -> Response:
    """The API as OpenAPI."""
    return Response(description(), media_type="application/json")


@cache
def description() -> bytes:
    """The OpenAPI document as JSON, encoded once."""
    return json.dumps(openapi(), separators=(",", ":")).encode()


async def missing(request: Request) -> Response:
    """The answer to a path that the API does not have."""
    return problem(BadRequest(
        f"{request.method} {request.url.path}: there is no such path; see {PREFIX}/openapi.json",
        404, "NOT_FOUND"))


async def refused(request: Request, error: HTTPException) -> Response:
    """The answer to a request that Starlette itself refuses."""
    return problem(BadRequest(error.detail, error.status_code, "REFUSED"))


def problem(error: Exception) -> Response:
    """The answer to a request that failed."""
    status, document = answer_of(error)
    return JSONResponse(document, status, headers=NO_STORE)


def endpoint(
    service: Service, handler: Ask, method: str = "GET"
) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that checks the session and the rights, calls the handler, and turns errors into
    responses."""

    async def answered(request: Request) -> Response:
        try:
            visitor = service.sessions.find(request.cookies.get(service.cookie))
            if visitor is None:
                raise BadRequest("log in first", 401, "NOT_LOGGED_IN")
            if method != "GET" and not service.changes_allowed:
                raise BadRequest(
                    "this console is read-only, because the cluster has no authentication; to"
                    " allow changes, start `ottla console` with --allow-changes, or set"
                    " ottla.console.allow.changes=true on the broker that starts the console",
                    403, "READ_ONLY")
            answer = await handler(ApiRequest(request, service, visitor))
        except ClientError as failed:
            return problem(failed)
        except NumberOutOfRange as wrong:
            return problem(BadRequest(wrong.sentence))
        except Exception:
            log.exception("%s %s failed", request.method, request.url.path)
            return problem(BadRequest("an error in the console; its log has the details", 500))
        finally:
            if method != "GET" and visitor is not None:
                visitor.views.forget()
        if isinstance(answer, Response):
            return answer
        return Response(
            await encoded(answer), media_type="application/json", headers=NO_STORE)

    return answered


def of_entry(entry: Entry) -> Ask:
    """The handler of a path. It refuses unknown parameters and fields."""

    async def handled(request: ApiRequest) -> Any:
        request.check_names(request.request.query_params, entry.query, "parameter")
        if entry.body:
            request.check_names(await request.body(), entry.body, "field")
        return await entry.handler(request)

    return handled


async def live(request: ApiRequest) -> Response:
    """The stream with all live updates of a page."""
    return streams.live(request, answer_path)


async def answer_path(path: str, request: ApiRequest) -> Any:
    """The answer to a path of the table, for a stream. Raises ClientError."""
    bare, _, query = path.partition("?")
    for pattern, entry in LIVE_PATHS:
        if (match := pattern.match(bare)) is not None:
            return await entry.handler(part_of(request, query, match.groupdict()))
    raise BadRequest(f"path {path[:200]!r} does not exist, or has no live updates", 404)


def part_of(request: ApiRequest, query: str, names: dict[str, str]) -> ApiRequest:
    """A request for one path of a stream."""
    scope = dict(request.request.scope)
    scope["path_params"] = names
    scope["query_string"] = query.encode()
    return ApiRequest(Request(scope), request.service, request.visitor, waits=False)


async def download(request: ApiRequest) -> Response:
    """The value of one record, or its key, byte for byte."""
    topic, name = request.path("topic"), request.one_of("part", ("value", "key"))
    partition, offset = (int(request.path(name)) for name in ("partition", "offset"))
    if partition > 1 << 30 or offset > 1 << 62:
        raise BadRequest("the partition or the offset is too high", 404, "NOT_FOUND")
    (low, high), bootstrap = await request.visitor.connections.run(one_record, topic, partition)
    if not low <= offset < high:
        there = f"only offsets {low} to {high - 1}" if low < high else "no records"
        raise BadRequest(f"{topic}-{partition} has {there}", 404)
    message = await asyncio.get_running_loop().run_in_executor(
        request.service.search_threads, read_one, dict(request.visitor.properties), bootstrap,
        topic, partition, offset)
    part = message.key() if name == "key" else message.value()
    if part is None:
        raise BadRequest(f"the record's {name} is null", 404, "NULL")
    ending = {"json": "json", "text": "txt"}.get(kind_of(part), "bin")
    return Response(part, media_type="application/octet-stream", headers=NO_STORE | {
        "Content-Disposition": f'attachment; filename="record-{partition}-{offset}.{ending}"'})


def read_one(
    properties: dict[str, str], bootstrap: str, topic: str, partition: int, offset: int
) -> Any:
    """One record. Raises BadRequest if it does not exist, for example after compaction, or has not
    arrived after READ_SECONDS."""
    stop = threading.Event()
    timer = threading.Timer(READ_SECONDS, stop.set)
    timer.daemon = True
    timer.start()
    reader = Reader(properties, bootstrap, False)
    try:
        for message in reader.read(topic, {partition: (offset, offset + 1)}, stop):
            if message is not None and message.offset() == offset:
                return message
        raise BadRequest(f"{topic}-{partition} has no record at offset {offset}", 404)
    finally:
        timer.cancel()
        reader.close()


def session(service: Service) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint to log in, to log out, and to show the user."""

    async def answered(request: Request) -> Response:
        token = request.cookies.get(service.cookie)
        try:
            if request.method == "POST":
                return await logged_in(service, request)
            if request.method == "DELETE":
                service.sessions.end(token)
                answer = JSONResponse({"done": True}, headers=NO_STORE)
                answer.delete_cookie(service.cookie, path="/", secure=service.secure,
                                     httponly=True, samesite="strict")
                return answer
        except ClientError as failed:
            return problem(failed)
        visitor = service.sessions.find(token)
        return JSONResponse({
            "user": visitor.name if visitor is not None else None,
            "logged_in": visitor is not None,
            "asks_login": service.target.asks_login,
            "mechanism": service.target.properties.get("sasl.mechanism"),
            "changes_allowed": service.changes_allowed,
            "bootstrap": service.target.bootstrap,
            "version": __version__,
        }, headers=NO_STORE)

    return answered


async def logged_in(service: Service, request: Request) -> Response:
    """Opens a session; returns the answer that sets its cookie. Raises ClientError."""
    if not service.target.asks_login:
        raise BadRequest("no login is needed: the cluster has no authentication")
    api_request = ApiRequest(request, service, None)  # type: ignore[arg-type]
    user = await api_request.field("user", str)
    usual = service.target.properties.get("sasl.mechanism", "SCRAM-SHA-512")
    token = await service.sessions.open(
        user, await api_request.field("password", str),
        await api_request.field("mechanism", str, usual))
    answer = JSONResponse({"user": user}, headers=NO_STORE)
    answer.set_cookie(service.cookie, token, path="/", httponly=True, secure=service.secure,
                      samesite="strict")
    return answer
