"""Requests that only the controller may decide: clients' requests, which any broker forwards to it
(KIP-590), and this broker's own.

A client's request is sent in an Envelope with the client's principal and address. The controller
authorizes that principal, decides and answers. The response is passed on unchanged. If the
controller changes meanwhile, the request is sent to the next one. Once the request times out, each
of its items is answered with REQUEST_TIMED_OUT. As in Apache Kafka, a request whose outcome is
unknown is sent again. So a topic that the first attempt created may be reported as already
existing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ottla.broker.notes import Notes
from ottla.broker.peers.peers import CONTROL, FORWARD, Peers, PeerUnavailable
from ottla.broker.peers.undecided_answers import undecided_answer
from ottla.broker.quotas.throttle_field import throttle_time_of
from ottla.broker.threads.slices import Slices
from ottla.broker.threads.unawaited import retrieve_error
from ottla.wire.apis import APIS, FORWARDED
from ottla.wire.errors import ErrorCode, ProtocolError, RequestTimedOut
from ottla.wire.headers import RequestHeader, response_header_size
from ottla.wire.messages import DefaultPrincipalData, EnvelopeRequest
from ottla.wire.structs import EncodedMessage, Message, Struct

if TYPE_CHECKING:
    from ottla.broker.request_context import RequestContext

log = logging.getLogger("ottla.forwarding")

REQUEST_SECONDS = 30.0
"""Kafka's request.timeout.ms."""
ATTEMPT_SECONDS = 10.0
"""How long a broker's own request waits for one controller. A client's request may take longer."""
PATIENCE_SECONDS_MIN = 1.0
"""The shortest wait for a controller, also for a client with a shorter timeout: an election takes
about this long."""
PAUSE_SECONDS = 0.05
LOOK_SECONDS = 0.5
"""How often a waiting request checks whether the broker that serves it is still the controller."""
ENVELOPE_VERSION = 0
KINDS_WITH_CODES: dict[type, bool] = {}
"""The cache of `has_codes`."""


