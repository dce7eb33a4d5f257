"""From a decoded header to a handler, and from what it returns or raises to a response.

Handlers register themselves with `@handles`; the ranges that ApiVersions tells are these
registrations. Produce and Fetch are served by the connection itself, in Cython, and only register
their ranges here.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ottla.broker.context import RequestContext
from ottla.broker.waiting import LateReply
from ottla.wire.apis import APIS, Api, ApiKey
from ottla.wire.codec import Cursor
from ottla.wire.errors import ErrorCode, MalformedMessage, ProtocolError
from ottla.wire.messages import ApiVersionsResponse
from ottla.wire.structs import Message

log = logging.getLogger("ottla.dispatch")


@dataclass(frozen=True, slots=True)
class Handler:
    """A registered handler with the versions that it serves and those that ApiVersions tells."""

    api: Api
    function: Callable[[Any, RequestContext], Any]
    versions: range
    advertised: range
    waits: bool


HANDLERS: dict[int, Handler] = {}


def handles(
    key: ApiKey, versions: range, advertised: range | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a handler for `versions` of an API.

    `advertised` is what ApiVersions tells where that differs (Produce 0, KAFKA-18659).
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if key in HANDLERS:
            raise AssertionError(f"{key.name} is handled twice")
        api = APIS[key]
        known = api.versions
        if versions.start < known.start or versions.stop > known.stop:
            raise AssertionError(f"{key.name} is defined for {known}, not for {versions}")
        HANDLERS[key] = Handler(
            api, function, versions, advertised or versions, inspect.iscoroutinefunction(function)
        )
        return function

    return register


def serve(
    context: RequestContext, body: Cursor
) -> Message | bytes | LateReply | Awaitable[Message]:
    """Answer one request; the result is the response, its body as bytes, or will be a response.

    Raises MalformedMessage where the request has no answer but a closed connection.
    """
    handler = HANDLERS.get(context.api_key)
    version = context.version
    if handler is None:
        raise MalformedMessage(f"API key {context.api_key} is not served here")
    if version not in handler.versions:
        if context.api_key == ApiKey.API_VERSIONS:
            return version_of_versions(handler)
        raise MalformedMessage(
            f"{APIS[context.api_key].name} version {version} is not served, {handler.versions} are"
        )
    request = handler.api.request.decode(body, version)
    if handler.waits:
        return _finish(handler, request, context)
    try:
        # A handler that waits without a coroutine, where that is worth it, returns a LateReply.
        response: Message | LateReply = handler.function(request, context)
        return response
    except ProtocolError as error:
        return error_response(context, error)
    except Exception:
        return _unexpected(context)


def version_of_versions(handler: Handler) -> bytes:
    """What a client of the future is told: code 35 in version 0, with the versions of ApiVersions.

    It then asks again, on the same connection, in a version that both know (KIP-511).
    """
    known = ApiVersionsResponse.ApiKey(
        api_key=ApiKey.API_VERSIONS,
        min_version=handler.versions.start,
        max_version=handler.versions.stop - 1,
    )
    answer = ApiVersionsResponse(
        error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=[known]
    )
    encoded: bytes = answer.encode(0)
    return encoded


async def _finish(handler: Handler, request: Any, context: RequestContext) -> Message:
    try:
        response: Message = await handler.function(request, context)
        return response
    except ProtocolError as error:
        return error_response(context, error)
    except Exception:
        return _unexpected(context)


def error_response(context: RequestContext, error: ProtocolError) -> Message:
    """A response that tells a whole request's failure in its top-level error code."""
    response: Any = APIS[context.api_key].response()
    if not hasattr(response, "error_code"):
        raise MalformedMessage(f"{APIS[context.api_key].name}: {error.message}") from error
    response.error_code = int(error.code)
    if hasattr(response, "error_message") and error.message:
        response.error_message = error.message
    told: Message = response
    return told


def _unexpected(context: RequestContext) -> Message:
    """Our own bug: logged whole, told to the client as code -1."""
    log.exception("%s version %d failed", APIS[context.api_key].name, context.version)
    return error_response(
        context,
        ProtocolError("the broker failed; its log says why", ErrorCode.UNKNOWN_SERVER_ERROR),
    )
