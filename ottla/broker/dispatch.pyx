# cython: boundscheck=False, wraparound=False
"""Passes a request to its handler, and makes the response from what the handler returns or raises.

The schemas say which file of `api` serves which API. A file is imported at the first request for
one of its APIs, so that a start does not wait for unused handlers. Handlers register themselves
with `@handles`. ApiVersions reports the version ranges of the schemas, and every handler serves its
whole range. Produce and Fetch are served by the connection itself.
"""

import inspect
import logging
from asyncio import get_running_loop
from importlib import import_module
from types import CoroutineType

from ottla.broker.network.promises cimport LateReply, TaskReply
from ottla.broker.request_context cimport RequestContext
from ottla.wire.parts cimport EncodedInParts
from ottla.wire.structs cimport EncodedMessage, decode_from

from ottla.broker.audit import Act
from ottla.broker.threads.slices import Slices
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import ErrorCode, MalformedMessage, ProtocolError
from ottla.wire.parts import is_long

log = logging.getLogger("ottla.dispatch")

cdef enum:
    PART_SIZE = 1 << 14                 # bytes of a long response that are encoded at once


cdef class Handler:
    """An API that is served, in all versions of its schema. `function` is None until the module
    that serves the API is imported."""

    def __init__(self, api, str module):
        self.api, self.module = api, module
        self.versions = api.versions
        self.audited = "audited" in api.roles
        self.decided = "forwarded" in api.roles
        self.asked_again = self.decided or "forwarded_after_check" in api.roles
        self.between_brokers = "between_brokers" in api.roles
        self.first, self.last = api.versions.start, api.versions.stop - 1

    def serves(self, RequestContext context):
        """Whether this client may use the API: APIs between brokers are served on the inter-broker
        listener only."""
        return (not self.between_brokers
                or context.broker.role.listener == context.client.listener)

    cdef int load(self) except -1:
        import_module(self.module)
        if self.function is None:
            raise AssertionError(
                f"{self.module} needs a function with @handles(ApiKey.{self.api.key.name}, …), or"
                f" the second line of {self.api.key.name.lower()}.txt has to name another module"
                f" after `served`")
        self.request_class = self.api.request
        return 0


HANDLERS = {}


def expect(key, str module):
    """Declare that a module serves an API. The module registers its handler when it is imported."""
    HANDLERS[key] = Handler(APIS[key], module)


def handles(key, *, access):
    """Register a handler for all versions of an API.

    `access` is a function of `security.decisions`. If there is an authorizer, this function decides
    whether the client may make the request.
    """
    def register(function):
        cdef Handler handler = HANDLERS.get(key)
        if handler is None or handler.module != function.__module__:
            raise AssertionError(
                f"{key.name} is handled in {function.__module__}: the second line of its schema has"
                f" to say `served {function.__module__.removeprefix('ottla.broker.api.')}`")
        if handler.function is not None:
            raise AssertionError(f"{key.name} is handled twice")
        if not callable(access):
            raise AssertionError(
                f"{key.name}: access has to be a function of security.decisions, not {access!r}")
        handler.function, handler.waits = function, inspect.iscoroutinefunction(function)
        handler.access = access
        return function

    return register


cdef object serve(RequestContext context, Cursor body):
    """Answer one request; returns the response, or a LateReply that will have it.

    Raises MalformedMessage if the only valid reaction is to close the connection.
    """
    cdef Handler handler = HANDLERS.get(context.api_key)
    if handler is None or handler.between_brokers and not handler.serves(context):
        raise MalformedMessage(f"API key {context.api_key} is not served here")
    if not handler.first <= context.version <= handler.last:
        if context.api_key == ApiKey.API_VERSIONS:
            return version_of_versions(handler)
        raise MalformedMessage(
            f"{handler.api.name} version {context.version} is not served; the served versions are"
            f" {handler.first} to {handler.last}")
    if handler.request_class is None:
        handler.load()
    if handler.asked_again:
        return for_controller(handler, context, body.rest())
    request = decode_from(handler.request_class, body, context.version)
    return admitted(handler, request, context)


cdef object admitted(Handler handler, request, RequestContext context):
    if handler.audited:
        return audited(handler, request, context)
    return decided(handler, request, context)


cdef object decided(Handler handler, request, RequestContext context):
    if context.broker.authorizer is not None:
        refusal = refused(handler, request, context)
        if refusal is not None:
            return refusal
    return handle(handler, request, context)


cdef object audited(Handler handler, request, RequestContext context):
    """Log the outcome of an administrative request when it ends."""
    act = Act(request, context)
    try:
        response = decided(handler, request, context)
    except Exception as error:
        act.ended(error)
        raise
    when_ready(response, act.ended)
    return response


cdef object for_controller(Handler handler, RequestContext context, bytes data):
    """Forward a request to the controller, unless this broker is the controller.

    Requests about delegation tokens are always handled here first: their handlers check the
    client's connection, then forward the request.
    """
    cdef Cursor body = Cursor(data)
    body.elements_max = context.broker.request_elements_max
    request = decode_from(handler.request_class, body, context.version)
    if handler.decided and not context.broker.role.decides():
        return TaskReply(forward(context, data))
    if not context.forwarded:   # a forwarded request is repeated by the broker that forwarded it
        context.body = data
    return admitted(handler, request, context)


