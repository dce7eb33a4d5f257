"""Reports a process of `ottla cluster start` that runs, but does not answer.

The process is not restarted: it may be slow because the machine is busy. Every few seconds it gets
a question on a new connection. Nothing here blocks: `Upkeep` waits for the answers together
with its other events.
"""

from __future__ import annotations

import math
import selectors
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.tools.cli.cluster_upkeep import Kept

ASK_SECONDS = 5.0
"""The time between an answer and the next question."""
SILENT_SECONDS = 15.0
"""A process is reported once if it leaves a connection without an answer for this long."""


class Silence:
    """Asks one process, and reports when it does not answer, and when it answers again."""

    def __init__(
        self, one: Kept, selector: selectors.BaseSelector, say: Callable[[str], None]
    ) -> None:
        self.due = math.inf
        """When `turn` has something to do."""
        self._one, self._selector, self._say = one, selector, say
        self._socket: socket.socket | None = None       # with a question that has no answer yet
        self._is_sent = self._is_reported = False

    def started(self, now: float) -> None:
        """The process has just been started."""
        self._is_reported = False
        if self._one.question is not None:
            self.due = now + ASK_SECONDS

    def ended(self) -> None:
        """The process has ended, or is not watched any longer."""
        self.due = math.inf
        self._close()

    def turn(self, now: float) -> None:
        """At the time `due`, asks a question, or reports that the last question has no answer."""
        if now < self.due:
            return
        if self._socket is None:
            self._ask(now)
            return
        self.due = math.inf         # until something arrives
        pid = self._pid
        self._is_reported = True
        self._say(
            f"{self._one.name} (pid {pid}) has not answered for {SILENT_SECONDS:g} s: it hangs, or"
            f" the machine is too busy. If the process still does not answer later, `kill -9 {pid}`"
            " restarts it")

    def _ask(self, now: float) -> None:
        assert self._one.question is not None
        try:
            self._socket, self._is_sent = socket.socket(), False
        except OSError:             # this process has no descriptor left
            self.due = now + ASK_SECONDS
            return
        self._socket.setblocking(False)
        self._socket.connect_ex(self._one.question[0])      # an error shows in `arrived`
        self._selector.register(self._socket, selectors.EVENT_WRITE, self)
        self.due = math.inf if self._is_reported else now + SILENT_SECONDS

    def arrived(self, now: float) -> None:
        """The connection was made, has brought an answer, or has ended."""
        assert self._one.question is not None
        if self._socket is None:    # the process has ended at the same moment
            return
        try:
            if not self._is_sent:
                self._socket.send(self._one.question[1])
                self._selector.modify(self._socket, selectors.EVENT_READ, self)
                self._is_sent = True
                return
            answers = bool(self._socket.recv(1))
        except OSError:             # the process does not listen yet, or the connection broke
            answers = False
        if answers and self._is_reported:
            self._say(f"{self._one.name} (pid {self._pid}) answers again")
            self._is_reported = False
        self._close()
        self.due = now + ASK_SECONDS

    @property
    def _pid(self) -> int:
        assert self._one.process is not None
        return self._one.process.pid

    def _close(self) -> None:
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None
