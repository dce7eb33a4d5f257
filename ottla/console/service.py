"""The objects that all requests share: sessions, history, threads, the signal to stop."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.console.history import History
from ottla.console.recorder import record
from ottla.console.schemas import Schemas
from ottla.console.search_process import SearchProcesses
from ottla.console.sessions import Sessions

if TYPE_CHECKING:
    from ottla.console.connections import Target
    from ottla.console.requests import ApiRequest

THREADS = 8
SEARCH_THREADS = 4


@dataclass(frozen=True)
class Options:
    """The options of a console."""

    host: str
    port: int
    allow_changes: bool = False
    session_seconds: float = 1800.0
    history: Path | None = None
    certificate: str | None = None
    key: str | None = None
    schemas: str | None = None
    """A directory or a registry's address."""
    names: tuple[str, ...] = ()
    """Additional host names under which browsers may reach the console."""


class Service:
    """The console."""

    def __init__(self, target: Target, options: Options) -> None:
        self.target, self.options = target, options
        self.threads = ThreadPoolExecutor(THREADS, "admin")
        self.search_threads = ThreadPoolExecutor(SEARCH_THREADS, "search")
        self.search_processes = SearchProcesses()
        self.sessions = Sessions(target, self.threads, options.session_seconds)
        self.schemas = Schemas(options.schemas) if options.schemas else None
        self.history = History(options.history)
        self.stop = asyncio.Event()
        self.recording: asyncio.Task[None] | None = None

    @property
    def stopping(self) -> bool:
        """Whether the console is being stopped."""
        return self.stop.is_set()

    @property
    def secure(self) -> bool:
        """Whether the console serves TLS."""
        return self.options.certificate is not None

    @property
    def cookie(self) -> str:
        """The cookie's name. Browsers accept `__Host-` only for Secure cookies without a domain."""
        return "__Host-ottla" if self.secure else "ottla"

    @property
    def changes_allowed(self) -> bool:
        """Whether requests that change something are allowed. Without logins the brokers cannot
        authorize users, so the operator must allow changes (--allow-changes)."""
        return self.target.asks_login or self.options.allow_changes

    def start(self) -> None:
        """Record the history from now on."""
        self.recording = asyncio.create_task(record(self.history, self.sessions))

    async def wait(self, seconds: float) -> None:
        """Wait for a while, or until the console stops."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stop.wait(), seconds)

    def still_open(self, request: ApiRequest) -> bool:
        """Whether the session of a stream is still open. An open page keeps its session alive."""
        return self.sessions.find(request.request.cookies.get(self.cookie)) is request.visitor

    async def close(self) -> None:
        """Stop recording, close the connections."""
        self.stop.set()
        if self.recording is not None:
            self.recording.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.recording
        self.sessions.close()
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.search_threads.shutdown(wait=False, cancel_futures=True)
        self.search_processes.close()
        self.history.close()