class Forwarding:
    """Requests to the current controller.

    `controller_id` returns the controller's node id if it is known, otherwise -1; `deciding`
    returns whether this broker is the controller; `connected` returns whether this broker reaches
    ZooKeeper; `caught_up` returns once this broker's image contains what the controller has
    decided.
    """

    def __init__(
        self,
        peers: Peers,
        controller_id: Callable[[], int],
        deciding: Callable[[], bool],
        connected: Callable[[], bool],
        caught_up: Callable[[], Awaitable[None]],
    ) -> None:
        self.peers, self.loop = peers, peers.loop
        self.controller_id, self.deciding = controller_id, deciding
        self.connected, self.caught_up = connected, caught_up
        self.notes = Notes(self.loop.time)

    async def forward(self, context: RequestContext, body: bytes) -> Message:
        """Have the controller serve a client's request; returns its response."""
        try:
            return await self._served(context, body)
        except ProtocolError as error:
            if context.api_key not in FORWARDED:
                raise
            return await undecided_answer(context, body, error.kept())

    async def after_all(self, context: RequestContext, response: Message) -> Message:
        """Return `response`, this broker's own decision. If it says that this broker is no longer
        the controller, return the next controller's response instead. Many clients do not retry
        NOT_CONTROLLER, since Apache Kafka's brokers never send it to them."""
        body = context.body
        if body is None or self.deciding():
            return response
        if not await names_code(response, ErrorCode.NOT_CONTROLLER, Slices()):
            return response
        answer = await self.forward(context, body)
        version = context.version
        told: Message = APIS[context.api_key].response.decode(answer.encode(version), version)
        return told

    async def _served(self, context: RequestContext, body: bytes) -> Message:
        client = context.client
        header = RequestHeader(context.api_key, context.version, 0, client.client_id)
        envelope = EnvelopeRequest(
            request_data=header.encode() + body,
            request_principal=encode_principal(client.principal),
            client_host_address=encode_address(client.host),
        )
        began = self.loop.time()
        deadline, asked = began + REQUEST_SECONDS, None
        while True:
            if self.deciding():
                from ottla.broker.dispatch import serve_inside

                return await serve_inside(context, body)
            answer = await self._attempt(envelope, ENVELOPE_VERSION, deadline, FORWARD)
            if answer is not None:
                break
            if asked is None:
                asked = APIS[context.api_key].request.decode(body, context.version)
                deadline = min(deadline, began + patience(asked))
            changes = not getattr(asked, "validate_only", False)
            await self._pause(deadline, APIS[context.api_key].name, changes=changes)
        if answer.error_code != 0:
            # The controller refused this broker, not its client. The client gets one of two error
            # codes, as from Apache Kafka's brokers.
            code = ErrorCode(answer.error_code)
            raise ProtocolError(
                f"the controller refused a request forwarded by this broker: {code.name}",
                code if code is ErrorCode.UNSUPPORTED_VERSION else ErrorCode.UNKNOWN_SERVER_ERROR,
            )
        await self.caught_up()
        data: bytes = answer.response_data
        body = data[response_header_size(context.api_key, context.version, data):]
        # The controller counts what clients create and delete; this broker throttles its client
        # (KIP-599).
        context.throttle(throttle_time_of(body, context.api_key, context.version))
        return EncodedMessage(body)

    async def ask(
        self, request: Message, version: int, timeout_seconds: float = REQUEST_SECONDS
    ) -> Any:
        """Send this broker's own request to the controller, which is another broker, and return the
        response. Raises RequestTimedOut. The request must be idempotent, as it may be sent several
        times."""
        deadline = self.loop.time() + timeout_seconds
        while True:
            answer = await self._attempt(request, version, deadline, CONTROL)
            if answer is not None:
                return answer
            await self._pause(deadline, type(request).__name__)

    async def _attempt(
        self, request: Message, version: int, deadline: float, lane: str
    ) -> Any | None:
        """Ask the broker that seems to be the controller; returns its response. Returns None if no
        other broker seems to be the controller; if there is no time to ask; if the broker does not
        answer; or if it answers that it is not the controller."""
        node_id = self.controller_id()
        seconds = min(ATTEMPT_SECONDS if lane == CONTROL else REQUEST_SECONDS,
                      deadline - self.loop.time())
        if node_id < 0 or node_id == self.peers.node_id or seconds < PAUSE_SECONDS:
            return None
        try:
            answer = await self.while_controller(
                node_id, self.peers.ask(node_id, request, version, seconds, lane)
            )
        except PeerUnavailable as error:
            # Each waiting request fails here many times a second; `notes` logs the same line once a
            # minute at most.
            self.notes.tell(log, f"{node_id}", f"controller {node_id}: {error}", logging.INFO)
            return None
        if getattr(answer, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
            return None
        return answer

    async def while_controller(self, node_id: int, asked: Coroutine[Any, Any, Any]) -> Any:
        """Wait for the answer of broker `node_id` only as long as that broker is the controller.
        Otherwise, if its machine has failed silently, the request would wait until it times out.
        Raises PeerUnavailable."""
        asking = self.loop.create_task(asked)
        # No caller awaits this task after `cancel`, but it may still fail instead of being
        # cancelled.
        asking.add_done_callback(retrieve_error)
        try:
            while not asking.done():
                await asyncio.wait([asking], timeout=LOOK_SECONDS)
                if not asking.done() and self.controller_id() != node_id:
                    raise PeerUnavailable(
                        f"broker {node_id} is no longer the controller", sent=True
                    )
            return asking.result()
        finally:
            asking.cancel()

    async def _pause(self, deadline: float, what: str, *, changes: bool = True) -> None:
        if self.loop.time() >= deadline:
            raise RequestTimedOut(
                f"no controller answered {what} in time: {self._why_none(changes)}")
        await asyncio.sleep(PAUSE_SECONDS)

    def _why_none(self, changes: bool) -> str:
        """What this broker knows about the controller that did not answer, and what to do.
        `changes` is whether the request asked for a change."""
        node_id = self.controller_id()
        end = ". The change may still happen: check before you retry" if changes else "; ask again"
        who = f"broker {node_id} was the controller"
        if node_id < 0:
            who, end = "this broker knows of no controller", "; ask again"
        elif node_id == self.peers.node_id:
            who = f"this broker (node.id {node_id}) was the controller"
        cut = "" if self.connected() else "; this broker does not reach ZooKeeper"
        return who + cut + end


def patience(request: Message) -> float:
    """How many seconds a client's request waits for a controller, according to its own timeout."""
    timeout_ms = getattr(request, "timeout_ms", None)
    if not isinstance(timeout_ms, int):
        return REQUEST_SECONDS
    return min(max(timeout_ms / 1000, PATIENCE_SECONDS_MIN), REQUEST_SECONDS)


async def names_code(struct: Struct, code: int, slices: Slices) -> bool:
    """Whether a response, or any struct in it, has this error code."""
    left: list[Any] = [struct]
    while left:
        if slices.over:
            await slices.pause()
        each = left.pop()
        for name in type(each).__slots__:
            value: Any = getattr(each, name)
            if name == "error_code" and value == code:
                return True
            inside = value if isinstance(value, list) else (value,)
            if inside and has_codes(type(inside[0])):
                left += inside
    return False


def has_codes(kind: type) -> bool:
    """Whether structs of this kind, or structs within them, have error codes."""
    known = KINDS_WITH_CODES.get(kind)
    if known is None:
        known = KINDS_WITH_CODES[kind] = issubclass(kind, Struct) and (
            "error_code" in kind.__slots__      # type: ignore[attr-defined]
            or any(isinstance(each, type) and has_codes(each) for each in vars(kind).values())
        )
    return known


def encode_principal(principal: str) -> bytes:
    """A principal as Apache Kafka's brokers encode it: a version and DefaultPrincipalData."""
    kind, _, name = principal.partition(":")
    return b"\0\0" + DefaultPrincipalData(type=kind, name=name).encode(0)


def decode_principal(data: bytes) -> str:
    """Decode what `encode_principal` wrote. Raises MalformedMessage."""
    principal = DefaultPrincipalData.decode(data[2:], int.from_bytes(data[:2], "big"))
    return f"{principal.type}:{principal.name}"


def encode_address(host: str) -> bytes:
    """Encode an IP address in 4 or 16 bytes, like Java's `InetAddress.getAddress`. If `host` is not
    an IP address, the 4 bytes are zeros."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return bytes(4)


def decode_address(data: bytes) -> str:
    """Decode what `encode_address` wrote. Raises ValueError."""
    return str(ipaddress.ip_address(data))
