"""The appends of one shard that are not committed yet, and the answers that wait for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ottla.groups.result import Answer, Result
from ottla.wire.errors import ProtocolError
from ottla.wire.marks import reached


class OpenAppend:
    """One append, with the answers that wait until it is committed."""

    __slots__ = ("replies", "since_ms")

    def __init__(self, replies: list[tuple[Answer, Any]], since_ms: int) -> None:
        self.replies, self.since_ms = replies, since_ms

    def answer_all(self, error: ProtocolError) -> None:
        """Answers all waiting clients with an error."""
        replies, self.replies = self.replies, []
        for answer, _ in replies:
            answer(error)


class OpenAppends:
    """The appends of one shard, in the order in which they are committed."""

    def __init__(self) -> None:
        self._open: deque[OpenAppend] = deque()
        self._making = False
        self._put_off: list[Callable[[], None]] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    def begin(self, result: Result) -> OpenAppend:
        """Begins an append, for which the result's replies wait."""
        assert not self._making, "another append of the shard is being made"
        append = OpenAppend(result.replies, result.tick_ms)
        self._open.append(append)
        self._making = True
        return append

    def after_this(self, follow: Callable[[], None]) -> None:
        """Calls `follow` at once; but if an append is being made, calls it after that append. Until
        then, the append's records may be in the log without being applied to the shard."""
        if self._making:
            reached("an append was committed while another one was made")
            self._put_off.append(follow)
        else:
            follow()

    def refuse(self, error: ProtocolError) -> None:
        """The log has refused the append that is being made."""
        # If a log directory has failed, its shards are unloaded already, and all their clients are
        # answered.
        if self._open:
            self._open.pop().answer_all(error)

    def made(self) -> None:
        """An append was made or refused: run the callbacks that waited for it."""
        self._making = False
        put_off, self._put_off = self._put_off, []
        for follow in put_off:
            follow()

    def end(self, append: OpenAppend) -> bool:
        """The oldest append has ended; returns False if the shard was unloaded meanwhile: then all
        clients are answered already."""
        if not self._open:
            return False
        first = self._open.popleft()
        assert first is append, "an earlier append is still open"
        return True

    def wait_for_last(self, result: Result) -> None:
        """Makes the replies of a result without records wait for the last append."""
        last = self._open[-1]
        if not last.replies:
            last.since_ms = result.tick_ms
        last.replies += result.replies

    def waiting_since_ms(self) -> int | None:
        """The time at which the longest wait of an answer began; None if no answer waits."""
        return min((each.since_ms for each in self._open if each.replies), default=None)

    def answer_late(self, late_ms: int, error: ProtocolError) -> None:
        """Answers clients whose wait began at `late_ms` or earlier; their appends stay open."""
        for each in list(self._open):
            if each.since_ms <= late_ms:
                reached("a coordinator gave up waiting for its replicas")
                each.answer_all(error)

    def answer_all(self, error: ProtocolError) -> None:
        """The shard is unloaded: answers all waiting clients with an error."""
        for each in self._open:
            reached("a coordinator moved with records that are not committed")
            each.answer_all(error)
        self._open.clear()
