"""The users of the console: sessions of broker users or, without logins, one anonymous visitor.

A session is a random token in a cookie. The console keeps the token's hash and the user's password,
in memory only. It sends each admin request as the user, so the broker authorizes the request.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ottla.client.errors import ClientError, Unreachable
from ottla.console.connections import MECHANISMS, Connections, Target
from ottla.console.contact import Contact
from ottla.console.views import Views

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

LIFE_SECONDS = 12 * 3600.0
SESSIONS_MAX = 500
FAILURES_MAX = 10
FAILURE_SECONDS = 60.0
"""Each user name may have FAILURES_MAX failed logins within FAILURE_SECONDS."""
FAILED_NAMES_MAX = 50_000
"""More names than logins can fail in FAILURE_SECONDS: a failure is not forgotten earlier because
logins with other names fail."""
OBSERVERS_MAX = 5
"""The most logged-in users for whom the history is recorded."""


class LoginRefused(ClientError):
    """The broker or the console refused a login; `later` is true if the user may retry later."""

    def __init__(self, message: str, *, later: bool = False) -> None:
        super().__init__(message)
        self.later = later


class Visitor:
    """A user of the console, with their own connections and views."""

    def __init__(
        self,
        name: str | None,
        target: Target,
        properties: Mapping[str, str],
        threads: Executor,
    ) -> None:
        self.name, self.properties = name, properties
        self.connections = Connections(target, properties, threads)
        self.views = Views(self.connections)
        self.streams = 0
        self.searches = 0

    def close(self) -> None:
        """Close the connections."""
        self.connections.close()


class Session:
    """A visitor who has logged in, with the times of the login and of the last request."""

    def __init__(self, visitor: Visitor, now: float) -> None:
        self.visitor, self.begun, self.used = visitor, now, now


class Sessions:
    """The sessions of all users."""

    def __init__(
        self,
        target: Target,
        threads: Executor,
        idle_seconds: float = 1800.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.target, self.threads, self.clock = target, threads, clock
        self.idle_seconds = idle_seconds
        self.contact = Contact(target)
        self.by_hash: dict[bytes, Session] = {}
        self.failures: dict[bytes, list[float]] = {}
        """The times of recent failed logins, by the hash of the user name. The first name is the
        one whose last failure is the oldest."""
        self.logging_in: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """A lock for each user name with a login in progress."""
        self.nameless: Visitor | None = None
        if not target.asks_login:
            self.nameless = Visitor(None, target, target.properties, threads)
        self.recorder: Visitor | None = self.nameless
        """The visitor for whom the history is always recorded: the console's own user, or the
        anonymous visitor; None if there is neither."""
        if target.asks_login and target.own_user:
            self.recorder = Visitor(None, target, target.properties, threads)

    def find(self, token: str | None) -> Visitor | None:
        """The visitor of a cookie; None if there is no such session, or it has expired. Without
        logins, always the anonymous visitor."""
        if self.nameless is not None:
            return self.nameless
        session = self.by_hash.get(hashed(token)) if token else None
        if session is None or self._expired(session):
            return None
        session.used = self.clock()
        return session.visitor

    async def open(self, user: str, password: str, mechanism: str) -> str:
        """Log in as a user of the broker; returns the session's token. Raises LoginRefused.

        Logins with the same user name are made one after the other. Otherwise many passwords could
        be tried at the same time, before the first failure is counted.
        """
        if mechanism not in MECHANISMS:
            raise LoginRefused(f"mechanism {mechanism!r}: expected {', '.join(MECHANISMS)}")
        if not user or not password:
            raise LoginRefused("a user name and a password are required")
        self.expire()
        lock = self.logging_in.setdefault(user, asyncio.Lock())
        async with lock:
            return await self._opened(user, password, mechanism)

    async def _opened(self, user: str, password: str, mechanism: str) -> str:
        self._check_failures(user)
        if len(self.by_hash) >= SESSIONS_MAX:
            raise LoginRefused("too many sessions are open; try again later", later=True)
        properties = self.target.properties_of(user, password, mechanism)
        visitor = Visitor(user, self.target, properties, self.threads)
        try:
            await visitor.connections.run(log_in)
        except Unreachable as failed:
            visitor.close()
            self.contact.note(failed)
            raise
        except ClientError as refused:
            visitor.close()
            self._note_failure(user)
            raise LoginRefused(str(refused)) from refused
        token = secrets.token_urlsafe(32)
        self.by_hash[hashed(token)] = Session(visitor, self.clock())
        return token

    def end(self, token: str | None) -> None:
        """Log out."""
        if token and (session := self.by_hash.pop(hashed(token), None)) is not None:
            session.visitor.close()

    def expire(self) -> None:
        """Forget the sessions that have expired."""
        for key, session in list(self.by_hash.items()):
            if self._expired(session):
                del self.by_hash[key]
                session.visitor.close()

    def observers(self) -> list[Visitor]:
        """The visitors for whom the history is recorded: `recorder`, then logged-in users, the
        newest sessions first. Users may see different topics, so each user has their own totals."""
        users: dict[str | None, Visitor] = {}
        for session in reversed(self.by_hash.values()):
            if len(users) < OBSERVERS_MAX and not self._expired(session):
                users.setdefault(session.visitor.name, session.visitor)
        return [*filter(None, [self.recorder]), *users.values()]

    def _expired(self, session: Session) -> bool:
        now = self.clock()
        return now - session.used > self.idle_seconds or now - session.begun > LIFE_SECONDS

    def _check_failures(self, user: str) -> None:
        if len(self._recent(self.failures.get(hashed(user), []))) >= FAILURES_MAX:
            raise LoginRefused("too many failed logins; try again in a minute", later=True)

    def _note_failure(self, user: str) -> None:
        times = self._recent(self.failures.pop(hashed(user), []))
        self.failures[hashed(user)] = [*times, self.clock()]
        while len(self.failures) > FAILED_NAMES_MAX or not self._recent(self._oldest()):
            del self.failures[next(iter(self.failures))]

    def _oldest(self) -> list[float]:
        return next(iter(self.failures.values()))

    def _recent(self, times: list[float]) -> list[float]:
        return [at for at in times if self.clock() - at <= FAILURE_SECONDS]

    def close(self) -> None:
        """Close all connections."""
        for session in self.by_hash.values():
            session.visitor.close()
        for visitor in (self.nameless, self.recorder):
            if visitor is not None:
                visitor.close()


def log_in(cluster: ClusterClient) -> None:
    """Connects to a broker, which checks the user's password."""
    cluster.any()


def hashed(token: str) -> bytes:
    """The stored form of a token."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
