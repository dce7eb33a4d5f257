"""A request to the API (its user, parameters and body), and the answers to requests that
failed."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from starlette.requests import ClientDisconnect

from ottla.client.errors import ClientError, NotSupported, Refused, TimedOut, Unreachable
from ottla.client.similar_names import similar
from ottla.console.filters import BadFilter
from ottla.console.sessions import LoginRefused
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.console.service import Service
    from ottla.console.sessions import Visitor

BODY_SIZE_MAX = 8 << 20
NOT_FOUND = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.RESOURCE_NOT_FOUND,
}


class BadRequest(ClientError):
    """A request that the console itself refuses; `status` is the HTTP status."""

    def __init__(self, message: str, status: int = 400, code: str = "BAD_REQUEST") -> None:
        super().__init__(message)
        self.status, self.code = status, code


class ApiRequest:
    """One request to the API. If `waits` is false, it is answered soon, with the data known by
    then; streams do this, because they repeat their requests."""

    def __init__(
        self, request: Request, service: Service, visitor: Visitor, *, waits: bool = True
    ) -> None:
        self.request, self.service, self.visitor = request, service, visitor
        self.waits = waits
        self._body: Any = None

    def path(self, name: str) -> str:
        """A name in the address. `~` precedes names like `..`, which browsers treat as folders."""
        text = unquote(str(self.request.path_params[name]))
        return text[1:] if text.startswith("~") else text

    def query(self, name: str) -> str | None:
        """A parameter; None if it is missing or empty."""
        return self.request.query_params.get(name) or None

    def number(self, name: str, default: int, most: int) -> int:
        """A whole number from 0 to `most`."""
        text = self.query(name)
        if text is None:
            return default
        if not text.isdecimal() or len(text) > 18 or int(text) > most:
            raise BadRequest(f"{name}={text}: expected a whole number, at most {most}")
        return int(text)

    def one_of(self, name: str, known: Sequence[str]) -> str:
        """One of these words; the first one if the parameter is missing. Raises BadRequest."""
        text = self.query(name) or known[0]
        if text not in known:
            raise BadRequest(
                f"{name}={text[:200]}: expected {', '.join(known[:-1])} or {known[-1]}")
        return text

    def flag(self, name: str) -> bool:
        """Whether a parameter is `true`, `1` or `yes`."""
        return self.query(name) in ("true", "1", "yes")

    async def view(self, read: Callable[..., Any], *arguments: Hashable) -> Any:
        """A view of this user, which may be seconds old."""
        return await self.visitor.views.get(read, *arguments)

    async def soon(self, read: Callable[..., Any], *arguments: Hashable) -> Any:
        """A view. For a request that does not wait, the part that is known so far, or None."""
        if self.waits:
            return await self.visitor.views.get(read, *arguments)
        return await self.visitor.views.soon(read, *arguments)

    async def part(self, read: Callable[..., Any], *arguments: Hashable) -> Any:
        """A view. For a request that does not wait, at least a part of it."""
        if self.waits:
            return await self.visitor.views.get(read, *arguments)
        return await self.visitor.views.part(read, *arguments)

    @staticmethod
    def check_names(given: Iterable[str], known: Collection[str], what: str) -> None:
        """Raises BadRequest for an unknown parameter or field."""
        for name in given:
            if name not in known:
                all_known = f"; expected {', '.join(known)}" if known else f"; expected no {what}"
                near = similar(name, known) or all_known
                raise BadRequest(f"unknown {what} {name[:200]!r}{near}")

    async def body(self) -> dict[str, Any]:
        """The JSON object in the body. Raises BadRequest."""
        if self._body is None:
            self._body = await self._read_body()
        found: dict[str, Any] = self._body
        return found

    async def _read_body(self) -> dict[str, Any]:
        headers = self.request.headers
        kind = headers.get("content-type", "").partition(";")[0].strip()
        if kind != "application/json":
            sent = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
            if self.request.method == "DELETE" and not kind and not sent:
                return {}       # the handler says which field is missing
            raise BadRequest(
                "the body must be a JSON object: send Content-Type: application/json", 415)
        data = bytearray()
        try:
            async for piece in self.request.stream():
                data += piece
                if len(data) > BODY_SIZE_MAX:
                    raise BadRequest(f"the request has more than {BODY_SIZE_MAX} bytes", 413)
        except ClientDisconnect:
            raise BadRequest("the client closed the connection") from None
        try:
            body = json.loads(bytes(data) or b"{}")
        except (ValueError, RecursionError) as wrong:
            raise BadRequest(f"the request is not JSON: {wrong}") from wrong
        if not isinstance(body, dict):
            raise BadRequest("the request is not a JSON object")
        return body

    async def field(self, name: str, kind: type, default: Any = ...) -> Any:
        """A field of the body. Raises BadRequest if it is missing or of another type."""
        body = await self.body()
        value = body.get(name, default)
        if value is ...:
            raise BadRequest(f"the field {name!r} is missing")
        wrong = not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
        if wrong and value is not default:
            raise BadRequest(f"the field {name!r} is not of type {TYPES.get(kind, kind)}")
        return value

    async def confirmed(self, name: str) -> None:
        """Raises BadRequest unless the field `confirm` repeats the name of what is deleted."""
        if await self.field("confirm", str, None) != name:
            example = json.dumps({"confirm": name}, ensure_ascii=False)
            raise BadRequest(
                f"the field 'confirm' of the request's JSON object must repeat the name {name!r},"
                f" as in {example}")


TYPES = {str: "string", int: "integer", bool: "boolean", dict: "object", list: "array"}


def answer_of(error: Exception) -> tuple[int, dict[str, str]]:
    """The HTTP status and the document that answer an error."""
    status, code = 400, "FAILED"
    if isinstance(error, BadRequest):
        status, code = error.status, error.code
    elif isinstance(error, BadFilter):
        code = "BAD_REQUEST"
    elif isinstance(error, LoginRefused):
        status, code = (429 if error.later else 401), "LOGIN_REFUSED"
    elif isinstance(error, Refused):
        code = error.code.name
        if error.code in NOT_FOUND:
            status = 404
        elif code.endswith("AUTHORIZATION_FAILED"):
            status = 403
    elif isinstance(error, NotSupported):
        status, code = 501, "NOT_SUPPORTED"
    elif isinstance(error, Unreachable | TimedOut):
        status, code = 503, "UNREACHABLE"
    return status, {"error": code, "message": str(error)}
