"""What a state machine wants done: records to append, replies once they are committed, timers.

The state machines of this folder never do anything themselves. A request comes in together with
the way to answer it (`Answer`, a function that is called once); a JoinGroup keeps it until the
whole group has joined, most others put their reply into the result at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Answer = Callable[[Any], None]
"""Takes one reply, or the ProtocolError that stands for it. Called exactly once."""


RETRY_MS = 1000
"""After this time a timer looks again whether what it did was recorded: a full disk refuses that.
"""


class TimerKey(NamedTuple):
    """Names a timer; setting one of the same name again moves it."""

    kind: str
    owner: str
    """A group's id or a transactional id; empty for a timer of the whole shard."""
    member_id: str = ""


@dataclass(slots=True)
class Result:
    """One turn of a state machine: the moment it runs at, and its effects in order."""

    wall_ms: int
    """Unix time, for the timestamps in records."""
    tick_ms: int
    """Milliseconds that only grow, for deadlines."""
    records: list[Any] = field(default_factory=list)
    replies: list[tuple[Answer, Any]] = field(default_factory=list)
    timers: list[tuple[TimerKey, int | None]] = field(default_factory=list)

    def reply(self, answer: Answer, reply: Any) -> None:
        """Answer a request once this turn's records are committed."""
        self.replies.append((answer, reply))

    def set_timer(self, kind: str, owner: str, member_id: str = "", *, after_ms: int) -> int:
        """Fire `kind` after this time; the moment in ticks is returned."""
        at_ms = self.tick_ms + after_ms
        self.timers.append((TimerKey(kind, owner, member_id), at_ms))
        return at_ms

    def cancel_timer(self, kind: str, owner: str, member_id: str = "") -> None:
        """Never mind a timer, whether it was set or not."""
        self.timers.append((TimerKey(kind, owner, member_id), None))