async def forward(RequestContext context, bytes body):
    try:
        return await context.broker.role.forward(context, body)
    except ProtocolError as error:
        return error_response(context, error)
    except Exception:
        return unexpected(context)


async def serve_inside(RequestContext context, bytes data):
    """The response to a request wrapped in another request. Raises MalformedMessage."""
    response = serve_data(context, data)
    if isinstance(response, LateReply):
        return await Arrival(response).future
    return response


cdef object serve_data(RequestContext context, bytes data):
    cdef Cursor body = Cursor(data)
    body.elements_max = context.broker.request_elements_max
    return serve(context, body)


def arrival(response):
    """An awaitable of a handler's response; `response` may be a LateReply."""
    future = get_running_loop().create_future()
    if isinstance(response, LateReply):
        return Arrival(response).future
    future.set_result(response)
    return future


class Arrival:
    """Receives a late reply in place of a connection, and sets a future to the response."""

    def __init__(self, LateReply late):
        self.future = get_running_loop().create_future()
        late.receiver = self
        if late.over:
            self.deliver_late(late)

    def deliver_late(self, LateReply late):
        if self.future.done():
            return
        if isinstance(late.response, BaseException):
            self.future.set_exception(late.response)
        elif isinstance(late.response, EncodedInParts):
            self.future.set_result((<EncodedInParts>late.response).message)
        else:
            self.future.set_result(late.response)


cdef int when_ready(response, call) except -1:
    """Call `call` with the response, now or when it is ready."""
    cdef LateReply late
    if not isinstance(response, LateReply):
        call(response)
        return 0
    late = <LateReply>response
    if late.response is not None:
        call(late.response)
    else:
        late.observer = call
    return 0


cdef object handle(Handler handler, request, RequestContext context):
    if handler.waits:
        return task_of(finish(handler, request, context), context)
    try:
        # A handler that is a plain function avoids the cost of a coroutine: it returns a response
        # or a LateReply. It returns a coroutine only for long work.
        response = handler.function(request, context)
        if type(response) is CoroutineType:
            return task_of(outcome_of(response, context), context)
        return response
    except ProtocolError as error:
        return error_response(context, error)
    except Exception:
        return unexpected(context)


cdef object task_of(coroutine, RequestContext context):
    if context.broker.quotas.timing:
        from ottla.broker.quotas.timed_coroutine import TimedCoroutine
        coroutine = TimedCoroutine(coroutine, context, context.broker.clock)
    return TaskReply(coroutine)


cdef object version_of_versions(Handler handler):
    """The answer to an unknown version of ApiVersions: error 35, with the versions served here.

    The answer has version 0, which every client can read. The client then asks again on the same
    connection, in a version that both know (KIP-511).
    """
    response_class = handler.api.response
    known = response_class.ApiKey(
        api_key=int(ApiKey.API_VERSIONS), min_version=handler.first, max_version=handler.last)
    answer = response_class(error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=[known])
    return EncodedMessage(answer.encode(0))


cdef object refused(Handler handler, request, RequestContext context):
    """Return the error response if the client may not make the request, otherwise None."""
    try:
        handler.access(request, context.access)
    except ProtocolError as error:
        return error_response(context, error)
    except Exception:
        return unexpected(context)
    return None


async def finish(Handler handler, request, RequestContext context):
    return await outcome_of(handler.function(request, context), context)


async def outcome_of(coroutine, RequestContext context):
    try:
        response = await answer_of(coroutine, context)
        if context.body is not None:
            response = await context.broker.role.after_all(context, response)
        if is_long(response, context.version):
            response = EncodedInParts(response, context.version)
            slices = Slices()
            while not response.encode_part(PART_SIZE):
                if slices.over:
                    await slices.pause()
        return response
    except ProtocolError as error:
        return error_response(context, error)
    except Exception:
        return unexpected(context)


async def answer_of(coroutine, RequestContext context):
    try:
        return await coroutine
    except ProtocolError as error:
        return error_response(context, error)


cdef object error_response(RequestContext context, error):
    """A response whose top-level error code says why the whole request failed."""
    response = APIS[context.api_key].response()
    if not hasattr(response, "error_code"):
        raise MalformedMessage(f"{APIS[context.api_key].name}: {error.message}") from error
    response.error_code = int(error.code)
    context.broker.counts.failed(context.api_key, response.error_code)
    if hasattr(response, "error_message") and error.message:
        response.error_message = error.message
    return response


cdef object unexpected(RequestContext context):
    """A bug of the broker: logged in full, reported to the client as code -1."""
    log.exception("%s version %d failed", APIS[context.api_key].name, context.version)
    return error_response(
        context,
        ProtocolError(
            "an internal error; the broker's log says why", ErrorCode.UNKNOWN_SERVER_ERROR))
