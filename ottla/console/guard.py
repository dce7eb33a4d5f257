"""The checks of every request, and the headers of every answer.

- The Host header must name this console. A foreign name that resolves to the console's address (DNS
  rebinding) is refused.
- A request is refused if its Origin or Sec-Fetch-Site header names another site. Links from other
  sites are allowed.
- The content security policy has no exceptions: scripts and styles are files of this console.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

from ottla.client.addresses import names_one_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)
ANSWERED = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, host: str, names: Iterable[str], secure: bool) -> None:
        self.app = app
        self.scheme = "https" if secure else "http"
        own = {host, "localhost", socket.gethostname(), socket.getfqdn(), *names}
        self.names = {name.lower() for name in own if name}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        # Names in a path may have any character, even a slash, so they are decoded only after the
        # path is split.
        scope = {**scope, "path": scope["raw_path"].decode("latin-1")}

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in ANSWERED.items():
                    headers[name] = value
                if self.scheme == "https":
                    headers["Strict-Transport-Security"] = "max-age=31536000"
            await send(message)

        reason = self.refusal(Headers(scope=scope))
        if reason is None:
            await self.app(scope, receive, guarded)
            return
        answer = JSONResponse({"error": "FOREIGN_ORIGIN", "message": reason}, 403)
        await answer(scope, receive, guarded)

    def refusal(self, headers: Any) -> str | None:
        """Why a request is refused; None if it is allowed."""
        host = headers.get("host", "")
        if not names_one_of(host, self.names):
            return (
                f"the Host header has {host[:200]!r}, which is not a name of this console; to allow"
                " this name, give it to `ottla console` with --name"
            )
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"{self.scheme}://{host.lower()}":
            return f"requests from pages of {origin[:200]} are refused"
        foreign = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if foreign and headers.get("sec-fetch-mode") != "navigate":
            return "requests from other sites are refused"
        return None
